"""Known answers of Philox4x32-10 are those published with Random123 (kat_vectors)."""

import numpy as np
import pytest
from scipy import stats

from treegraft.speculation import noise

VOCAB = 4096


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_known_answers(counter: list[int], key: list[int], expected: list[int]) -> None:
    result = noise.philox4x32(np.array(counter, np.uint32), np.array(key, np.uint32))
    assert result.dtype == np.uint32
    assert result.tolist() == expected


def test_batched_counters_equal_single_ones() -> None:
    counters = np.random.default_rng(0).integers(0, 2**32, (3, 5, 4), np.uint32)
    keys = np.random.default_rng(1).integers(0, 2**32, (3, 1, 2), np.uint32)
    batched = noise.philox4x32(counters, keys)
    assert batched.shape == (3, 5, 4)
    assert batched[2, 3].tolist() == noise.philox4x32(counters[2, 3], keys[2, 0]).tolist()


def test_cells_are_laid_out_as_documented() -> None:
    seed, choice, position = 0x1122334455667788, 3, 77
    cells = noise.cells(seed, choice, position, 23)
    for token_id in (0, 1, 6, 22):
        counter = np.array([token_id >> 2, position, choice, 0], np.uint32)
        key = np.array([0x55667788, 0x11223344], np.uint32)
        assert cells[token_id] == noise.philox4x32(counter, key)[token_id & 3]


@pytest.mark.parametrize("vocab_size", [1, 4, 5, 49153])
def test_a_token_has_its_noise_whatever_the_vocabulary(vocab_size: int) -> None:
    values = noise.gumbel(1, 0, 5, vocab_size)
    assert values.shape == (vocab_size,)
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, noise.gumbel(1, 0, 5, 50000)[:vocab_size])


def test_extreme_cells_give_finite_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "cells", lambda *_: np.array([0, 2**32 - 1], np.uint32))
    low, high = noise.gumbel(0, 0, 0, 2)
    assert low == pytest.approx(-np.log(33 * np.log(2)))
    assert high == pytest.approx(33 * np.log(2))


def test_cells_are_uniform() -> None:
    cells = np.concatenate([noise.cells(7, 0, position, VOCAB) for position in range(64)])
    assert stats.kstest(cells / 2.0**32, "uniform").pvalue > 1e-3
    for shift in (0, 8, 16, 24):
        counts = np.bincount((cells >> shift) & 0xFF, minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-3


def test_noise_is_standard_gumbel() -> None:
    values = np.concatenate([noise.gumbel(11, 0, position, VOCAB) for position in range(32)])
    assert stats.kstest(values, "gumbel_r").pvalue > 1e-3


def cells_of(seed: int = 5, choice: int = 0, position: int = 9) -> np.ndarray:
    return np.concatenate([noise.cells(seed, choice, position + 1000 * i, VOCAB) for i in range(16)])


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("seed", cells_of(seed=6)),
        ("seed, high half", cells_of(seed=5 + 2**32)),
        ("choice", cells_of(choice=1)),
        ("position", cells_of(position=10)),
        ("next token", np.roll(cells_of(), 1)),
        ("next group", np.roll(cells_of(), 4)),
    ],
)
def test_neighbours_are_independent(name: str, other: np.ndarray) -> None:
    own = cells_of()
    assert not np.any(own == other), name
    pairs = np.zeros((16, 16))
    np.add.at(pairs, (own >> 28, other >> 28), 1)
    assert stats.chisquare(pairs.ravel()).pvalue > 1e-3, name


def test_choice_and_position_do_not_stand_for_each_other() -> None:
    assert not np.array_equal(noise.cells(5, 3, 8, 64), noise.cells(5, 8, 3, 64))


@pytest.mark.parametrize("key", [(-1, 0, 0), (2**64, 0, 0), (0, 2**32, 0), (0, 0, -1)])
def test_a_key_outside_its_range_is_our_own_mistake(key: tuple[int, int, int]) -> None:
    with pytest.raises(AssertionError):
        noise.cells(*key, 8)
