"""The environment as it would be: files of the base that stay, files of the source laid over them, on the target host.

Index wheels that neither end has are known by name only; their files are not in the World.
"""

from collections.abc import Callable

import msgspec

from treegraft.environments.inventory import (
    Dist,
    Environment,
    FileEntry,
    Host,
    Inventory,
    ModuleLoads,
    NativeFile,
    PythonFacts,
)
from treegraft.environments.loader.world import World
from treegraft.environments.planning.choice import Choice, Ends
from treegraft.environments.planning.request import result_python


def result_world(ends: Ends, choices: dict[str, Choice]) -> World:
    """What the plan would build, with both ends as providers of what may be missing in it."""
    python, target = result_python_facts(ends), ends.target
    files: dict[str, FileEntry] = {}
    native: dict[str, NativeFile] = {}
    loads: dict[str, ModuleLoads] = {}
    for label, end in (("base", ends.base), ("source", ends.source)):
        if not isinstance(end, Inventory) or end.environment is None:
            continue
        environment = end.environment
        names = {c.name for c in choices.values() if c.facts == label and c.action != "drop"}
        move = _mover(environment, python)
        kept = _paths(environment, names, with_rest=label == "base")
        for entry in environment.files:
            if entry.path in kept:
                files[move(entry.path)] = msgspec.structs.replace(entry, path=move(entry.path))
        for file in environment.native:
            if file.path in kept:
                native[move(file.path)] = msgspec.structs.replace(file, path=move(file.path))
        for module in environment.python_loads:
            if module.path in kept:
                loads[move(module.path)] = msgspec.structs.replace(module, path=move(module.path))
    providers = tuple(e for e in (ends.source, ends.base) if isinstance(e, Inventory))
    ends_partial = [e for e in (ends.base, ends.source) if isinstance(e, Inventory) and e.partial]
    has_unseen = any(c.facts == "" for c in choices.values())
    return World(
        label="the planned environment",
        prefix=target_prefix(target),
        host=_host(ends),
        python=python,
        dists=tuple(_dists(ends, choices)),
        files=tuple(files.values()),
        native=tuple(native.values()),
        python_loads=tuple(loads.values()),
        inventory=None,
        origins={c.name: c.facts for c in choices.values()},
        providers=providers,
        partial=bool(ends_partial) or target.partial or has_unseen,
    )


def result_python_facts(ends: Ends) -> PythonFacts:
    """The base's interpreter, else the target's, else what is known of the host's of the source's version."""
    for end in (ends.base, ends.target):
        if end is not None and end.environment is not None and end.environment.python.version:
            return end.environment.python
    source = ends.source
    version = result_python(source, ends.target, ends.base)
    if isinstance(source, Inventory) and source.environment is not None:
        minor = ".".join(version.split(".")[:2])
        if source.environment.python.version.startswith(minor + "."):
            return source.environment.python
    return PythonFacts(how="the plan", version=version)


def target_prefix(target: Inventory) -> str:
    """Absolute path of the target; "" where a host alone was named. Of one that is not there yet, the first row of the
    file systems says it."""
    if target.environment is not None:
        return target.environment.prefix
    has_path = bool(target.destination.rpartition(":")[2])
    return target.host.filesystems[0].path if has_path and target.host.filesystems else ""


def _host(ends: Ends) -> Host:
    """The target's, with what the base's probe found out about the same host's libraries."""
    if ends.base is None or ends.base is ends.target:
        return ends.target.host
    known = {f.path: f for f in (*ends.base.host.system_libraries, *ends.target.host.system_libraries)}
    return msgspec.structs.replace(ends.target.host, system_libraries=tuple(known.values()))


def _dists(ends: Ends, choices: dict[str, Choice]) -> list[Dist]:
    found = []
    for choice in choices.values():
        dist = ends.dist_of(choice)
        if choice.action != "drop" and dist is not None:
            found.append(dist)
    return found


def package_files(environment: Environment, names: set[str]) -> set[str]:
    """Paths of the named dists' files and of files inside their packages that nobody owns."""
    return _paths(environment, names, with_rest=False)


def _paths(environment: Environment, names: set[str], *, with_rest: bool) -> set[str]:
    """Paths of the named dists' files, of files inside their packages that nobody owns, and of all that belongs to no
    dist when `with_rest`."""
    packages = {top for d in environment.dists if d.name in names for top in d.top_level}
    others = {top for d in environment.dists if d.name not in names for top in d.top_level}
    roots = environment.python.site_packages
    kept = set()
    for entry in environment.files:
        if not entry.owners:
            root = next((r for r in roots if entry.path.startswith(r + "/")), None)
            top = entry.path[len(root) + 1 :].partition("/")[0] if root is not None else ""
            is_inside = top in packages
            if is_inside or (with_rest and top not in others):
                kept.add(entry.path)
        elif names.intersection(entry.owners) or (with_rest and all(o.startswith("conda:") for o in entry.owners)):
            kept.add(entry.path)
    return kept


def _mover(environment: Environment, python: PythonFacts) -> Callable[[str], str]:
    """From the source's site-packages to the result's."""
    ours, theirs = python.site_packages, environment.python.site_packages
    pairs = list(zip(theirs, ours, strict=False)) if ours else []

    def move(path: str) -> str:
        for old, new in pairs:
            if path.startswith(old + "/"):
                return new + path[len(old) :]
        return path

    return move
