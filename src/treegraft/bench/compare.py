"""Is arm B faster than arm A? Paired ratios, their median, an interval, a sign test, and the noise beside them.

Pure functions over samples; knows no arm and no clock. Pairs are made within a unit and a repeat, so the two of a pair
ran next to each other. The interval resamples units (not single runs: repeats of a unit are no independent evidence).
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from treegraft.bench.record import Sample
from treegraft.errors import UsageError
from treegraft.records import Record

NUM_RESAMPLES = 10_000
LEVEL = 0.95
MIN_UNITS = 10
RESAMPLING_SEED = 0x7EE


class Comparison(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Throughput of `arm` over that of `baseline`, both in tokens/s with prefill.

    ratio: median over units of the unit's median ratio. low, high: 95 % bootstrap interval of it. sign_p: two-sided
    sign test over units. noise: median relative spread of one arm's repeats of one unit (None with one repeat).
    num_loops: units left out since a text ended in a loop. different_texts: units whose answers are not the same in
    both arms (None when the two count answers differently).
    """

    KIND: ClassVar[str] = "benchmark-comparison"
    VERSION: ClassVar[int] = 1

    arm: str
    baseline: str
    ratio: float
    low: float
    high: float
    sign_p: float
    num_units: int
    num_loops: int
    noise: float | None
    different_texts: tuple[str, ...]

    @property
    def is_underpowered(self) -> bool:
        """Too few units, or an interval that holds 1: nothing can be said about which is faster."""
        return self.num_units < MIN_UNITS or self.low <= 1.0 <= self.high


def compare(samples: Sequence[Sample], arm: str, baseline: str) -> Comparison:
    """Raises UsageError when an arm has no samples or the two share no unit without loops."""
    ours, theirs = _by_pair(samples, arm), _by_pair(samples, baseline)
    units = sorted({unit for unit, _ in ours} & {unit for unit, _ in theirs})
    looping = {s.unit for s in samples if s.arm in (arm, baseline) and s.is_loop}
    kept = [unit for unit in units if unit not in looping]
    if not kept:
        raise UsageError(f"arms {arm!r} and {baseline!r} have no unit in common that is free of loops")
    ratios = np.array([_unit_ratio(ours, theirs, unit) for unit in kept])
    low, high = bootstrap_interval(ratios)
    return Comparison(
        arm=arm,
        baseline=baseline,
        ratio=float(np.median(ratios)),
        low=low,
        high=high,
        sign_p=sign_test(int(np.sum(ratios > 1)), int(np.sum(ratios < 1))),
        num_units=len(kept),
        num_loops=len(set(units) & looping),
        noise=noise([s for s in samples if s.arm in (arm, baseline) and s.unit in kept]),
        different_texts=tuple(unit for unit in units if _texts(ours, unit) != _texts(theirs, unit)),
    )


def bootstrap_interval(ratios: np.ndarray) -> tuple[float, float]:
    """Percentile interval of the median of `ratios` float [n], by NUM_RESAMPLES resamplings with a fixed seed."""
    generator = np.random.default_rng(RESAMPLING_SEED)
    medians = np.median(generator.choice(ratios, (NUM_RESAMPLES, len(ratios))), axis=1)
    low, high = np.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def sign_test(num_above: int, num_below: int) -> float:
    """Two-sided p of so uneven a split of fair coin throws; ties are left out. 1 without any throw."""
    total = num_above + num_below
    if total == 0:
        return 1.0
    tail = sum(math.comb(total, k) for k in range(min(num_above, num_below) + 1))
    return min(1.0, float(tail / 2 ** (total - 1)))


def noise(samples: Sequence[Sample]) -> float | None:
    """How far repeats of the same arm on the same unit lie apart: (max - min) / median seconds, median over all."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for sample in samples:
        seconds.setdefault((sample.arm, sample.unit), []).append(sample.seconds)
    spreads = [(max(times) - min(times)) / float(np.median(times)) for times in seconds.values() if len(times) > 1]
    return float(np.median(spreads)) if spreads else None


def best_arm(samples: Sequence[Sample], candidates: Sequence[str], baseline: str) -> str:
    """The candidate with the highest ratio to the baseline; what tuning phases choose with."""
    return max(candidates, key=lambda name: compare(samples, name, baseline).ratio)


def _by_pair(samples: Sequence[Sample], arm: str) -> dict[tuple[str, int], Sample]:
    found = {(sample.unit, sample.repeat): sample for sample in samples if sample.arm == arm}
    if not found:
        known = ", ".join(sorted({sample.arm for sample in samples}))
        raise UsageError(f"no samples of an arm {arm!r}; this record has {known}")
    return found


def _unit_ratio(ours: dict[tuple[str, int], Sample], theirs: dict[tuple[str, int], Sample], unit: str) -> float:
    pairs = [key for key in ours if key[0] == unit and key in theirs]
    return float(np.median([ours[key].tokens_per_second / theirs[key].tokens_per_second for key in pairs]))


def _texts(samples: dict[tuple[str, int], Sample], unit: str) -> set[tuple[str, ...]]:
    return {tuple(a.content_hash for a in sample.answers) for (name, _), sample in samples.items() if name == unit}
