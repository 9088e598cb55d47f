"""What would be moved, from where, and why: the Plan and its making.

Touches no machine: both ends come as inventories, the index as a `Resolution` that resolve.py made before.
"""

from typing import ClassVar, Literal

import msgspec

from treegraft.environments.findings import Finding
from treegraft.environments.inventory import Inventory
from treegraft.environments.planning.resolution import PatchFolder, Resolution
from treegraft.records import Record

Action = Literal["keep", "source", "index", "patch", "drop"]


class PlanRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the user asked for. `take`, `keep`: normalised dist names. source, target, base: as given (`HOST:PATH`)."""

    take: tuple[str, ...]
    source: str
    target: str
    base: str | None = None
    keep: tuple[str, ...] = ()


class PlannedDist(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One distribution of the environment to be built.

    action: keep (as in the base), source (copied from the source), index (wheel of `version`), patch (index wheel of
    `version` plus the files of `patched_files`), drop (in the base, not in the result).
    because: the chain of dist names from a taken dist to this one ("why is this here"); empty for kept ones.
    group: name of the indivisible group it moves with, None when alone.
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
    """`hash` is the sha256 of the canonical JSON with `hash` empty; fingerprints are those of the inventories."""

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
    def blocked(self) -> bool:
        return any(f.level == "block" for f in self.findings)


def make_plan(
    request: PlanRequest,
    *,
    source: Inventory | PatchFolder,
    target: Inventory,
    base: Inventory | None,
    resolution: Resolution,
) -> Plan:
    """The smallest set of changes that puts `request.take` into a copy of the base, each with its reason.

    target: the host (and environment, if one is there) at the target path. base: the environment to copy, None: start
    empty. resolution: of `planning.needs.requirements(...)` by `resolve.resolve(...)`.
    Findings are those of the environment as it would be; a plan with a blocking one is made and marked, not refused.
    """
    raise NotImplementedError
