"""What a rule says about an environment: the Finding, and the document a check prints.

Knows no rule and no inventory: rules make findings, reports and plans carry them.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

import msgspec

from treegraft.records import Record

Level = Literal["block", "warn", "info"]
LEVELS: tuple[Level, ...] = ("block", "warn", "info")
MAX_NAMED = 6  # of many names in one evidence


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One checked fact. `dist` is the normalised distribution name and `file` the path relative to the prefix
    (absolute when outside of it); None where the fact is about neither."""

    rule: str
    level: Level
    dist: str | None = None
    file: str | None = None
    evidence: str
    remedy: str


class CheckReport(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `treegraft env check --json` prints."""

    KIND: ClassVar[str] = "environment-check"
    VERSION: ClassVar[int] = 1

    environment: str
    partial: bool
    findings: tuple[Finding, ...]


def some(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """The first names, and how many more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def is_blocked(findings: Iterable[Finding]) -> bool:
    return any(f.level == "block" for f in findings)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Without repetitions; blocks first, then by rule, dist and file."""
    unique = dict.fromkeys((f.rule, f.level, f.dist, f.file, f.evidence, f.remedy) for f in findings)
    rows = sorted(unique, key=lambda r: (LEVELS.index(r[1]), r[0], r[2] or "", r[3] or "", r[4]))
    return tuple(
        Finding(rule=rule, level=level, dist=dist, file=file, evidence=evidence, remedy=remedy)
        for rule, level, dist, file, evidence, remedy in rows
    )
