import math

import numpy as np
import pytest

from treegraft.errors import UsageError
from treegraft.speculation.build import build_tree
from treegraft.speculation.scorer import Marginals, PairwiseScorer
from treegraft.speculation.tree import DraftTree


def as_rows(tree: DraftTree) -> list[tuple[int, int, int]]:
    return list(zip(tree.token_ids.tolist(), tree.parents.tolist(), tree.depths.tolist(), strict=True))


LOG_PROBS = np.log([[0.6, 0.3], [0.7, 0.2]])
TOKEN_IDS = np.array([[5, 6], [7, 8]])


def test_heaviest_first_worked_by_hand() -> None:
    # 0.6, 0.6 * 0.7 = 0.42, 0.3, 0.3 * 0.7 = 0.21, 0.6 * 0.2 = 0.12, 0.3 * 0.2 = 0.06
    tree = build_tree(LOG_PROBS, TOKEN_IDS, 6)
    assert as_rows(tree) == [(5, -1, 1), (7, 0, 2), (6, -1, 1), (7, 2, 2), (8, 0, 2), (8, 2, 2)]
    np.testing.assert_allclose(np.exp(tree.log_probs), [0.6, 0.42, 0.3, 0.21, 0.12, 0.06], rtol=1e-6)


def test_types_of_the_result() -> None:
    tree = build_tree(LOG_PROBS, TOKEN_IDS, 3)
    assert tree.token_ids.dtype == tree.parents.dtype == tree.depths.dtype == np.int64
    assert tree.log_probs.dtype == np.float32


@pytest.mark.parametrize(("budget", "size"), [(0, 0), (1, 1), (5, 5), (6, 6), (7, 6), (10**9, 6)])
def test_budget_bounds_the_nodes(budget: int, size: int) -> None:
    assert len(build_tree(LOG_PROBS, TOKEN_IDS, budget)) == size


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_no_depth_or_no_candidates_is_an_empty_tree(shape: tuple[int, int]) -> None:
    assert len(build_tree(np.zeros(shape, np.float32), np.zeros(shape, np.int64), 8)) == 0


def test_rank_is_the_column_of_an_unsorted_row() -> None:
    tree = build_tree([[-2.0, -1.0, -3.0]], [[1, 2, 3]], 3)
    assert tree.token_ids.tolist() == [2, 1, 3]


def test_equal_scores_go_by_column() -> None:
    assert build_tree([[-1.0, -0.5, -1.0, -0.5]], [[1, 2, 3, 4]], 4).token_ids.tolist() == [2, 4, 1, 3]


def test_equal_weights_go_by_depth_then_parent_then_rank() -> None:
    # certain tokens (log-probability 0) make every weight -1 or 0
    tree = build_tree([[0.0, 0.0], [0.0, 0.0]], [[1, 2], [3, 4]], 6)
    assert as_rows(tree) == [(1, -1, 1), (2, -1, 1), (3, 0, 2), (4, 0, 2), (3, 1, 2), (4, 1, 2)]


def test_sums_that_rounding_makes_equal_go_by_rank() -> None:
    # in float32 both -1.0000001 and -1.0 added to -1e8 are -1e8; the row's own order is column 1 first
    first, second = np.float32(-1.0000001), np.float32(-1.0)
    assert first < second
    tree = build_tree([[-1e8, -np.inf, -np.inf], [first, second, -200.0]], [[1, 0, 0], [7, 8, 9]], 4)
    assert tree.token_ids.tolist() == [1, 7, 8, 9]
    assert tree.log_probs[1] == tree.log_probs[2] > tree.log_probs[3]


def test_equal_ids_in_a_row_stay_separate_nodes() -> None:
    assert as_rows(build_tree([[-1.0, -2.0]], [[3, 3]], 2)) == [(3, -1, 1), (3, -1, 1)]


def test_nan_and_minus_infinity_never_become_nodes() -> None:
    log_probs = [[np.nan, -1.0, -np.inf], [np.nan, np.nan, -np.inf]]
    assert as_rows(build_tree(log_probs, [[1, 2, 3], [4, 5, 6]], 10)) == [(2, -1, 1)]


def test_rows_without_a_candidate_end_the_tree() -> None:
    log_probs = [[-1.0], [np.nan], [-1.0]]
    assert len(build_tree(log_probs, [[1], [2], [3]], 10)) == 1
    assert len(build_tree([[np.nan], [-1.0]], [[1], [2]], 10)) == 0


@pytest.mark.filterwarnings("error")
def test_sums_that_overflow_never_become_nodes() -> None:
    tree = build_tree([[-3e38], [-3e38]], [[1], [2]], 10)
    assert tree.token_ids.tolist() == [1]
    assert len(build_tree([[-1e39]], [[1]], 10)) == 0


def test_one_float32_addition_a_node() -> None:
    row = np.log(np.array([0.9, 0.3, 0.7, 0.1]))
    tree = build_tree(row[:, None], np.arange(4)[:, None], 4)
    expected, weight = [], np.float32(0)
    for value in row.astype(np.float32):
        weight = np.float32(weight + value)
        expected.append(weight)
    assert tree.log_probs.tolist() == [float(weight) for weight in expected]


@pytest.mark.parametrize("value", [0.25, 1e-50, math.inf])
def test_a_score_above_zero_is_refused_with_its_place(value: float) -> None:
    log_probs = np.full((3, 4), -1.0)
    log_probs[2, 1] = value
    with pytest.raises(UsageError, match=r"row 2, column 1 is .*at most 0") as caught:
        build_tree(log_probs, np.zeros((3, 4), np.int64), 2)
    assert repr(value) in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("log_probs", "token_ids", "budget", "message"),
    [
        ([[-1.0, -2.0]], [[1]], 1, r"shape \(1, 2\) and token_ids \(1, 1\)"),
        ([-1.0, -2.0], [1, 2], 1, r"expected both \[depth, candidates\]"),
        ([[[-1.0]]], [[[1]]], 1, r"expected both \[depth, candidates\]"),
        ([[-1.0]], [[1.0]], 1, "float64; expected integers"),
        ([[-1.0]], [[True]], 1, "bool; expected integers"),
        ([[-1]], [[1]], 1, "log-probabilities are of type int64"),
        ([[-1.0]], [[1]], -1, "budget is -1; expected 0 or more"),
        ([[-1.0]], [[1]], 1.5, "budget is 1.5; expected a whole number"),
    ],
)
def test_what_does_not_fit_is_refused(log_probs: object, token_ids: object, budget: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_tree(log_probs, token_ids, budget)  # type: ignore[arg-type]


def test_budget_may_be_a_numpy_integer() -> None:
    assert len(build_tree(LOG_PROBS, TOKEN_IDS, np.int32(2))) == 2


class Recording:
    """The marginals, and which paths were asked for."""

    def __init__(self) -> None:
        self.paths: list[tuple[int, ...]] = []
        self._marginals = Marginals(LOG_PROBS, TOKEN_IDS)

    def children(self, path: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        self.paths.append(path)
        return self._marginals.children(path)


def test_scorer_is_asked_once_for_each_node_that_may_have_children() -> None:
    scorer = Recording()
    build_tree(LOG_PROBS, TOKEN_IDS, 6, scorer)
    assert scorer.paths == [(), (5,), (6,)]


@pytest.mark.parametrize(("budget", "paths"), [(0, []), (1, [()]), (2, [(), (5,)])])
def test_scorer_is_not_asked_for_what_the_budget_cannot_hold(budget: int, paths: list[tuple[int, ...]]) -> None:
    scorer = Recording()
    build_tree(LOG_PROBS, TOKEN_IDS, budget, scorer)
    assert scorer.paths == paths


def test_with_a_scorer_log_probs_only_bound_the_depth() -> None:
    scorer = Marginals(LOG_PROBS, TOKEN_IDS)
    ignored = np.full((1, 3), 99.0)
    tree = build_tree(ignored, np.zeros((1, 3), np.int64), 6, scorer)
    assert as_rows(tree) == [(5, -1, 1), (6, -1, 1)]


def test_conditional_scores_change_which_child_is_best() -> None:
    # below 1 the tables prefer 4, below 2 they prefer 3; the marginals could not tell
    tables = np.log([[[0.1, 0.9], [0.8, 0.2]]])
    scorer = PairwiseScorer(np.log([0.6, 0.4]), tables, [[1, 2], [3, 4]])
    tree = build_tree(np.zeros((2, 2)), np.zeros((2, 2), np.int64), 4, scorer)
    assert as_rows(tree) == [(1, -1, 1), (4, 0, 2), (2, -1, 1), (3, 2, 2)]


class Answering:
    def __init__(self, ids: object, log_probs: object) -> None:
        self._answer = ids, log_probs

    def children(self, path: tuple[int, ...]) -> tuple[object, object]:
        return self._answer if path else ([1], [-1.0])


@pytest.mark.parametrize(
    ("ids", "log_probs", "message"),
    [
        ([1, 2], [-1.0], r"path \(1,\) have ids of shape \(2,\)"),
        ([[1]], [[-1.0]], r"expected both \[k\]"),
        ([1.5], [-1.0], r"path \(1,\): ids are of type float64"),
        ([1, 2], [-1.0, 0.5], r"path \(1,\): the score at column 1 is 0.5"),
    ],
)
def test_a_scorer_is_checked_as_its_input_is(ids: object, log_probs: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_tree(np.zeros((2, 1)), np.zeros((2, 1), np.int64), 4, Answering(ids, log_probs))  # type: ignore[arg-type]


def test_a_scorer_may_answer_with_nothing() -> None:
    tree = build_tree(np.zeros((2, 1)), np.zeros((2, 1), np.int64), 4, Answering([], []))  # type: ignore[arg-type]
    assert as_rows(tree) == [(1, -1, 1)]
