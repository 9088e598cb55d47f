import itertools

import numpy as np
import pytest
import torch

from treegraft.kernels import noise, sampling
from treegraft.speculation import noise as oracle_noise
from treegraft.speculation import sampling as oracle

ROWS = list(itertools.product([0.0, 0.7, 1.9], [0, 1, 5, 10**6], [1.0, 0.9, 0.3], [0.0, 0.05, 1.0]))


def parameters(rows: list[tuple[float, int, float, float]]) -> tuple[torch.Tensor, ...]:
    columns = list(zip(*rows, strict=True))
    types = (torch.float32, torch.int64, torch.float32, torch.float32)
    return tuple(torch.tensor(column, dtype=dtype) for column, dtype in zip(columns, types, strict=True))


def random_logits(rows: int, vocab_size: int, spread: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(rows + vocab_size).normal(size=(rows, vocab_size)) * spread).astype(np.float32)


def assert_equal(logits: np.ndarray, rows: list[tuple[float, int, float, float]]) -> None:
    found = sampling.filtered_scores(torch.from_numpy(logits), *parameters(rows))
    assert found.dtype == torch.float32
    for i, row in enumerate(rows):
        np.testing.assert_array_equal(found[i].numpy(), oracle.filtered_scores(logits[i], *row), err_msg=str(row))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("vocab_size", [1, 2, 17, 400])
def test_mixed_rows_equal_the_oracle(vocab_size: int) -> None:
    assert_equal(random_logits(len(ROWS), vocab_size), ROWS)


@pytest.mark.usefixtures("path")
def test_ties_equal_the_oracle() -> None:
    assert_equal(np.round(random_logits(len(ROWS), 60)), ROWS)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("spread", [0.1, 4.0])
def test_top_p_in_a_vocabulary_longer_than_the_head(spread: float) -> None:
    rows = [(1.0, 0, 0.95, 0.0), (1.0, 0, 0.2, 0.0), (0.0, 0, 0.5, 0.0), (0.8, 3000, 0.999, 0.0)]
    assert_equal(random_logits(len(rows), 5000, spread), rows)


@pytest.mark.usefixtures("path")
def test_masked_tokens_stay_masked() -> None:
    logits = random_logits(len(ROWS), 40)
    logits[:, ::3] = -np.inf
    assert_equal(logits, ROWS)


def test_rows_do_not_look_at_one_another() -> None:
    logits = torch.from_numpy(random_logits(len(ROWS), 80))
    together = sampling.filtered_scores(logits, *parameters(ROWS))
    for i, row in enumerate(ROWS):
        alone = sampling.filtered_scores(logits[i : i + 1], *parameters([row]))
        assert torch.equal(together[i], alone[0]), row


def test_given_needs_equal_read_ones() -> None:
    logits = torch.from_numpy(random_logits(len(ROWS), 80))
    needs = sampling.FilterNeeds(max_top_k=80, has_top_p=True, has_min_p=True)
    expected = sampling.filtered_scores(logits, *parameters(ROWS))
    assert torch.equal(sampling.filtered_scores(logits, *parameters(ROWS), needs), expected)
    plain = [(0.5, 0, 1.0, 0.0)] * len(ROWS)
    assert torch.equal(sampling.filtered_scores(logits, *parameters(plain), needs), logits / 0.5)


@pytest.mark.parametrize(
    ("rows", "needs"),
    [
        ([], sampling.FilterNeeds(0, False, False)),
        ([(0.0, 9, 0.5, 0.5)], sampling.FilterNeeds(0, False, False)),
        ([(1.0, 0, 1.0, 0.0), (1.0, 3, 1.0, 0.0), (0.0, 9, 1.0, 0.0)], sampling.FilterNeeds(3, False, False)),
        ([(1.0, 0, 0.5, 0.0), (1.0, 0, 1.0, 0.1)], sampling.FilterNeeds(0, True, True)),
    ],
)
def test_needs_are_those_of_sampled_rows(
    rows: list[tuple[float, int, float, float]], needs: sampling.FilterNeeds
) -> None:
    tensors = parameters(rows) if rows else tuple(torch.zeros(0) for _ in range(4))
    assert sampling.FilterNeeds.read(*tensors) == needs


def test_choose_takes_the_lowest_id_of_ties() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    assert sampling.choose(scores, None).tolist() == [1, 0]


def test_chosen_tokens_equal_the_oracle_in_a_mixed_batch() -> None:
    vocab_size = 200
    logits = random_logits(len(ROWS), vocab_size)
    positions = torch.arange(len(ROWS))
    seeds, choices = positions * 7919, positions % 3
    scores = sampling.filtered_scores(torch.from_numpy(logits), *parameters(ROWS))
    is_sampled = parameters(ROWS)[0] > 0
    drawn = noise.gumbel(seeds, choices, positions, vocab_size) * is_sampled[:, None]
    found = sampling.choose(scores, drawn).tolist()
    for i, row in enumerate(ROWS):
        own = oracle_noise.gumbel(int(seeds[i]), int(choices[i]), i, vocab_size) if row[0] > 0 else None
        assert found[i] == oracle.choose(oracle.filtered_scores(logits[i], *row), own), row
