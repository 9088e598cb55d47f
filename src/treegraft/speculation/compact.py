"""After acceptance: which slots of a verification become context and which are free again. Moves no K/V.

    rows      0      1    2    3    4         (root, node 0, node 1, node 2, node 3)
    slots    [40]   [41] [42] [57] [58]
    accepted  root        node 1    node 3    path = [1, 3]
    kept     [40]        [42]      [58]       in path order: the sequence's slot table grows by these
    freed          [41]       [57]            the caller's again (engine.kv_slots)

The bonus token has no K/V yet: it is the next round's root and gets its slot there.
"""

import numpy as np
from numpy.typing import NDArray

from treegraft.errors import UsageError
from treegraft.speculation.accept import Acceptance


def split_slots(row_slots: NDArray[np.int64], acceptance: Acceptance) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(kept int64 [m + 1], freed int64 [n - m]) of row_slots int64 [n + 1]: root and accepted path first to
    last, and the slots of all other rows in row order. Raises UsageError when the accepted path does not fit
    the rows."""
    slots = np.asarray(row_slots, np.int64)
    path = acceptance.path
    if slots.ndim != 1 or len(slots) == 0 or (len(path) and int(path.max()) + 1 >= len(slots)):
        raise UsageError(
            f"row_slots has shape {slots.shape}; expected one slot for the root and each node "
            f"(accepted: {path.tolist()})"
        )
    rows = np.concatenate((np.zeros(1, np.int64), path + 1))
    is_freed = np.ones(len(slots), np.bool_)
    is_freed[rows] = False
    return slots[rows], slots[is_freed]
