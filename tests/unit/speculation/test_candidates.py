import numpy as np
import pytest

from treegraft.speculation.build import build_tree
from treegraft.speculation.candidates import candidates


def test_best_first_with_normalised_log_probs() -> None:
    probabilities = np.array([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]])
    log_probs, ids = candidates(np.log(probabilities) + 5.0, 2)
    assert ids.tolist() == [[1, 2], [0, 2]]
    assert ids.dtype == np.int64
    assert log_probs.dtype == np.float32
    np.testing.assert_allclose(np.exp(log_probs), [[0.6, 0.3], [0.5, 0.3]], rtol=1e-6)


def test_ties_go_to_the_lowest_id() -> None:
    assert candidates(np.array([[1.0, 2.0, 2.0, 1.0, 2.0]]), 4)[1].tolist() == [[1, 2, 4, 0]]


def test_noise_is_added_before_the_softmax_and_scaled() -> None:
    scores, noise = np.array([[0.0, 1.0, 2.0]]), np.array([[5.0, 0.0, -1.0]])
    log_probs, ids = candidates(scores, 3, noise, scale=2.0)
    assert ids.tolist() == [[0, 1, 2]]
    raw = np.array([2.5, 0.5, 0.5])
    np.testing.assert_allclose(log_probs[0], raw - np.log(np.exp(raw).sum()), rtol=1e-6)


def test_more_candidates_than_tokens_gives_all_tokens() -> None:
    assert candidates(np.zeros((2, 3)), 9)[1].shape == (2, 3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("broken", [[np.nan] * 3, [-np.inf] * 3, [1.0, np.inf, 0.0]])
def test_a_row_without_a_distribution_has_no_candidate(broken: list[float]) -> None:
    log_probs, ids = candidates(np.array([broken, [0.0, 1.0, 2.0]]), 3)
    assert np.all(log_probs[0] == -np.inf)
    assert np.all(np.isfinite(log_probs[1]))
    assert build_tree(log_probs[:1], ids[:1], 3).token_ids.tolist() == []


def test_nan_counts_as_impossible() -> None:
    log_probs, ids = candidates(np.array([[np.nan, 0.0, 1.0]]), 3)
    assert ids[0, :2].tolist() == [2, 1]
    assert log_probs[0, 2] == -np.inf
    assert np.exp(log_probs[0, :2]).sum() == pytest.approx(1.0)
