import numpy as np
import pytest
import torch

from treegraft.kernels import candidates as kernel
from treegraft.speculation import candidates as oracle

pytestmark = pytest.mark.usefixtures("path")


def assert_equal(scores: np.ndarray, k: int, noise: np.ndarray | None = None, scale: float = 1.0) -> None:
    log_probs, ids = kernel.candidates(
        torch.from_numpy(scores), k, None if noise is None else torch.from_numpy(noise), scale
    )
    expected, expected_ids = oracle.candidates(scores, k, noise, scale)
    assert log_probs.dtype == torch.float32
    assert ids.dtype == torch.int64
    np.testing.assert_array_equal(ids.numpy(), expected_ids)
    np.testing.assert_allclose(log_probs.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert bool((log_probs <= 0).all())


def random_scores(rows: int, vocab_size: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(rows, vocab_size)) * 3).astype(np.float32)


@pytest.mark.parametrize("k", [1, 7, 64, 299, 300, 400])
def test_equal_the_oracle(k: int) -> None:
    assert_equal(random_scores(5, 300), k)


@pytest.mark.parametrize("k", [1, 7, 64, 300])
def test_ties_go_to_the_lowest_id(k: int) -> None:
    assert_equal(np.round(random_scores(5, 300)), k)


def test_zeros_of_either_sign_tie() -> None:
    assert_equal(np.array([[-0.0, 0.0, -0.0, -1.0]], np.float32), 3)


@pytest.mark.parametrize("scale", [1.0, 0.5, 2.0])
def test_with_noise(scale: float) -> None:
    noise = np.random.default_rng(1).gumbel(size=(5, 300)).astype(np.float32)
    assert_equal(random_scores(5, 300), 16, noise, scale)


def test_filtered_tokens_come_last_without_probability() -> None:
    scores = random_scores(4, 50)
    scores[:, 5:] = -np.inf
    assert_equal(scores, 8)


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_broken_values_cost_their_own_row_at_most(broken: float) -> None:
    scores = random_scores(3, 40)
    scores[1, 7] = broken
    log_probs, ids = kernel.candidates(torch.from_numpy(scores), 6)
    expected, expected_ids = oracle.candidates(scores, 6)
    alive = np.isfinite(expected)
    np.testing.assert_array_equal(np.isfinite(log_probs.numpy()), alive)
    np.testing.assert_array_equal(ids.numpy()[alive], expected_ids[alive])


def test_a_row_of_nan_has_no_candidate() -> None:
    log_probs, _ = kernel.candidates(torch.full((2, 10), torch.nan), 4)
    assert bool((log_probs == -torch.inf).all())


def test_lower_precision_is_read_as_float32() -> None:
    scores = torch.from_numpy(random_scores(2, 40)).bfloat16()
    log_probs, ids = kernel.candidates(scores, 5)
    expected, expected_ids = kernel.candidates(scores.float(), 5)
    assert ids.tolist() == expected_ids.tolist()
    assert log_probs.tolist() == expected.tolist()
