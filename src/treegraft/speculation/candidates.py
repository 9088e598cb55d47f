"""The best k candidates of each draft position with their log-probabilities: what trees are built from.

Knows no sampling parameters: at T > 0 `scores` have been through `sampling.filtered_scores`. The oracle of
kernels.candidates.
"""

import numpy as np
from numpy.typing import NDArray


def candidates(
    scores: NDArray[np.floating], k: int, noise: NDArray[np.floating] | None = None, scale: float = 1.0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(log_probs float32 [rows, k], ids int64 [rows, k]) of scores [rows, vocab], best first, ties to the
    lowest id.

    log_probs are log_softmax(scores), or log_softmax((scores + noise) / scale) where the noise is known with
    which the target will choose: the tree then leans to what that draw will be. noise: [rows, vocab], scale >
    0. NaN scores count as -inf; a row without a finite score, or with +inf in it, has no candidate (all
    -inf). Fewer than k columns come back when the vocabulary is smaller.
    """
    assert k >= 0
    assert scale > 0
    work = np.asarray(scores, np.float64)
    if noise is not None:
        work = (work + noise) / scale
    work = np.where(np.isnan(work), -np.inf, work)
    ids = np.argsort(-work, axis=-1, kind="stable")[:, :k]
    best = work.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = best + np.log(np.exp(work - best).sum(axis=-1, keepdims=True))
        log_probs = np.take_along_axis(work, ids, axis=-1) - total
    log_probs = np.where(np.isnan(log_probs), -np.inf, np.minimum(log_probs, 0.0))
    return log_probs.astype(np.float32), ids.astype(np.int64)
