"""Ratios, intervals and tests on samples whose answer is known."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from treegraft.bench.compare import best_arm, bootstrap_interval, compare, noise, sign_test
from treegraft.bench.record import Sample
from treegraft.errors import UsageError

MakeSample = Callable[..., Sample]


def pairs(make: MakeSample, ratios: list[float], base_seconds: float = 1.0) -> list[Sample]:
    """Arm b is ratios[i] times as fast as arm a on unit i."""
    return [
        sample
        for i, ratio in enumerate(ratios)
        for sample in (make("a", f"u{i}", base_seconds), make("b", f"u{i}", base_seconds / ratio))
    ]


def test_ratio_is_the_median_over_units(make_sample: MakeSample) -> None:
    result = compare(pairs(make_sample, [1.5] * 6 + [2.0] + [100.0] * 2 + [0.5] * 2), "b", "a")
    assert result.ratio == pytest.approx(1.5)
    assert result.num_units == 11
    assert result.noise is None


def test_a_clear_win_is_not_underpowered_and_a_tie_is(make_sample: MakeSample) -> None:
    win = compare(pairs(make_sample, [1.4, 1.5, 1.6] * 5), "b", "a")
    assert win.low > 1.3
    assert win.high < 1.7
    assert win.sign_p < 0.001
    assert not win.is_underpowered
    tie = compare(pairs(make_sample, [0.9, 1.0, 1.1] * 5), "b", "a")
    assert tie.low <= 1 <= tie.high
    assert tie.is_underpowered


def test_few_units_are_underpowered_however_clear(make_sample: MakeSample) -> None:
    assert compare(pairs(make_sample, [3.0] * 9), "b", "a").is_underpowered
    assert not compare(pairs(make_sample, [3.0] * 10), "b", "a").is_underpowered


def test_repeats_are_one_piece_of_evidence(make_sample: MakeSample) -> None:
    """Ten repeats of one unit count as one unit, by their median."""
    samples = []
    for repeat, ratio in enumerate([2.0] * 9 + [50.0]):
        samples += [make_sample("a", "u", 1.0, repeat), make_sample("b", "u", 1.0 / ratio, repeat)]
    result = compare(samples, "b", "a")
    assert (result.num_units, result.ratio) == (1, pytest.approx(2.0))


def test_pairs_are_made_within_a_repeat(make_sample: MakeSample) -> None:
    """A machine that slows down between repeats changes both of a pair, not their ratio."""
    samples = []
    for repeat, slowness in enumerate([1.0, 4.0, 9.0]):
        samples += [make_sample("a", "u", slowness, repeat), make_sample("b", "u", slowness / 2, repeat)]
    assert compare(samples, "b", "a").ratio == pytest.approx(2.0)


def test_loops_are_left_out_and_counted_whichever_arm_ran_into_them(make_sample: MakeSample) -> None:
    samples = [*pairs(make_sample, [2.0, 2.0]), make_sample("a", "x", 1.0), make_sample("b", "x", 0.01, is_loop=True)]
    result = compare(samples, "b", "a")
    assert (result.ratio, result.num_units, result.num_loops) == (pytest.approx(2.0), 2, 1)


def test_different_texts_are_named(make_sample: MakeSample) -> None:
    samples = [*pairs(make_sample, [2.0]), make_sample("a", "x", 1.0, text="p"), make_sample("b", "x", 1.0, text="q")]
    assert compare(samples, "b", "a").different_texts == ("x",)


def test_ratio_counts_tokens_not_only_seconds(make_sample: MakeSample) -> None:
    samples = [make_sample("a", "u", 1.0, tokens=10), make_sample("b", "u", 1.0, tokens=30)]
    assert compare(samples, "b", "a").ratio == pytest.approx(3.0)


def test_unknown_arm_and_nothing_in_common(make_sample: MakeSample) -> None:
    with pytest.raises(UsageError, match="no samples of an arm 'c'; this record has a, b"):
        compare(pairs(make_sample, [1.0]), "c", "a")
    with pytest.raises(UsageError, match="no unit in common"):
        compare([make_sample("a", "u", 1.0), make_sample("b", "v", 1.0)], "b", "a")


def test_bootstrap_interval_covers_as_often_as_it_says() -> None:
    """Of many small data sets with a true median of 1.3, about 95 % of the intervals hold it."""
    generator = np.random.default_rng(5)
    held = 0
    for _ in range(120):
        low, high = bootstrap_interval(1.3 * np.exp(generator.normal(0, 0.2, 15)))
        held += low <= 1.3 <= high
    assert held >= 105


@pytest.mark.parametrize(
    ("above", "below", "expected"),
    [(0, 0, 1.0), (5, 0, 2 / 32), (0, 10, 2 / 1024), (8, 2, 2 * (1 + 10 + 45) / 1024), (3, 3, 1.0)],
)
def test_sign_test_against_the_binomial(above: int, below: int, expected: float) -> None:
    assert math.isclose(sign_test(above, below), expected)


def test_noise_is_the_spread_of_repeats(make_sample: MakeSample) -> None:
    assert noise([make_sample("a", "u", 1.0), make_sample("a", "v", 9.0)]) is None
    assert noise([make_sample("a", "u", s, r) for r, s in enumerate([1.0, 1.1, 1.2])]) == pytest.approx(0.2 / 1.1)


def test_best_arm(make_sample: MakeSample) -> None:
    samples = [make_sample("ar", "u", 1.0), make_sample("x 4", "u", 0.8), make_sample("x 8", "u", 0.5)]
    assert best_arm(samples, ["x 4", "x 8"], "ar") == "x 8"
