"""From logits to one token: temperature, filters, Gumbel argmax. The oracle of kernels.sampling, one row at a
time.

Order, as the field has it: / T, then top-k, then top-p on what is left (renormalised), then min-p on what is
left. Penalties, logit bias and grammar masks come before this. Logits are finite or -inf; the engine refuses
NaN.
"""

import numpy as np
from numpy.typing import NDArray

# Below it logits / T would overflow; at it only exact ties are still decided by noise.
MIN_TEMPERATURE = 1e-6
# Slack of the top-p and min-p comparisons, so that a mass equal to p on paper counts as equal after rounding.
FILTER_SLACK = 1e-6


def filtered_scores(
    logits: NDArray[np.floating], temperature: float, top_k: int, top_p: float, min_p: float
) -> NDArray[np.float32]:
    """Scores whose softmax is the distribution to sample from, float32 [vocab]: logits / T, -inf where
    filtered.

    temperature 0: the logits unchanged (argmax needs no filter); above 0 at least MIN_TEMPERATURE is used.
    top_k: exactly the k best stay, of equal ones the lowest ids; 0: off. top_p: the shortest prefix of the
    sorted distribution whose mass reaches p, at least one token; 1: off. min_p: tokens with at least min_p
    times the best one's probability stay; 0: off. Masses are summed in float64 and compared with
    FILTER_SLACK.
    """
    scores = np.asarray(logits, np.float32)
    if temperature == 0:
        return scores.copy()
    scores = scores / np.float32(max(temperature, MIN_TEMPERATURE))
    if 0 < top_k < len(scores):
        scores = _keep_first(scores, top_k)
    if top_p < 1:
        sorted_scores = np.sort(scores)[::-1].astype(np.float64)
        probabilities = np.exp(sorted_scores - sorted_scores[0])
        mass = np.cumsum(probabilities) / probabilities.sum()
        scores = _keep_first(scores, int(np.count_nonzero(mass < top_p - FILTER_SLACK)) + 1)
    if min_p > 0:
        lowest = np.float64(scores.max()) + np.log(min_p) - FILTER_SLACK
        scores = np.where(scores >= lowest, scores, np.float32(-np.inf))
    return scores


def _keep_first(scores: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """-inf for all but the first `count` in the order (score descending, id ascending)."""
    kept = np.argsort(-scores, kind="stable")[:count]
    result = np.full_like(scores, -np.inf)
    result[kept] = scores[kept]
    return result


def choose(scores: NDArray[np.floating], noise: NDArray[np.float64] | None) -> int:
    """argmax of scores + noise, ties to the lowest id. noise: from `noise.gumbel`, None for T = 0.

    With Gumbel noise the argmax is a draw from softmax(scores) (the Gumbel-max trick; Gumbel 1954, Yellott
    1977).
    """
    return int(np.argmax(scores if noise is None else scores + noise))
