"""What accept lengths say, and whether a text has run into a loop. Knows no clock and no engine."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# A tail is a loop when a pattern of at most MAX_PERIOD tokens fills at least MIN_LOOP_TOKENS of it,
# MIN_REPEATS times.
MAX_PERIOD = 64
MIN_REPEATS = 4
MIN_LOOP_TOKENS = 32


def tau(accept_lengths: Sequence[int]) -> float:
    """Acceptance length: tokens committed per target pass, the bonus token included (AR = 1); nan without a
    pass."""
    return sum(accept_lengths) / len(accept_lengths) if accept_lengths else math.nan


def acceptance_by_depth(accept_lengths: Sequence[int], max_depth: int) -> NDArray[np.float64]:
    """float64 [max_depth]; entry d - 1 is the share of rounds, among those that had accepted a node at depth
    d - 1 (the root for d = 1), that accepted one at depth d too; nan where no round came so far.

    accept_lengths: as for `tau`; a round of length a accepted a - 1 nodes.
    """
    accepted = np.asarray(accept_lengths, np.int64) - 1
    num_reached = np.array([np.count_nonzero(accepted >= depth) for depth in range(max_depth + 1)], np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return num_reached[1:] / num_reached[:-1]


def is_loop(token_ids: Sequence[int]) -> bool:
    """Has the text ended in a repetition: a pattern of 1 to 64 tokens, at least 4 times in a row and over at
    least 32 tokens, at its very end? Loops that count or vary are not seen.

    Speculation looks too good on loops; measurements leave them out of averages and count them.
    """
    ids = np.asarray(token_ids, np.int64)
    for period in range(1, min(MAX_PERIOD, len(ids) // MIN_REPEATS) + 1):
        span = max(MIN_LOOP_TOKENS, MIN_REPEATS * period)
        if span <= len(ids) and np.array_equal(ids[-span:-period], ids[len(ids) - span + period :]):
            return True
    return False
