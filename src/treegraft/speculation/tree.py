"""The draft tree as data. Knows nothing of how it is built, verified or accepted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class DraftTree:
    """Candidate continuations of the last committed token (the root, which is not a node).

    Nodes stand in the order of emission, so a parent comes before its children and heavier nodes before
    lighter ones.

    token_ids: int64 [n]. parents: int64 [n], index of the parent node or -1 for the root. depths: int64 [n],
    1 for children of the root. log_probs: float32 [n], sums along the path from the root.
    The arrays are read-only.
    """

    token_ids: NDArray[np.int64]
    parents: NDArray[np.int64]
    depths: NDArray[np.int64]
    log_probs: NDArray[np.float32]

    def __post_init__(self) -> None:
        assert self.token_ids.shape == self.parents.shape == self.depths.shape == self.log_probs.shape
        for array in (self.token_ids, self.parents, self.depths, self.log_probs):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.token_ids)

    def path(self, node: int) -> tuple[int, ...]:
        """Token ids from depth 1 down to `node`, both included; the empty path for the root (-1)."""
        tokens: list[int] = []
        while node >= 0:
            tokens.append(int(self.token_ids[node]))
            node = int(self.parents[node])
        return tuple(reversed(tokens))

    def children(self, node: int) -> NDArray[np.int64]:
        """Indices of the children of `node` (-1: the root), in order of emission."""
        return np.flatnonzero(self.parents == node)
