"""The difference of two environments, as data. Knows no output format; planning.render and report print it."""

from typing import ClassVar, Literal

import msgspec

from treegraft.environments.inventory import Inventory
from treegraft.records import Record

Relation = Literal["same", "other-version", "other-build", "patched", "only-left", "only-right"]


class DistDifference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One dist in two environments. `modified`, `added`, `removed` list paths; `diffs` maps a path to a unified diff."""

    name: str
    relation: Relation
    left: str | None
    right: str | None
    modified: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    diffs: dict[str, str] = {}


class FactDifference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    fact: str
    left: str
    right: str


class EnvironmentDiff(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `treegraft env diff --json` prints."""

    KIND: ClassVar[str] = "environment-diff"
    VERSION: ClassVar[int] = 1

    left: str
    right: str
    host: tuple[FactDifference, ...]
    environment: tuple[FactDifference, ...]
    dists: tuple[DistDifference, ...]


def compare(left: Inventory, right: Inventory) -> EnvironmentDiff:
    """Left against right; a dist is patched when its files differ from its own RECORD on one side."""
    raise NotImplementedError
