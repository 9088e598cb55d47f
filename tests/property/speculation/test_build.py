"""build_tree against brute force over every prefix of small inputs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from treegraft.speculation.build import build_tree
from treegraft.speculation.scorer import Marginals, PairwiseScorer
from treegraft.speculation.tree import DraftTree

# coarse values make ties, the huge ones make sums that only rounding makes equal
SCORES = st.one_of(
    st.floats(-8, 0, width=32),
    st.sampled_from([0.0, -0.0, -0.5, -1.0, -1.0000001, -1e7, -3e38, np.nan, -np.inf]),
)
Path = tuple[int, ...]  # ranks from depth 1 down


@st.composite
def marginals(draw: st.DrawFn) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    depth, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    size = depth * width
    scores = draw(st.lists(SCORES, min_size=size, max_size=size))
    ids = draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
    return np.array(scores, np.float32).reshape(depth, width), np.array(ids).reshape(depth, width)


@np.errstate(over="ignore")
def all_prefixes(log_probs: NDArray[np.float32]) -> dict[Path, np.float32]:
    """Every path of ranks that may become a node, with its weight."""
    depth, width = log_probs.shape
    weights: dict[Path, np.float32] = {}
    level: dict[Path, np.float32] = {(): np.float32(0)}
    for row in range(depth):
        level = {
            (*path, rank): np.float32(weight + log_probs[row, rank])
            for path, weight in level.items()
            for rank in range(width)
            if np.float32(weight + log_probs[row, rank]) > -np.inf
        }
        weights.update(level)
    return weights


def in_order(weights: dict[Path, np.float32]) -> list[Path]:
    """All paths by (weight descending, depth, parent's place, rank): a parent is placed before its children."""
    places: dict[Path, int] = {(): -1}
    ordered: list[Path] = []
    waiting = set(weights)
    while waiting:
        ready = (path for path in waiting if path[:-1] in places)
        best = min(ready, key=lambda path: (-weights[path], len(path), places[path[:-1]], path[-1]))
        places[best] = len(ordered)
        ordered.append(best)
        waiting.remove(best)
    return ordered


def rows_of(tree: DraftTree) -> list[tuple[int, int, int, float]]:
    columns = (tree.token_ids, tree.parents, tree.depths, tree.log_probs)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@settings(max_examples=80, deadline=None)
@given(marginals(), st.integers(0, 90))
def test_the_heaviest_prefixes_in_order(case: tuple[NDArray[np.float32], NDArray[np.int64]], budget: int) -> None:
    log_probs, ids = case
    weights = all_prefixes(log_probs)
    tree = build_tree(log_probs, ids, budget)
    expected = in_order(weights)[:budget]
    places = {path: place for place, path in enumerate(expected)} | {(): -1}
    assert rows_of(tree) == [
        (int(ids[len(path) - 1, path[-1]]), places[path[:-1]], len(path), float(weights[path])) for path in expected
    ]
    # and no other choice of nodes, closed or not, would weigh more
    assert sorted(tree.log_probs.tolist(), reverse=True) == sorted(map(float, weights.values()), reverse=True)[:budget]


@settings(max_examples=80, deadline=None)
@given(marginals(), st.integers(0, 90))
def test_ancestor_closed_in_order_of_emission(case: tuple[NDArray[np.float32], NDArray[np.int64]], budget: int) -> None:
    tree = build_tree(*case, budget)
    assert np.all(tree.parents < np.arange(len(tree)))
    assert np.all(tree.parents >= -1)
    assert np.all(np.diff(tree.log_probs) <= 0)
    for node, parent in enumerate(tree.parents.tolist()):
        assert tree.depths[node] == (tree.depths[parent] + 1 if parent >= 0 else 1)
    assert np.all(np.isfinite(tree.log_probs))


@settings(max_examples=60, deadline=None)
@given(marginals(), st.integers(0, 89))
def test_a_smaller_budget_is_a_prefix(case: tuple[NDArray[np.float32], NDArray[np.int64]], budget: int) -> None:
    larger = rows_of(build_tree(*case, budget + 1))
    assert rows_of(build_tree(*case, budget)) == larger[:budget]


@settings(max_examples=60, deadline=None)
@given(marginals(), st.integers(0, 90))
def test_marginals_as_a_scorer_give_the_same_tree(
    case: tuple[NDArray[np.float32], NDArray[np.int64]], budget: int
) -> None:
    assert rows_of(build_tree(*case, budget, Marginals(*case))) == rows_of(build_tree(*case, budget))


@settings(max_examples=60, deadline=None)
@given(marginals(), st.integers(0, 90))
def test_pairwise_tables_without_any_dependence_give_the_same_tree(
    case: tuple[NDArray[np.float32], NDArray[np.int64]], budget: int
) -> None:
    log_probs, ids = case
    tables = np.repeat(log_probs[1:, None, :], log_probs.shape[1], axis=1)
    scorer = PairwiseScorer(log_probs[0], tables, ids)
    assert rows_of(build_tree(log_probs, ids, budget, scorer)) == rows_of(build_tree(log_probs, ids, budget))


@settings(max_examples=60, deadline=None)
@given(marginals(), st.integers(1, 40))
def test_float64_input_is_the_float32_input(case: tuple[NDArray[np.float32], NDArray[np.int64]], budget: int) -> None:
    log_probs, ids = case
    assert rows_of(build_tree(log_probs.astype(np.float64), ids, budget)) == rows_of(build_tree(log_probs, ids, budget))
