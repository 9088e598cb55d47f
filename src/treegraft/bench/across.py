"""The same arm in two records: before and after a change, or two machines. Knows that runs which did not alternate
prove less, and says so. Pure functions; reads no file."""

from dataclasses import dataclass

import msgspec

from treegraft.bench.compare import Comparison, compare
from treegraft.bench.record import BenchRecord
from treegraft.bench.report import comparison_notes
from treegraft.errors import UsageError


@dataclass(frozen=True)
class Across:
    """warnings: what differs between the two runs beside the arm."""

    comparison: Comparison
    warnings: tuple[str, ...]


def compare_across(baseline: BenchRecord, other: BenchRecord, arm: str | None) -> Across:
    """`other` over `baseline` for one arm. Raises UsageError when the arm is not in both, when none is named and they
    share several, or when the two asked different prompts."""
    shared = [a.name for a in baseline.report.arms if a.name in {b.name for b in other.report.arms}]
    if arm is None:
        if len(shared) != 1:
            found = ", ".join(shared) or "none"
            raise UsageError(f"the records share these arms: {found}; name one of both with --arm")
        arm = shared[0]
    if arm not in shared:
        raise UsageError(f"arm {arm!r} is not in both records; they share {', '.join(shared) or 'none'}")
    if baseline.report.prompt_set_hash != other.report.prompt_set_hash:
        raise UsageError(
            "the two records asked different prompts; run both with the same --split, --limit, --categories"
        )
    before, after = f"{arm} ({baseline.started_at})", f"{arm} ({other.started_at})"
    if before == after:
        after += " B"
    samples = [msgspec.structs.replace(s, arm=before) for s in baseline.report.samples if s.arm == arm]
    samples += [msgspec.structs.replace(s, arm=after) for s in other.report.samples if s.arm == arm]
    return Across(compare(samples, after, before), tuple(_warnings(baseline, other)))


def across_text(across: Across) -> str:
    """The verdict in a few lines."""
    of = across.comparison
    return "\n".join(
        [
            f"{of.arm} over {of.baseline}: {of.ratio:.2f}x, 95% interval {of.low:.2f} - {of.high:.2f}, "
            f"sign test p {of.sign_p:.1g}, {of.num_units} units, {of.num_loops} left out for loops",
            *comparison_notes(of),
            *(f"warning: {text}" for text in across.warnings),
        ]
    )


def _warnings(baseline: BenchRecord, other: BenchRecord) -> list[str]:
    warnings = ["two runs, not alternating: the machine may have changed in between; arms of one run prove more"]
    for name in ("processor", "num_cores", "memory_bytes", "system", "python", "gpus"):
        ours, theirs = getattr(baseline.machine, name), getattr(other.machine, name)
        if ours != theirs:
            warnings.append(f"{name} differs: {ours} against {theirs}")
    for name in sorted(baseline.packages.keys() | other.packages.keys()):
        ours, theirs = baseline.packages.get(name, "none"), other.packages.get(name, "none")
        if ours != theirs:
            warnings.append(f"{name} differs: {ours} against {theirs}")
    for name in sorted(baseline.workload.keys() | other.workload.keys()):
        ours, theirs = baseline.workload.get(name), other.workload.get(name)
        if ours != theirs:
            warnings.append(f"workload {name} differs: {ours} against {theirs}")
    return warnings
