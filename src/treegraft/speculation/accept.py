"""Acceptance: the longest path of the tree that the target itself would have written. Lives once; knows no
sampling (the target's tokens come in chosen) and no slots."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treegraft.errors import UsageError
from treegraft.speculation.tree import DraftTree


@dataclass(frozen=True, eq=False)
class Acceptance:
    """path: int64 [m], accepted node indices from depth 1 down (m may be 0). bonus: the target's token after
    them."""

    path: NDArray[np.int64]
    bonus: int

    def tokens(self, tree: DraftTree) -> NDArray[np.int64]:
        """The ids to commit, int64 [m + 1]: the accepted nodes' tokens, then the bonus token."""
        return np.append(tree.token_ids[self.path], np.int64(self.bonus))


def accept(tree: DraftTree, target_tokens: ArrayLike) -> Acceptance:
    """Walk from the root: where the target's token is among the children, step down; else it is the bonus and
    ends it.

    target_tokens: int [n + 1], the token that the target chooses after the root (entry 0) and after node i
    (entry i + 1). Of children with equal ids the first in order of emission is taken.
    Raises UsageError when target_tokens is not one integer for each row.
    """
    targets = np.asarray(target_tokens)
    if targets.shape != (len(tree) + 1,) or targets.dtype.kind not in "iu":
        raise UsageError(
            f"target_tokens has shape {targets.shape} and type {targets.dtype}; "
            f"expected {len(tree) + 1} integers, one for the root and each of {len(tree)} nodes"
        )
    wanted = targets.tolist()
    path: list[int] = []
    at = -1
    # one pass is enough: children stand after their parent
    for node, (token, parent) in enumerate(zip(tree.token_ids.tolist(), tree.parents.tolist(), strict=True)):
        if parent == at and token == wanted[at + 1]:
            path.append(node)
            at = node
    return Acceptance(np.array(path, np.int64), wanted[at + 1])
