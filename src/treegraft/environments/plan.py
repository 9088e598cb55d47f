"""What would be moved, from where, and why: the Plan and its making.

Touches no machine: both ends come as inventories, the index as a `Resolution` that index/resolve.py made before.
"""

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from treegraft.environments.compatibility import check
from treegraft.environments.findings import Finding, in_order, is_blocked
from treegraft.environments.inventory import FileEntry, Inventory, fingerprint
from treegraft.environments.planning.choice import Action, Choice, Ends, ends_of
from treegraft.environments.planning.closure import Closure, close
from treegraft.environments.planning.limits import Room, check_limits, replaced_version
from treegraft.environments.planning.request import PlanRequest, effective_base
from treegraft.environments.planning.resolution import PatchFolder, Resolution
from treegraft.environments.planning.result import package_files, result_python_facts, result_world
from treegraft.environments.rules.tables import group_of
from treegraft.errors import UsageError
from treegraft.records import Record, content_hash

__all__ = ["Plan", "PlanRequest", "PlannedDist", "make_plan"]


class PlannedDist(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One distribution of the environment to be built.

    action: keep (as in the base), source (copied from the source), index (wheel of `version`), patch (index wheel of
    `version` with `patched_files` and `added_files` of the folder), drop (in the base, not in the result).
    because: chain of dist names from a taken dist to this one ("why is this here"); empty for kept ones.
    group: name of the indivisible group it belongs to, None when alone. bytes: of its files.
    """

    name: str
    version: str
    action: Action
    reason: str
    evidence: tuple[str, ...] = ()
    because: tuple[str, ...] = ()
    replaces: str | None = None
    group: str | None = None
    bytes: int = 0
    patched_files: tuple[str, ...] = ()
    added_files: tuple[str, ...] = ()


class Plan(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`hash` is the sha256 of the canonical JSON with `hash` empty; fingerprints are those of the inventories.

    platform: machine and libc of the target. bytes_to_move: what must cross to the target; bytes_present: what it has
    already, by content. disk_needed_bytes: for the copy of the base and all that is new.
    """

    KIND: ClassVar[str] = "environment-plan"
    VERSION: ClassVar[int] = 1

    request: PlanRequest
    source_fingerprint: str
    target_fingerprint: str
    base_fingerprint: str | None
    python: str
    platform: str
    dists: tuple[PlannedDist, ...]
    findings: tuple[Finding, ...]
    bytes_to_move: int
    bytes_present: int
    disk_needed_bytes: int
    hash: str = ""

    @property
    def is_blocked(self) -> bool:
        return is_blocked(self.findings)

    def computed_hash(self) -> str:
        return content_hash(msgspec.structs.replace(self, hash=""))


def make_plan(
    request: PlanRequest,
    *,
    source: Inventory | PatchFolder,
    target: Inventory,
    base: Inventory | None,
    resolution: Resolution,
) -> Plan:
    """The smallest set of changes that puts `request.take` into a copy of the base, each with its reason.

    target: the host, and what is at the target path. base: the environment to copy; None: what is at the target, or
    nothing. resolution: `index.resolve.resolve(...)` of the same request and ends.
    Findings are those of the environment as it would be; a plan with a blocking one is made and marked, not refused.
    Raises UsageError for a source without an environment, or when nothing is to be taken.
    """
    if not request.take:
        raise UsageError("nothing to take; name at least one distribution with --take")
    if isinstance(source, Inventory) and source.environment is None:
        raise UsageError(f"{source.destination} names no environment; expected HOST:PATH or a folder of modules")
    ends = ends_of(source, target, effective_base(target, base))
    closure = close(request.take, request.keep, ends, resolution)
    moved = _moved_files(ends, closure)
    present = _present(ends, moved)
    fetched = [c for c in closure.choices.values() if c.action in ("index", "patch")]
    moved_bytes = sum(f.size for f in moved)
    to_move = moved_bytes - present + sum(_wheel_bytes(c, ends, resolution) for c in fetched)
    room = _room(ends, closure, moved, fetched, resolution)
    findings = in_order((*_result_findings(ends, closure), *check_limits(request, ends, closure, resolution, room)))
    system = target.host.system
    plan = Plan(
        request=request,
        source_fingerprint=_fingerprint(source),
        target_fingerprint=fingerprint(target),
        base_fingerprint=fingerprint(base) if base is not None else None,
        python=result_python_facts(ends).version,
        platform=f"{system.machine} {system.libc} {system.libc_version}",
        dists=tuple(_planned(c, ends, resolution) for _, c in sorted(closure.choices.items())),
        findings=findings,
        bytes_to_move=to_move,
        bytes_present=present,
        disk_needed_bytes=room.num_bytes,
    )
    return msgspec.structs.replace(plan, hash=plan.computed_hash())


def _result_findings(ends: Ends, closure: Closure) -> Iterator[Finding]:
    """Of the environment as it would be. What was wrong with a kept dist before, and is nothing that the taken ones
    need, does not block; smaller faults of kept dists are the base's own."""
    world = result_world(ends, closure.choices)
    kept = {n for n, c in closure.choices.items() if c.action == "keep" and n not in closure.needed}
    findings = check(world)
    suspects = {f.dist for f in findings if f.level == "block" and f.dist in kept}
    before = _blocks_in_base(ends, frozenset(d for d in suspects if d is not None))
    for finding in findings:
        if finding.dist not in kept:
            yield finding
        elif finding.level == "block":
            level = "warn" if (finding.dist, finding.rule) in before else "block"
            yield msgspec.structs.replace(finding, level=level)


def _blocks_in_base(ends: Ends, dists: frozenset[str]) -> set[tuple[str | None, str]]:
    """(dist, rule) of what blocks in the base as it is."""
    if ends.base is None or not dists:
        return set()
    return {(f.dist, f.rule) for f in check(ends.base, dists=dists) if f.level == "block"}


def _planned(choice: Choice, ends: Ends, resolution: Resolution) -> PlannedDist:
    group = group_of(choice.name)
    patched: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    if choice.action == "patch" and isinstance(ends.source, PatchFolder):
        theirs = ends.source.index_files
        patched = tuple(sorted(p for p, h in ends.source.files.items() if p in theirs and theirs[p] != h))
        added = tuple(sorted(p for p in ends.source.files if p not in theirs))
    return PlannedDist(
        name=choice.name,
        version=choice.version,
        action=choice.action,
        reason=choice.reason,
        evidence=choice.evidence,
        because=choice.because,
        replaces=replaced_version(choice, ends),
        group=group.name if group is not None else None,
        bytes=_unpacked_bytes(choice, ends, resolution),
        patched_files=patched,
        added_files=added,
    )


def _moved_files(ends: Ends, closure: Closure) -> list[FileEntry]:
    """Files of the source that the result has; of a patch folder, those that differ from the index wheel."""
    source = ends.source
    names = {n for n, c in closure.choices.items() if c.action == "source"}
    if isinstance(source, Inventory):
        assert source.environment is not None
        wanted = package_files(source.environment, names)
        return [e for e in source.environment.files if e.path in wanted]
    return [
        FileEntry(
            path=path, size=source.sizes[path], sha256=digest, mode=0, mtime_ns=0, device=0, inode=0, num_links=1,
            link_target="", owners=(),
        )
        for path, digest in source.files.items()
        if source.index_files.get(path) != digest
    ]  # fmt: skip


def _present(ends: Ends, moved: list[FileEntry]) -> int:
    """Bytes of the moved files that the target host has already, by content."""
    held = {
        entry.sha256
        for end in (ends.target, ends.base)
        if end is not None and end.environment is not None
        for entry in end.environment.files
    }
    return sum(f.size for f in moved if f.sha256 and f.sha256 in held)


def _wheel_bytes(choice: Choice, ends: Ends, resolution: Resolution) -> int:
    """What is fetched: the index's word, else the size of the same version where it is installed, else 0."""
    pin = next((p for p in resolution.pins if p.name == choice.name), None)
    dist = ends.dist_of(choice)
    return (pin.bytes if pin is not None else 0) or (dist.size_bytes if dist is not None else 0)


def _unpacked_bytes(choice: Choice, ends: Ends, resolution: Resolution) -> int:
    """As it is installed at an end; of what neither has, the packed size is all that is known."""
    dist = ends.dist_of(choice)
    return dist.size_bytes if dist is not None else _wheel_bytes(choice, ends, resolution)


def _room(ends: Ends, closure: Closure, moved: list[FileEntry], fetched: list[Choice], resolution: Resolution) -> Room:
    """Of what stays of the base, what is moved and what the index brings."""
    replaced = {n for n, c in closure.choices.items() if c.action != "keep"}
    base = ends.base.environment.files if ends.base is not None and ends.base.environment is not None else ()
    made = [*moved, *(e for e in base if not e.owners or not set(e.owners) <= replaced)]
    dists = [d for c in fetched if (d := ends.dist_of(c)) is not None]
    return Room(
        num_bytes=sum(e.size for e in made) + sum(_unpacked_bytes(c, ends, resolution) for c in fetched),
        num_files=len(made) + sum(d.num_files for d in dists),
    )


def _fingerprint(source: Inventory | PatchFolder) -> str:
    if isinstance(source, Inventory):
        return fingerprint(source)
    import hashlib

    return hashlib.sha256(msgspec.json.encode(sorted(source.files.items()))).hexdigest()
