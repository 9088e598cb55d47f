"""Which dists cannot be imported, and why: abi.*, dist.missing-file, dist.missing-requirement.

Each dist is imported in a model process of its own, then every extension that this did not reach. Knows the loader
model; who would provide what is missing is for `providers`.
"""

from collections.abc import Iterator

from treegraft.environments.checks import providers
from treegraft.environments.findings import Finding, Level, some
from treegraft.environments.inventory import Dist
from treegraft.environments.loader.imports import Ground, Importer, ImportFailure
from treegraft.environments.loader.library import Library
from treegraft.environments.loader.process import LoadProblem, Process

MAX_NAMED = 5


def check_imports(ground: Ground, dists: frozenset[str] | None) -> Iterator[Finding]:
    """Findings of all dists (or those named) that do not import. Warnings are about what is not known to run."""
    for name, failures in import_failures(ground, dists):
        yield from _findings(ground, name, failures)
        yield from _unusable_variants(ground, name)


def import_failures(
    ground: Ground, dists: frozenset[str] | None
) -> Iterator[tuple[str, list[tuple[ImportFailure, Level]]]]:
    """Each dist with what fails when it is imported; an empty list when nothing is known to fail."""
    start = Process(ground.catalogue)
    by_name: dict[str, list[Dist]] = {}
    for dist in ground.world.dists:
        if dists is None or dist.name in dists:
            by_name.setdefault(dist.name, []).append(dist)
    extensions = _extensions_by_owner(ground)
    for name, same in by_name.items():
        importer = Importer(ground, start.copy())
        tops = dict.fromkeys(t for dist in same for t in dist.top_level)
        failures: list[tuple[ImportFailure, Level]] = []
        failures += [(f, "block") for top in tops if (f := importer.import_module(top)) is not None]
        failures += [(f, "warn") for f in importer.doubtful if f.reason != "missing-module"]
        for failure in _unreached(ground, importer, extensions.get(name, ()), same):
            failures.append((failure, "warn" if _is_optional(ground, failure) else "block"))
        yield name, failures


def _unreached(ground: Ground, importer: Importer, paths: tuple[str, ...], same: list[Dist]) -> Iterator[ImportFailure]:
    """Extensions that importing the dist did not load: one after the other in the same process, the failed ones again
    after what is known to come before them (who imports them, what the dist requires)."""
    waiting: list[tuple[str, ImportFailure]] = []
    for path in paths:
        module = ground.modules.name_of(path)
        found = ground.modules.find(module) if module is not None else None
        if module is None or module in importer.results or found is None or found.path != path:
            continue
        failure = importer.import_module(module)
        if failure is not None:
            waiting.append((module, failure))
    for module, failure in waiting:
        for helpers in ([], _importers_of(ground, module), _required_modules(ground, same)):
            later = importer.fork()
            later.forget(module)
            for helper in helpers:
                later.import_module(helper)
            if later.import_module(module) is None:
                break
        else:
            yield failure


def _is_optional(ground: Ground, failure: ImportFailure) -> bool:
    """An extension that importing its dist does not load, for a system library that no Python package is known to
    ship: a backend for who has it (numba's for TBB)."""
    problems = failure.problems
    return bool(problems) and all(
        p.kind == "missing-soname"
        and not p.detail
        and not ground.modules.missing_library(p.name)
        and not ground.catalogue.holders(p.name)
        and not providers.is_shipped(ground.world, p.name)
        for p in problems
    )


def _importers_of(ground: Ground, module: str) -> list[str]:
    """Modules whose statements import this one."""
    parent, _, last = module.rpartition(".")
    found = []
    for path, events in ground.events.items():
        for event in events:
            if event.name == module or (event.name == parent and last in event.detail.split(",")):
                name = ground.modules.name_of(path)
                found += [name] if name is not None else []
    return found


def _required_modules(ground: Ground, same: list[Dist]) -> list[str]:
    """Top-level modules of the dists that this one requires: what its users import first (torch, say)."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    names = set()
    for dist in same:
        for line in dist.requires:
            try:
                names.add(canonicalize_name(Requirement(line).name))
            except InvalidRequirement:
                continue
    return [top for d in ground.world.dists if d.name in names for top in d.top_level]


def _extensions_by_owner(ground: Ground) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for file in ground.world.native:
        name = ground.modules.name_of(file.path)
        is_module = file.extension_suffix is not None and name is not None
        if is_module and (file.partial or any(e.startswith("PyInit_") for e in file.exports)):
            for owner in file.owners:
                found.setdefault(owner, []).append(file.path)
    return {name: tuple(sorted(paths)) for name, paths in found.items()}


def _unusable_variants(ground: Ground, dist: str) -> Iterator[Finding]:
    """Extensions of another Python or ABI without any variant that this interpreter imports."""
    for file in ground.world.native:
        name = ground.modules.name_of(file.path) if dist in file.owners and file.extension_suffix else None
        if name is None or ground.modules.find(name) is not None:
            continue
        if file.path in ground.modules.unusable_variants(name):
            yield _python_tag(ground, dist, file.path, f"{file.path} is for another Python", "block")


def _findings(ground: Ground, dist: str, failures: list[tuple[ImportFailure, Level]]) -> Iterator[Finding]:
    """One finding a cause: the same missing library behind thirty extensions is said once, with the count."""
    causes: dict[tuple[object, ...], tuple[list[ImportFailure], Level, list[LoadProblem]]] = {}
    for failure, level in failures:
        if failure.reason != "dlopen":
            causes.setdefault((failure.reason, failure.path, failure.detail), ([], level, []))[0].append(failure)
            continue
        by_file: dict[tuple[str, Library | None, str], list[LoadProblem]] = {}
        for problem in failure.problems:
            is_wanted = problem.kind in ("missing-soname", "version")  # one cause, whichever file runs into it
            name = "" if problem.kind == "undefined-symbol" else problem.name
            by_file.setdefault((problem.kind, None if is_wanted else problem.library, name), []).append(problem)
        for key, problems in by_file.items():
            causes.setdefault(key, ([], level, problems))[0].append(failure)
    for same, level, problems in causes.values():
        if problems:
            yield _dlopen_finding(ground, dist, same, level, problems)
        else:
            yield _plain_finding(ground, dist, same[0], level)


def _dlopen_finding(
    ground: Ground, dist: str, failures: list[ImportFailure], level: Level, problems: list[LoadProblem]
) -> Finding:
    first = problems[0]
    library, world = first.library, ground.world
    file, how = library.file.path, _reached_by(failures, library)
    evidence, remedy, rule = "", "", ""
    if first.kind == "missing-soname":
        rule = "abi.missing-soname"
        evidence = f"{file} needs {first.name}, which is not found{_elsewhere(ground, first)}"
        remedy = providers.soname_remedy(world, first.name)
    elif first.kind == "version":
        rule = version_rule(first.detail, first.name)
        provider = first.expected_in.path if first.expected_in is not None else first.detail
        evidence = f"{file} needs version {first.name} of {first.detail}; {provider} does not define it"
        remedy = providers.runtime_remedy(first.name)
    elif first.kind == "undefined-symbol":
        rule = "abi.undefined-symbol"
        evidence, remedy = _undefined(ground, problems)
    elif first.kind == "machine":
        rule = "abi.machine"
        evidence = f"{file} is for {first.name}; this interpreter is {ground.catalogue.machine}"
        remedy = f"install the {ground.catalogue.machine} build"
    else:
        rule = "abi.broken-file"
        evidence = f"{file} cannot be loaded: {first.name}"
        remedy = "reinstall the distribution that owns it"
    return Finding(rule=rule, level=level, dist=dist, file=file, evidence=evidence + how, remedy=remedy)


def _undefined(ground: Ground, problems: list[LoadProblem]) -> tuple[str, str]:
    first = problems[0]
    names = [p.name for p in problems]
    owner = first.library.owner
    version = next((d.version for d in ground.world.dists if d.name == owner), "")
    whose = f" of {owner} {version}" if owner else ""
    evidence = f"{first.library.file.path}{whose} needs {some(names, MAX_NAMED)}; nothing it loads defines "
    evidence += "it" if len(names) == 1 else "them"
    alike = [s for name in names[:MAX_NAMED] for s in providers.similar(first.scope, name)]
    if alike:
        evidence += f" (other argument types: {'; '.join(dict.fromkeys(alike))})"
    sources = [s for name in names[:MAX_NAMED] for s in providers.exporters(ground.world, name)]
    if sources:
        found = " or ".join(list(dict.fromkeys(sources))[:3])
        return (
            evidence,
            f"{found} defines it: use that build, or a build of {owner or 'the file'} made for what is here",
        )
    return evidence, f"use builds of {owner or 'the file'} and of the libraries it needs that were made for each other"


def _plain_finding(ground: Ground, dist: str, failure: ImportFailure, level: Level) -> Finding:
    file: str | None = failure.path or None
    chain = " -> ".join(failure.chain)
    if failure.reason == "python-tag":
        return _python_tag(ground, dist, failure.path, f"import {chain}: {failure.path} is for another Python", level)
    if failure.reason == "missing-module":
        rule, evidence = "dist.missing-requirement", f"import {chain}: there is no module {failure.detail}"
        remedy = f"install the distribution that provides {failure.detail}"
    elif failure.reason == "missing-library":
        rule, evidence = (
            "abi.missing-soname",
            f"import {chain}: {failure.path} loads {failure.detail}, which is not found",
        )
        remedy = providers.soname_remedy(ground.world, failure.detail)
    elif failure.reason == "no-init":
        rule, evidence = "abi.no-init", f"import {chain}: {failure.path} does not export {failure.detail}"
        remedy = "install the build of the distribution that was made under this module name"
    elif failure.reason == "not-elf":
        rule, evidence = "abi.broken-file", f"import {chain}: {failure.path} is not an ELF file"
        remedy = "reinstall the distribution that owns it"
    else:
        rule, evidence = "dist.missing-file", f"import {chain}: {failure.path} is gone {failure.detail}".rstrip()
        remedy = "reinstall the distribution that owns it"
    return Finding(rule=rule, level=level, dist=dist, file=file, evidence=evidence, remedy=remedy)


def _python_tag(ground: Ground, dist: str, path: str, what: str, level: Level) -> Finding:
    suffixes = ", ".join(ground.modules.suffixes)
    python = ground.world.python.version
    return Finding(
        rule="abi.python-tag",
        level=level,
        dist=dist,
        file=path,
        evidence=f"{what}; Python {python} imports {suffixes}",
        remedy=f"install the build for Python {'.'.join(python.split('.')[:2])}, or an abi3 one",
    )


def version_rule(library: str, version: str) -> str:
    if version.startswith("GLIBC_"):
        return "abi.libc"
    if version.startswith(("GLIBCXX_", "CXXABI_")) or library.startswith("libstdc++"):
        return "abi.libstdcxx"
    return "abi.symbol-version"


def _reached_by(failures: list[ImportFailure], library: Library) -> str:
    first = failures[0]
    text = f" (import {' -> '.join(first.chain)}" if first.chain else " ("
    if first.path != library.file.path:
        text += f", by {first.path}"
    return text + (f", and {len(failures) - 1} more)" if len(failures) > 1 else ")")


def _elsewhere(ground: Ground, problem: LoadProblem) -> str:
    """Files of that name that the search did not lead to."""
    if problem.detail:
        return f" ({problem.detail})"
    holders = [h.file.path for h in ground.catalogue.holders(problem.name) if h is not problem.library]
    return f" ({holders[0]} is not on its search path)" if holders else ""
