"""A benchmark record as figures and as text: one row an arm, and what is to be known about them. Prints nothing."""

import math
from collections.abc import Sequence

import msgspec

from treegraft.bench.compare import LEVEL, MIN_UNITS, Comparison, compare
from treegraft.bench.record import BenchRecord, Phase, Sample
from treegraft.speculation.statistics import tau


class ArmFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Over units without loops. tokens_per_second: all completion tokens over all wall seconds, prefill included.
    tau: tokens per target pass, pooled (None where the server does not say). ms_per_pass: wall time after the first
    token over passes, for arms that answer one prompt at a time. first_token_ms: median."""

    arm: str
    tokens_per_second: float
    tau: float | None
    ms_per_pass: float | None
    first_token_ms: float
    tau_by_category: dict[str, float]
    comparison: Comparison | None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """num_units: units of the phase; num_loops: those left out everywhere since some answer to them ended in a loop;
    suspicious: what is a bug until explained."""

    split: str
    num_units: int
    num_loops: int
    arms: tuple[ArmFigures, ...]
    suspicious: tuple[str, ...]


def figures(phase: Phase) -> Figures:
    """Everything the text shows. Units with a loop in any arm are left out of all arms."""
    looping = {sample.unit for sample in phase.samples if sample.is_loop}
    baseline = phase.arms[0].name
    arms, suspicious = [], []
    for arm in phase.arms:
        samples = [s for s in phase.samples if s.arm == arm.name and s.unit not in looping]
        if not samples:
            continue
        against = None
        if arm.name != baseline:
            against = compare(phase.samples, arm.name, baseline)
        arms.append(_arm_figures(arm.name, samples, against))
        suspicious += _suspicions(arm.name, arm.config.get("method"), samples)
    units = {sample.unit for sample in phase.samples}
    return Figures(
        split=phase.split,
        num_units=len(units),
        num_loops=len(looping),
        arms=tuple(arms),
        suspicious=tuple(suspicious),
    )


def report_text(record: BenchRecord) -> str:
    """The record for people: machine, arms, and the warnings that belong to the figures."""
    machine = record.machine
    memory = f"{machine.memory_bytes / 2**30:.0f} GiB"
    lines = [
        f"{record.name}, {record.started_at}",
        f"{machine.processor}, {machine.num_cores} cores, {memory}, load {machine.load_average:.2f}"
        + "".join(f"; {gpu}" for gpu in machine.gpus),
        ", ".join(f"{name} {version}" for name, version in record.packages.items()),
        ", ".join(f"{name} {value}" for name, value in record.workload.items()),
    ]
    if record.tuning is not None:
        lines += ["", "chosen on other prompts (split tune):", *phase_lines(figures(record.tuning))]
    lines += ["", f"split {record.report.split}:", *phase_lines(figures(record.report))]
    if not machine.gpus:
        lines += ["", "A CPU that others may use too: only the ratios count, and only within this run."]
    return "\n".join(lines)


def phase_lines(of: Figures) -> list[str]:
    """The table of one phase and its notes."""
    header = ("arm", "tokens/s", "tau", "ms/pass", "first ms", "ratio", f"{LEVEL:.0%} interval", "sign p")
    rows = [header, *(_row(arm) for arm in of.arms)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    categories = sorted({name for arm in of.arms for name in arm.tau_by_category})
    if len(categories) > 1:
        lines += [
            f"tau of {arm.arm}: " + ", ".join(f"{name} {arm.tau_by_category[name]:.2f}" for name in categories)
            for arm in of.arms
            if any(value > 1 for value in arm.tau_by_category.values())
        ]
    lines.append(f"{of.num_units} units, {of.num_loops} of them left out since a text ended in a loop")
    lines += [note for arm in of.arms if arm.comparison for note in comparison_notes(arm.comparison)]
    return [*lines, *(f"SUSPICIOUS: {text}" for text in of.suspicious)]


def comparison_notes(of: Comparison) -> list[str]:
    """What must stand beside a ratio: power, noise, texts."""
    notes = []
    if of.num_units < MIN_UNITS:
        notes.append(f"{of.arm}: underpowered, {of.num_units} units; at least {MIN_UNITS} are needed")
    elif of.is_underpowered:
        notes.append(f"{of.arm}: underpowered, the interval holds 1")
    if of.noise is None:
        notes.append(f"{of.arm}: noise unknown, nothing was repeated")
    else:
        notes.append(f"{of.arm}: noise {of.noise:.1%} between repeats of one unit (median)")
    if of.different_texts:
        shown = ", ".join(of.different_texts[:3]) + (" ..." if len(of.different_texts) > 3 else "")
        notes.append(f"{of.arm}: {len(of.different_texts)} texts differ from {of.baseline}'s: {shown}")
    else:
        notes.append(f"{of.arm}: every text equals {of.baseline}'s")
    return notes


def _row(arm: ArmFigures) -> tuple[str, ...]:
    against = arm.comparison
    return (
        arm.arm,
        f"{arm.tokens_per_second:.1f}",
        "-" if arm.tau is None else f"{arm.tau:.2f}",
        "-" if arm.ms_per_pass is None else f"{arm.ms_per_pass:.1f}",
        f"{arm.first_token_ms:.0f}",
        "baseline" if against is None else f"{against.ratio:.2f}x",
        "" if against is None else f"{against.low:.2f} - {against.high:.2f}",
        "" if against is None else f"{against.sign_p:.1g}",
    )


def _arm_figures(name: str, samples: Sequence[Sample], against: Comparison | None) -> ArmFigures:
    answers = [answer for sample in samples for answer in sample.answers]
    num_passes = sum(len(answer.accept_lengths) for answer in answers)
    decode_seconds = sum(answer.seconds - answer.first_token_seconds for answer in answers)
    first = sorted(answer.first_token_seconds for answer in answers)
    is_alone = all(len(sample.answers) == 1 for sample in samples)
    categories = sorted({sample.category for sample in samples})
    by_category = {
        category: tau([n for s in samples if s.category == category for a in s.answers for n in a.accept_lengths])
        for category in categories
    }
    return ArmFigures(
        arm=name,
        tokens_per_second=sum(a.completion_tokens for a in answers) / sum(s.seconds for s in samples),
        tau=tau([n for answer in answers for n in answer.accept_lengths]) if num_passes else None,
        ms_per_pass=1000 * decode_seconds / num_passes if num_passes and is_alone else None,
        first_token_ms=1000 * first[len(first) // 2],
        tau_by_category={category: value for category, value in by_category.items() if not math.isnan(value)},
        comparison=against,
    )


def _suspicions(name: str, method: str | None, samples: Sequence[Sample]) -> list[str]:
    """Acceptance of exactly 0 or exactly everything is a bug until explained."""
    lengths = [n for sample in samples for answer in sample.answers for n in answer.accept_lengths]
    if method in (None, "ar") or not lengths:
        return []
    if set(lengths) == {1}:
        return [f"{name}: no draft token was ever accepted"]
    if len(lengths) > 10 and len(set(lengths)) == 1:
        return [f"{name}: every pass committed exactly {lengths[0]} tokens"]
    return []
