"""Best-first draft trees: the `budget` heaviest ancestor-closed nodes. Pure NumPy; no clock, no device, no
model.

Order of emission: weight descending, then (depth, parent, rank) ascending. A child never weighs more than its
parent and lies deeper, so a heap popped in this order emits the heaviest prefixes and every parent before its
children.
"""

import heapq
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treegraft.errors import UsageError
from treegraft.speculation.scorer import Scorer
from treegraft.speculation.tree import DraftTree

FLOAT32_OVERFLOW = -(2.0**128 - 2.0**103)  # sums from here down round to -inf in float32


def build_tree(log_probs: ArrayLike, token_ids: ArrayLike, budget: int, scorer: Scorer | None = None) -> DraftTree:
    """The draft tree of at most `budget` nodes with the largest path log-probabilities.

    log_probs: float [depth, candidates], the drafter's log-probability of each candidate at each depth; a row
    need not be sorted, a candidate's rank is its column. token_ids: int, same shape. Equal ids in a row stay
    separate nodes. With a scorer, it alone scores and log_probs only bounds the depth by its number of rows.
    A node's weight is its parent's weight plus its own log-probability in float32, rounded once. NaN and -inf
    never become nodes, nor do sums that overflow to -inf; the tree is smaller than `budget` when candidates
    run out.

    Raises UsageError (a ValueError) for scores above 0, ids that are no integers, shapes that do not fit and
    negative budgets.
    """
    budget = _checked_budget(budget)
    scores, ids = np.asarray(log_probs), np.asarray(token_ids)
    if scores.ndim != 2 or scores.shape != ids.shape:
        raise UsageError(
            f"log_probs has shape {scores.shape} and token_ids {ids.shape}; expected both [depth, candidates]"
        )
    if scorer is not None:
        return _grow(_scored_by(scorer), len(scores), budget)
    _check_ids(ids, "token_ids")
    _check_scores(scores, "log_probs")
    rows = [_sorted_row(*row) for row in zip(_as_float32(scores), ids, strict=True)]
    return _grow(lambda path: rows[len(path)], len(rows), budget)


@dataclass(frozen=True, slots=True)
class _Row:
    """The candidates below one path that may become nodes.

    log_probs: heaviest first, equal ones by rank. ranks: their columns. token_ids: of the whole row, by
    column. is_ranked: the ranks ascend throughout.
    """

    log_probs: list[float]
    ranks: list[int]
    token_ids: list[int]
    is_ranked: bool


def _scored_by(scorer: Scorer) -> Callable[[tuple[int, ...]], _Row]:
    def row_below(path: tuple[int, ...]) -> _Row:
        ids, scores = (np.asarray(part) for part in scorer.children(path))
        if scores.ndim != 1 or scores.shape != ids.shape:
            raise UsageError(
                f"the scorer's children of path {path} have ids of shape {ids.shape} and log_probs of shape "
                f"{scores.shape}; expected both [k]"
            )
        _check_ids(ids, f"the scorer's children of path {path}")
        _check_scores(scores, f"the scorer's children of path {path}")
        return _sorted_row(_as_float32(scores), ids)

    return row_below


def _sorted_row(log_probs: NDArray[np.float32], ids: NDArray[Any]) -> _Row:
    order = np.argsort(-log_probs, kind="stable")  # NaN goes last, -inf before it
    num_usable = int(np.count_nonzero(log_probs > -np.inf))
    order = order[:num_usable]
    ranks = order.tolist()
    return _Row(log_probs[order].tolist(), ranks, ids.tolist(), ranks == sorted(ranks))


def _grow(row_below: Callable[[tuple[int, ...]], _Row], max_depth: int, budget: int) -> DraftTree:
    paths: list[tuple[int, ...]] = []
    parents: list[int] = []
    weights: list[float] = []
    # (-weight, depth, parent, rank, place in the row or -1, row, parent's weight); (parent, rank) is unique
    heap: list[tuple[float, int, int, int, int, _Row, float]] = []

    def enter(row: _Row, place: int, depth: int, parent: int, base: float) -> None:
        """Push the candidate at `place` of the row; the lighter ones follow when it is popped.

        Rounding may make sums equal whose log-probabilities differ. Where that can go against rank order, the
        whole run of equal sums is pushed at once, so that the heap orders it by rank.
        """
        if place >= len(row.ranks):
            return
        weight = _add(base, row.log_probs[place])
        if weight == -math.inf:
            return
        last = place
        if not row.is_ranked:
            while last + 1 < len(row.ranks) and _add(base, row.log_probs[last + 1]) == weight:
                last += 1
        for i in range(place, last):
            heapq.heappush(heap, (-weight, depth, parent, row.ranks[i], -1, row, base))
        heapq.heappush(heap, (-weight, depth, parent, row.ranks[last], last, row, base))

    if budget > 0 and max_depth > 0:
        enter(row_below(()), 0, 1, -1, 0.0)
    while heap and len(paths) < budget:
        negative, depth, parent, rank, place, row, base = heapq.heappop(heap)
        node = len(paths)
        above = paths[parent] if parent >= 0 else ()
        paths.append((*above, row.token_ids[rank]))
        parents.append(parent)
        weights.append(-negative)
        if place >= 0:
            enter(row, place + 1, depth, parent, base)
        if depth < max_depth and len(paths) < budget:
            enter(row_below(paths[node]), 0, depth + 1, node, -negative)
    return DraftTree(
        token_ids=np.array([path[-1] for path in paths], np.int64),
        parents=np.array(parents, np.int64),
        depths=np.array([len(path) for path in paths], np.int64),
        log_probs=np.array(weights, np.float32),
    )


def _add(base: float, log_prob: float) -> float:
    """One float32 addition. A double holds the sum of two floats well enough that rounding it once more gives
    the float32 sum exactly (53 >= 2 * 24 + 2 bits)."""
    total = base + log_prob
    return float(np.float32(total)) if total > FLOAT32_OVERFLOW else -math.inf


def _as_float32(scores: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what overflows is -inf, and no candidate
        return scores.astype(np.float32)


def _checked_budget(budget: int) -> int:
    try:
        checked = operator.index(budget)
    except TypeError as error:
        raise UsageError(f"budget is {budget!r}; expected a whole number of nodes, 0 or more") from error
    if checked < 0:
        raise UsageError(f"budget is {checked}; expected 0 or more nodes")
    return checked


def _check_ids(ids: NDArray[Any], what: str) -> None:
    if ids.dtype.kind not in "iu" and ids.size:
        raise UsageError(f"{what}: ids are of type {ids.dtype}; expected integers")


def _check_scores(scores: NDArray[Any], what: str) -> None:
    if scores.dtype.kind != "f" and scores.size:
        raise UsageError(f"{what}: log-probabilities are of type {scores.dtype}; expected float32 or float64")
    above = scores > 0
    if above.any():
        place = tuple(int(axis[0]) for axis in np.nonzero(above))
        where = f"row {place[0]}, column {place[1]}" if len(place) == 2 else f"column {place[0]}"
        raise UsageError(
            f"{what}: the score at {where} is {float(scores[place])!r}; expected log-probabilities, at most 0 "
            "(normalise with log_softmax)"
        )
