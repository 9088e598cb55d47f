"""Where texts repeat themselves: small models at T = 0 fall into loops, which teach nothing and flatter every average.

Works on token ids on any device. Shape suffixes: B rows, T positions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

MAX_PERIOD = 48
MIN_REPEAT = 24


def repeat_length(period: int) -> int:
    """Tokens that must equal those one period before: two more periods, and at least MIN_REPEAT."""
    return max(2 * period, MIN_REPEAT)


WINDOW = MAX_PERIOD + repeat_length(MAX_PERIOD)
"""How many of the last tokens tell whether a row is looping now."""


def is_looping(tokens: Tensor) -> Tensor:
    """bool [B]: the rows of tokens [B, T] that repeat themselves at their end."""
    looping = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for period in range(1, MAX_PERIOD + 1):
        length = repeat_length(period)
        if tokens.shape[1] >= length + period:
            looping |= (tokens[:, -length:] == tokens[:, -length - period : -period]).all(1)
    return looping


def loop_mask(tokens: Tensor) -> Tensor:
    """bool [B, T]: tokens that belong to a loop, from its first repetition on."""
    B, T = tokens.shape
    mask = torch.zeros((B, T), dtype=torch.bool, device=tokens.device)
    for period in range(1, MAX_PERIOD + 1):
        length = repeat_length(period)
        if length + period > T:
            continue
        equal = (tokens[:, period:] == tokens[:, :-period]).float()[:, None]
        # A window of `length` equal tokens marks all of them: its least value, spread back over the window.
        full = -F.max_pool1d(-equal, length, stride=1)
        spread = F.max_pool1d(F.pad(full, (length - 1, length - 1)), length, stride=1)
        mask[:, period:] |= spread[:, 0] > 0.5
    return mask
