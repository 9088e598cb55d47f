"""Gumbel noise as a function of (seed, choice, position, token id): the same text again, whatever the method
or batch.

Counter-based: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Holds no
state and knows no logits. `kernels.noise` is the twin on the device.

    counter = (token id >> 2, position, choice, 0)    key = (seed low, seed high)    lane = token id & 3
    u = (cell + 0.5) / 2^32    g = -log(-log(u))
"""

import numpy as np
from numpy.typing import NDArray

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(counter: NDArray[np.uint32], key: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Ten rounds. counter: uint32 [..., 4]; key: uint32 [..., 2], broadcast against it. Returns uint32 [...,
    4]."""
    words = np.moveaxis(np.asarray(counter, np.uint32).astype(np.uint64), -1, 0)
    keys = np.moveaxis(np.asarray(key, np.uint32).astype(np.uint64), -1, 0)
    return np.stack(np.broadcast_arrays(*_rounds(*words, *keys)), axis=-1).astype(np.uint32)


def _rounds(
    a: NDArray[np.uint64],
    b: NDArray[np.uint64],
    c: NDArray[np.uint64],
    d: NDArray[np.uint64],
    key_low: NDArray[np.uint64],
    key_high: NDArray[np.uint64],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Philox on 32-bit words held in uint64, so that a product keeps its high half."""
    for _ in range(ROUNDS):
        product_a = a * np.uint64(MULTIPLIERS[0])
        product_c = c * np.uint64(MULTIPLIERS[1])
        a, b, c, d = (
            (product_c >> _HALF) ^ b ^ key_low,
            product_c & _LOW,
            (product_a >> _HALF) ^ d ^ key_high,
            product_a & _LOW,
        )
        key_low = (key_low + np.uint64(KEY_STEPS[0])) & _LOW
        key_high = (key_high + np.uint64(KEY_STEPS[1])) & _LOW
    return a, b, c, d


def cells(seed: int, choice: int, position: int, vocab_size: int) -> NDArray[np.uint32]:
    """The random word of each token id, uint32 [vocab_size]. seed in [0, 2^64); choice and position in [0,
    2^32)."""
    assert 0 <= seed < 2**64
    assert 0 <= choice < 2**32
    assert 0 <= position < 2**32
    groups = np.arange((vocab_size + 3) // 4, dtype=np.uint64)
    fixed = (np.uint64(word) for word in (position, choice, 0, seed & 0xFFFFFFFF, seed >> 32))
    lanes = _rounds(groups, *(np.asarray(word) for word in fixed))
    return np.stack(np.broadcast_arrays(*lanes), axis=-1).astype(np.uint32).reshape(-1)[:vocab_size]


def gumbel(seed: int, choice: int, position: int, vocab_size: int) -> NDArray[np.float64]:
    """Standard Gumbel noise of every token id at one position, float64 [vocab_size].

    position: absolute place in the text of the token to be chosen, prompt included. choice: index of the
    completion among those of one request.
    """
    u = (cells(seed, choice, position, vocab_size).astype(np.float64) + 0.5) * 2.0**-32
    return -np.log(-np.log(u))
