"""What a plan must not do unnoticed: downgrade, change the CUDA flavour, use a broken source, take an editable along,
put patches onto another version, overfill the disk. Each a finding with its way out."""

from collections.abc import Iterator
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from treegraft.environments.checks.imports import check_imports
from treegraft.environments.checks.places import incomplete, without_interpreter
from treegraft.environments.findings import Finding, some
from treegraft.environments.inventory import Inventory
from treegraft.environments.loader.imports import ground_of
from treegraft.environments.loader.world import world_of
from treegraft.environments.planning.choice import Choice, Ends
from treegraft.environments.planning.closure import Closure
from treegraft.environments.planning.request import PlanRequest
from treegraft.environments.planning.resolution import PatchFolder, Resolution
from treegraft.environments.planning.result import target_prefix
from treegraft.environments.rules.tables import group_of

ABSOLUTE_MINIMUM_BYTES = 64 << 20  # for scripts, metadata and the manifest of a generation


@dataclass(frozen=True)
class Room:
    """What the result takes on the target's disk."""

    num_bytes: int
    num_files: int


def check_limits(
    request: PlanRequest, ends: Ends, closure: Closure, resolution: Resolution, room: Room
) -> Iterator[Finding]:
    yield from _ends(ends)
    yield from _resolution(request, ends, closure, resolution)
    yield from _downgrades(request, ends, closure)
    yield from _flavour(request, ends, closure)
    yield from _source(ends, closure)
    if isinstance(ends.source, PatchFolder):
        yield from _patch(ends, ends.source)
    yield from _disk(ends, room)
    yield from _unknown(closure, resolution)


def _ends(ends: Ends) -> Iterator[Finding]:
    """What is known of them, and whether the copy will have an interpreter."""
    read = (ends.source, ends.target, ends.base)
    for end in {e.destination: e for e in read if isinstance(e, Inventory)}.values():
        yield from incomplete(end)
    start = ends.base or ends.target
    if start.environment is not None:
        yield from without_interpreter(start.environment)


def _resolution(request: PlanRequest, ends: Ends, closure: Closure, resolution: Resolution) -> Iterator[Finding]:
    if not resolution.satisfiable:
        kept = ", ".join(f"{n} {ends.base_dists[n].version}" for n in request.keep if n in ends.base_dists)
        yield Finding(
            rule="resolve.unsatisfiable",
            level="block",
            dist=request.take[0] if request.take else None,
            evidence=f"{resolution.explanation}{f' To be kept: {kept}.' if kept else ''}",
            remedy=f"drop --keep {', '.join(request.keep)}, or take a build that fits what is kept"
            if request.keep
            else "take a version whose requirements the index and both ends can meet",
        )
    elif resolution.explanation:
        yield Finding(
            rule="resolve.offline",
            level="warn",
            evidence=resolution.explanation,
            remedy="make the plan again where the index can be reached",
        )
    for conflict in closure.conflicts:
        need = conflict.need
        base = ends.base_dists.get(conflict.provider)
        choice = closure.choices.get(need.dist)
        chain = " -> ".join(choice.because if choice is not None and choice.because else (need.dist,))
        yield Finding(
            rule="resolve.unsatisfiable",
            level="block",
            dist=need.dist,
            file=need.file,
            evidence=f"{chain}: {need.file} needs {need.what}, which {conflict.provider} {conflict.version} of the "
            f"source has and {conflict.provider} {base.version if base else '?'}, which is to be kept, does not",
            remedy=f"drop --keep {conflict.provider}, or take a {need.dist} built for "
            f"{conflict.provider} {base.version if base else ''}".rstrip(),
        )
    missing = [n for n in request.take if n not in closure.choices or closure.choices[n].action in ("keep", "drop")]
    for name in missing:
        yield Finding(
            rule="resolve.unsatisfiable",
            level="block",
            dist=name,
            evidence=f"{name} is not installed in the source {request.source}",
            remedy="name a distribution that the source has (treegraft env probe lists them)",
        )
    for name in (n for n in request.keep if n not in ends.base_dists):
        yield Finding(
            rule="resolve.unsatisfiable",
            level="block",
            dist=name,
            evidence=f"{name} is to be kept, but the base does not have it",
            remedy=f"leave --keep {name} away, or name the base that has it",
        )


def _downgrades(request: PlanRequest, ends: Ends, closure: Closure) -> Iterator[Finding]:
    for name, choice in closure.choices.items():
        if choice.action in ("keep", "drop"):
            continue
        held = {"the base": ends.base_dists.get(name), "the source": ends.source_dists.get(name)}
        for where, dist in held.items():
            if dist is None or not _is_older(choice.version, dist.version):
                continue
            if where == "the source" and name in ends.base_dists:
                continue  # staying with the base's version is not a step down
            group = group_of(name)
            follows = group is not None and name != group.anchor and choice.action == "source"
            yield Finding(
                rule="resolve.downgrade",
                level="warn" if name in request.take or follows else "block",
                dist=name,
                evidence=f"{name} would go from {dist.version} of {where} down to {choice.version} ({choice.reason})",
                remedy=f"--take {name} to accept it, --keep {name} to forbid it, or take a version that fits",
            )


def _flavour(request: PlanRequest, ends: Ends, closure: Closure) -> Iterator[Finding]:
    """A local tag that changes (+cu128 to +cu130): said where the source's build brings it, blocked elsewhere."""
    for name, choice in closure.choices.items():
        base = ends.base_dists.get(name)
        if base is None or choice.action in ("keep", "drop"):
            continue
        old, new = base.local, choice.version.partition("+")[2] or None
        if old and old != new:
            is_explained = choice.action == "source"
            becomes = f"+{new}" if new else "a build without a tag"
            yield Finding(
                rule="resolve.flavour",
                level="warn" if is_explained or name in request.take else "block",
                dist=name,
                evidence=f"{name} changes from +{old} to {becomes}: {choice.reason}",
                remedy=f"--keep {name} to forbid it",
            )


def _source(ends: Ends, closure: Closure) -> Iterator[Finding]:
    """A source that is itself broken is not moved, nor taken as the pattern of what comes from the index."""
    source = ends.source
    if not isinstance(source, Inventory) or source.environment is None:
        return
    moved = frozenset(n for n, c in closure.choices.items() if c.facts == "source" and c.action != "drop")
    for finding in check_imports(ground_of(world_of(source)), moved):
        if finding.level == "block":
            yield Finding(
                rule="source.broken",
                level="block",
                dist=finding.dist,
                file=finding.file,
                evidence=f"in the source: {finding.evidence} [{finding.rule}]",
                remedy=f"mend the source first: {finding.remedy}",
            )
    read = {e.path for e in source.environment.files if e.sha256 or e.link_target}
    for name in sorted(moved):
        dist = ends.source_dists[name]
        unread = [path for path in dist.unchecked if path not in read]
        if unread:
            yield Finding(
                rule="source.broken",
                level="block",
                dist=name,
                file=unread[0],
                evidence=f"in the source, {len(unread)} files of {name} could not be read: {some(unread)}",
                remedy="name a user who may read them (USER@HOST:PATH)",
            )
        if dist.missing:
            yield Finding(
                rule="source.broken",
                level="block",
                dist=name,
                file=dist.missing[0],
                evidence=f"in the source, {len(dist.missing)} files of {name} are gone: {dist.missing[0]}",
                remedy=f"reinstall {name}=={dist.version} there first",
            )
        if dist.hostile:
            yield Finding(
                rule="dist.hostile-record",
                level="block",
                dist=name,
                evidence=f"RECORD of {name} names {dist.hostile[0]}, which lies outside of the prefix",
                remedy="take the dist from a trusted index",
            )
        if dist.origin.kind == "editable":
            yield Finding(
                rule="dist.editable-outside",
                level="block",
                dist=name,
                file=dist.metadata_path,
                evidence=f"{name} is an editable install of {dist.origin.url or 'a folder'} in the source",
                remedy="build a wheel of that folder and install it in the source",
            )


def _patch(ends: Ends, folder: PatchFolder) -> Iterator[Finding]:
    base = ends.base_dists.get(folder.dist)
    if folder.version is None:
        yield Finding(
            rule="resolve.patch-base",
            level="block",
            dist=folder.dist,
            file=folder.path,
            evidence=f"nothing says which version of {folder.dist} the modules of {folder.path} were made from",
            remedy=f"say it: --take {folder.dist}==VERSION",
        )
        return
    if not folder.index_files:
        yield Finding(
            rule="resolve.patch-base",
            level="block",
            dist=folder.dist,
            file=folder.path,
            evidence=f"the index has no wheel {folder.dist}=={folder.version} to put the modules on",
            remedy="name an index that has it (UV_INDEX_URL)",
        )
    if base is not None and base.version.partition("+")[0] != folder.version.partition("+")[0]:
        yield Finding(
            rule="resolve.patch-base",
            level="block",
            dist=folder.dist,
            file=folder.path,
            evidence=f"the modules were made from {folder.dist} {folder.version}; the base has {base.version}",
            remedy=f"rework the patch for {base.version}, or start from a base without {folder.dist}",
        )


def _disk(ends: Ends, room: Room) -> Iterator[Finding]:
    prefix = target_prefix(ends.target)
    filesystem = next((f for f in ends.target.host.filesystems if f.path == prefix), None)
    if filesystem is None:
        return
    lacking = []
    if filesystem.free_bytes < room.num_bytes + ABSOLUTE_MINIMUM_BYTES:
        lacking.append(f"{room.num_bytes >> 20} MiB are needed and {filesystem.free_bytes >> 20} MiB free")
    if 0 <= filesystem.free_inodes < room.num_files:
        lacking.append(f"{room.num_files} files are to be made and {filesystem.free_inodes} inodes free")
    if lacking:
        yield Finding(
            rule="host.disk",
            level="block",
            file=prefix,
            evidence=f"{filesystem.mount_point}: {'; '.join(lacking)}",
            remedy="free some space there, or choose a target on another filesystem",
        )


def _unknown(closure: Closure, resolution: Resolution) -> Iterator[Finding]:
    """Index wheels that neither end has were never looked into; what is said of their bytes is of packed ones."""
    sizes = {pin.name: pin.bytes for pin in resolution.pins}
    unseen = [c for c in closure.choices.values() if c.action in ("index", "patch") and c.facts == ""]
    if unseen:
        names = [f"{c.name} {c.version}{'' if sizes.get(c.name) else ' (size unknown)'}" for c in unseen]
        yield Finding(
            rule="resolve.unseen",
            level="warn",
            evidence=f"{len(unseen)} wheels come from the index unseen: {some(names, 8)}",
            remedy="leave room for them unpacked; run treegraft env check on the result once they are in place",
        )


def _is_older(new: str, old: str) -> bool:
    try:
        return Version(new.partition("+")[0]) < Version(old.partition("+")[0])
    except InvalidVersion:
        return False


def replaced_version(choice: Choice, ends: Ends) -> str | None:
    """The base's version that the choice replaces."""
    base = ends.base_dists.get(choice.name)
    return base.version if base is not None and choice.action not in ("keep", "drop") else None
