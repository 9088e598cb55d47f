"""What scores the children of a path: the seam between drafters and the tree. Knows no budget and no heap.

A scorer answers for one path at a time with ids and log-probabilities of the children; the builder adds them
up.
"""

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treegraft.errors import UsageError

NO_IDS = np.empty(0, np.int64)
NO_LOG_PROBS = np.empty(0, np.float32)


class Scorer(Protocol):
    def children(self, path: tuple[int, ...]) -> tuple[ArrayLike, ArrayLike]:
        """(ids int [k], log_probs float [k]) of the candidates below `path`, the token ids from depth 1 down.

        k may differ from call to call and may be 0. Log-probabilities are <= 0; NaN and -inf mark what is no
        candidate. Asked once for each node that enters the tree and may have children.
        """
        ...


class Marginals:
    """One distribution per depth, whatever the path: what a single block pass of a drafter gives.

    log_probs: float [depth, candidates]; token_ids: int of the same shape.
    """

    def __init__(self, log_probs: ArrayLike, token_ids: ArrayLike) -> None:
        self._log_probs = np.asarray(log_probs)
        self._token_ids = np.asarray(token_ids)
        if self._log_probs.ndim != 2 or self._log_probs.shape != self._token_ids.shape:
            raise UsageError(
                f"marginals have shapes {self._log_probs.shape} and {self._token_ids.shape}; "
                "expected log_probs and token_ids of one shape [depth, candidates]"
            )

    def children(self, path: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        depth = len(path)
        if depth >= len(self._log_probs):
            return NO_IDS, NO_LOG_PROBS
        return self._token_ids[depth], self._log_probs[depth]


class PairwiseScorer:
    """Each depth conditioned on the token above it: log p(x_d | x_{d-1}) over the candidates of both depths.

    root_log_probs: float [K], for the children of the root. tables: float [depth - 1, K, K], where tables[d,
    i, j] is the log-probability of candidate j at depth d + 2 below candidate i at depth d + 1. token_ids:
    int [depth, K]. Where one depth lists an id twice, its first column speaks for it.
    """

    def __init__(self, root_log_probs: ArrayLike, tables: ArrayLike, token_ids: ArrayLike) -> None:
        self._root = np.asarray(root_log_probs)
        self._tables = np.asarray(tables)
        self._token_ids = np.asarray(token_ids)
        if self._token_ids.ndim != 2 or self._token_ids.shape[0] == 0:
            raise UsageError(f"token_ids has shape {self._token_ids.shape}; expected [depth >= 1, K]")
        depth, width = self._token_ids.shape
        if self._root.shape != (width,) or self._tables.shape != (depth - 1, width, width):
            raise UsageError(
                f"root_log_probs has shape {self._root.shape} and tables {self._tables.shape}; "
                f"expected ({width},) and ({depth - 1}, {width}, {width}) to go with token_ids {self._token_ids.shape}"
            )
        # reversed: of equal ids the lowest column is written last and stays
        self._ranks: list[dict[int, int]] = [
            {token: rank for rank, token in reversed(list(enumerate(row)))} for row in self._token_ids[:-1].tolist()
        ]

    def children(self, path: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        depth = len(path)
        if depth == 0:
            return self._token_ids[0], self._root
        if depth >= len(self._token_ids):
            return NO_IDS, NO_LOG_PROBS
        rank = self._ranks[depth - 1].get(path[-1])
        if rank is None:
            raise UsageError(f"token {path[-1]} is no candidate at depth {depth}; expected a path of this scorer's own")
        return self._token_ids[depth], self._tables[depth - 1, rank]
