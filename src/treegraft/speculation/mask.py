"""Who sees whom among the rows of a verification, and where they sit. Knows nothing of the committed context,
which every row sees."""

import numpy as np
from numpy.typing import NDArray

from treegraft.speculation.tree import DraftTree


def ancestor_mask(tree: DraftTree) -> NDArray[np.bool_]:
    """bool [n + 1, n + 1]; row i may see column j. Row and column 0 are the root, i + 1 is node i.

    A row sees itself, its ancestors and the root; the root sees itself alone.
    """
    size = len(tree) + 1
    mask = np.zeros((size, size), np.bool_)
    mask[0, 0] = True
    for node, parent in enumerate(tree.parents.tolist()):
        mask[node + 1] = mask[parent + 1]
        mask[node + 1, node + 1] = True
    return mask


def node_positions(tree: DraftTree, length: int) -> NDArray[np.int64]:
    """int64 [n + 1], the rotary positions of root and nodes when `length` tokens have their K/V in the pool:
    the root sits at `length`, a node of depth d at `length + d` (by depth, not by row)."""
    return np.concatenate((np.zeros(1, np.int64), tree.depths)) + length
