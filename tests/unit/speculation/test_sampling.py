import itertools

import numpy as np
import pytest
from scipy import stats

from treegraft.speculation.noise import gumbel
from treegraft.speculation.sampling import MIN_TEMPERATURE, choose, filtered_scores

PROBABILITIES = np.array([0.1, 0.4, 0.05, 0.25, 0.2])
LOGITS = np.log(PROBABILITIES).astype(np.float32)


def kept(logits: object = LOGITS, temperature: float = 1.0, **filters: float) -> list[int]:
    options = {"top_k": 0, "top_p": 1.0, "min_p": 0.0} | filters
    scores = filtered_scores(np.asarray(logits, np.float32), temperature, **options)  # type: ignore[arg-type]
    return np.flatnonzero(np.isfinite(scores)).tolist()


def test_without_filters_scores_are_logits_over_temperature() -> None:
    scores = filtered_scores(LOGITS, 0.5, 0, 1.0, 0.0)
    assert scores.dtype == np.float32
    np.testing.assert_array_equal(scores, LOGITS / np.float32(0.5))


def test_temperature_zero_leaves_the_logits_whatever_the_filters() -> None:
    np.testing.assert_array_equal(filtered_scores(LOGITS, 0.0, 1, 0.1, 1.0), LOGITS)


@pytest.mark.parametrize("temperature", [1e-30, 1e-320])
def test_a_tiny_temperature_neither_overflows_nor_becomes_zero(temperature: float) -> None:
    scores = filtered_scores(LOGITS, temperature, 0, 1.0, 0.0)
    np.testing.assert_array_equal(scores, LOGITS / np.float32(MIN_TEMPERATURE))


@pytest.mark.parametrize(
    ("top_k", "ids"), [(0, [0, 1, 2, 3, 4]), (1, [1]), (2, [1, 3]), (4, [0, 1, 3, 4]), (9, [0, 1, 2, 3, 4])]
)
def test_top_k(top_k: int, ids: list[int]) -> None:
    assert kept(top_k=top_k) == ids


def test_top_k_keeps_exactly_k_and_of_equal_scores_the_lowest_ids() -> None:
    assert kept([1.0, 2.0, 1.0, 1.0, 2.0], top_k=3) == [0, 1, 4]


@pytest.mark.parametrize(
    ("top_p", "ids"),
    [(1.0, [0, 1, 2, 3, 4]), (0.9, [0, 1, 3, 4]), (0.8, [1, 3, 4]), (0.4, [1]), (0.41, [1, 3]), (1e-9, [1])],
)
def test_top_p_is_the_shortest_prefix_that_reaches_the_mass(top_p: float, ids: list[int]) -> None:
    assert kept(top_p=top_p) == ids


def test_top_p_of_equal_scores_takes_the_lowest_ids() -> None:
    assert kept([0.0] * 10, top_p=0.3) == [0, 1, 2]


@pytest.mark.parametrize(("min_p", "ids"), [(0.0, [0, 1, 2, 3, 4]), (0.5, [1, 3, 4]), (0.25, [0, 1, 3, 4]), (1.0, [1])])
def test_min_p_is_relative_to_the_best(min_p: float, ids: list[int]) -> None:
    assert kept(min_p=min_p) == ids


def test_top_p_counts_what_top_k_left() -> None:
    # 0.4 / (0.4 + 0.25) is 0.615: enough after top-k, not before it
    assert kept(top_k=2, top_p=0.6) == [1]
    assert kept(top_p=0.6) == [1, 3]


def test_filters_work_on_the_tempered_distribution() -> None:
    # at T = 0.5 the probabilities are squared: 0.16 / 0.275 is 0.582
    assert kept(temperature=0.5, top_p=0.58) == [1]
    assert kept(top_p=0.58) == [1, 3]


def test_masked_tokens_stay_masked() -> None:
    logits = np.array([0.0, -np.inf, 1.0, -np.inf], np.float32)
    assert kept(logits, top_k=3, top_p=0.999, min_p=0.01) == [0, 2]


def test_ties_go_to_the_lowest_id() -> None:
    assert choose(np.array([1.0, 3.0, 3.0], np.float32), None) == 1


COMBINATIONS = [
    (1.0, 0, 1.0, 0.0),
    (0.7, 0, 1.0, 0.0),
    (1.7, 3, 1.0, 0.0),
    (1.0, 0, 0.8, 0.0),
    (1.3, 4, 0.9, 0.3),
    (1.0, 0, 1.0, 0.3),
]


@pytest.mark.parametrize(("temperature", "top_k", "top_p", "min_p"), COMBINATIONS)
def test_sampling_is_exact(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    scores = filtered_scores(LOGITS, temperature, top_k, top_p, min_p)
    weights = PROBABILITIES ** (1 / temperature) * np.isfinite(scores)
    expected = weights / weights.sum()
    counts = np.zeros(len(LOGITS))
    for seed, position in itertools.product(range(100), range(60)):
        counts[choose(scores, gumbel(seed, 0, position, len(LOGITS)))] += 1
    assert not counts[expected == 0].any()
    alive = expected > 0
    assert stats.chisquare(counts[alive], expected[alive] * counts.sum()).pvalue > 1e-3
