"""What is wrong with the installed dists as such: files that differ from RECORD, that are nobody's or several dists',
metadata twice, editables that lead outside, requirements that are not met."""

from collections import Counter
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from treegraft.environments.findings import Finding, Level, some
from treegraft.environments.inventory import Dist, PythonFacts, System
from treegraft.environments.loader.world import World


def check_dists(world: World, dists: frozenset[str] | None) -> Iterator[Finding]:
    chosen = [d for d in world.dists if dists is None or d.name in dists]
    for dist in chosen:
        yield from _record(dist)
        yield from _requirements(world, dist)
    yield from _duplicates(chosen)
    yield from _shared(world, dists)
    yield from _outside(world, dists)
    if dists is None:
        yield from _unowned(world)


def _record(dist: Dist) -> Iterator[Finding]:
    if dist.modified:
        names = [c.path for c in dist.modified]
        yield _finding(
            "dist.modified",
            "warn",
            dist.name,
            names[0],
            f"{len(names)} files differ from the RECORD of {dist.name} {dist.version}: {some(names)}",
            "a reinstall would lose these edits: move the dist as it is (action source), or reinstall to undo them",
        )
    if dist.missing:
        yield _finding(
            "dist.missing-file",
            "warn",
            dist.name,
            dist.missing[0],
            f"{len(dist.missing)} files of the RECORD of {dist.name} {dist.version} are gone: {some(dist.missing)}",
            f"reinstall {dist.name}=={dist.version}",
        )
    if dist.hostile:
        yield _finding(
            "dist.hostile-record",
            "warn",
            dist.name,
            None,
            f"RECORD of {dist.name} {dist.version} names files outside of the prefix: {some(dist.hostile)}",
            "do not move this dist; reinstall it from a trusted index",
        )


def _requirements(world: World, dist: Dist) -> Iterator[Finding]:
    for requirement, found in unmet(world, dist):
        yield _finding(
            "dist.requirement-unmet",
            "warn",
            dist.name,
            None,
            f"{dist.name} {dist.version} requires {requirement}; {found or 'it is not installed'}",
            f"install {requirement}",
        )


def unmet(world: World, dist: Dist) -> Iterator[tuple[str, str]]:
    """(requirement, what is there instead) of each requirement without extras that does not hold."""
    versions = {d.name: d.version for d in world.dists}
    variables = marker_variables(world.python, world.host.system)
    for line in dist.requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate(variables):
            continue
        name = canonicalize_name(requirement.name)
        found = versions.get(name)
        if found is None:
            yield str(requirement), ""
        elif not _satisfies(requirement, found):
            yield str(requirement), f"{name} {found} is there"


def marker_variables(python: PythonFacts, system: System) -> dict[str, str]:
    """PEP 508 environment of an interpreter on a Linux host."""
    return {
        "implementation_name": "cpython",
        "implementation_version": python.version,
        "os_name": "posix",
        "platform_machine": system.machine,
        "platform_release": system.kernel,
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": python.version,
        "platform_python_implementation": "CPython",
        "python_version": ".".join(python.version.split(".")[:2]),
        "sys_platform": "linux",
        "extra": "",
    }


def _satisfies(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def _duplicates(chosen: list[Dist]) -> Iterator[Finding]:
    counts = Counter(d.name for d in chosen)
    for name, count in counts.items():
        if count > 1:
            same = [d for d in chosen if d.name == name]
            yield _finding(
                "dist.duplicate-metadata",
                "warn",
                name,
                same[0].metadata_path,
                f"{count} metadata folders claim {name}: {', '.join(f'{d.version} ({d.metadata_path})' for d in same)}",
                f"uninstall {name} until nothing is left of it, then install one version",
            )


def _shared(world: World, dists: frozenset[str] | None) -> Iterator[Finding]:
    """One finding for each set of dists that own the same files: a fact where their RECORDs agree on the contents, a
    warning where the later one has overwritten the earlier one's."""
    changed = {c.path for d in world.dists for c in d.modified}
    by_owners: dict[tuple[str, ...], list[str]] = {}
    for entry in world.files:
        owners = tuple(sorted({o for o in entry.owners if not o.startswith("conda:")}))
        if len(owners) > 1:
            by_owners.setdefault(owners, []).append(entry.path)
    for owners, paths in by_owners.items():
        for owner in owners:
            if dists is None or owner in dists:
                others = ", ".join(o for o in owners if o != owner)
                yield _finding(
                    "dist.multi-owned",
                    "warn" if changed & set(paths) else "info",
                    owner,
                    paths[0],
                    f"{len(paths)} files of {owner} also belong to {others}: {some(paths)}",
                    f"keep one of {', '.join(owners)}: uninstalling one breaks the other",
                )


def _outside(world: World, dists: frozenset[str] | None) -> Iterator[Finding]:
    for dist in world.dists:
        if dist.origin.kind == "editable" and (dists is None or dist.name in dists):
            yield _finding(
                "dist.editable-outside",
                "warn",
                dist.name,
                dist.metadata_path,
                f"{dist.name} {dist.version} is an editable install of {dist.origin.url or 'a folder outside'}",
                "build a wheel of that folder and install it: an editable cannot be moved",
            )
    environment = world.inventory.environment if world.inventory is not None else None
    for pth in environment.pth_files if environment is not None and dists is None else ():
        if pth.outside_paths:
            yield _finding(
                "dist.editable-outside",
                "warn",
                None,
                pth.path,
                f"{pth.path} adds {some(pth.outside_paths)} to the module path",
                "install what lies there as a distribution",
            )


def _unowned(world: World) -> Iterator[Finding]:
    """One finding for each top-level folder or module; those inside a dist's package name the dist."""
    environment = world.inventory.environment if world.inventory is not None else None
    if environment is None:
        return
    by_top: dict[str, list[str]] = {}
    roots = environment.python.site_packages
    for path in environment.unowned:
        root = next((r for r in roots if path.startswith(r + "/")), "")
        by_top.setdefault(path[len(root) + 1 if root else 0 :].partition("/")[0], []).append(path)
    owner_of = {top: d.name for d in environment.dists for top in d.top_level}
    for top, paths in by_top.items():
        dist = owner_of.get(top) or owner_of.get(top.removesuffix(".py"))
        inside = f"in the package of {dist}" if dist else "of no distribution"
        yield _finding(
            "dist.unowned",
            "warn",
            dist,
            paths[0],
            f"{len(paths)} files {inside} that no RECORD lists: {some(paths)}",
            "a reinstall would not bring these back: move the dist as it is (action source), or delete them",
        )


def _finding(rule: str, level: Level, dist: str | None, file: str | None, evidence: str, remedy: str) -> Finding:
    return Finding(rule=rule, level=level, dist=dist, file=file, evidence=evidence, remedy=remedy)
