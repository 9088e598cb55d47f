import numpy as np
import pytest

from treegraft.errors import UsageError
from treegraft.speculation.scorer import Marginals, PairwiseScorer


def test_marginals_depend_on_the_length_of_the_path_alone() -> None:
    scorer = Marginals([[-1.0, -2.0], [-3.0, -4.0]], [[1, 2], [3, 4]])
    for path in ((1,), (2,), (99,)):
        ids, log_probs = scorer.children(path)
        assert ids.tolist() == [3, 4]
        assert log_probs.tolist() == [-3.0, -4.0]


def test_marginals_end_with_their_rows() -> None:
    ids, log_probs = Marginals([[-1.0]], [[1]]).children((1,))
    assert len(ids) == len(log_probs) == 0


def test_marginals_of_unlike_shapes_are_refused() -> None:
    with pytest.raises(UsageError, match=r"shapes \(1, 2\) and \(1, 1\)"):
        Marginals([[-1.0, -2.0]], [[1]])


@pytest.fixture
def pairwise() -> PairwiseScorer:
    tables = -np.arange(8.0).reshape(2, 2, 2)
    return PairwiseScorer([-0.5, -1.5], tables, [[10, 11], [20, 21], [30, 31]])


def test_pairwise_root_row(pairwise: PairwiseScorer) -> None:
    ids, log_probs = pairwise.children(())
    assert ids.tolist() == [10, 11]
    assert log_probs.tolist() == [-0.5, -1.5]


@pytest.mark.parametrize(
    ("path", "ids", "log_probs"),
    [
        ((10,), [20, 21], [0.0, -1.0]),
        ((11,), [20, 21], [-2.0, -3.0]),
        ((11, 20), [30, 31], [-4.0, -5.0]),
        ((10, 21), [30, 31], [-6.0, -7.0]),
    ],
)
def test_pairwise_row_is_that_of_the_last_token(
    pairwise: PairwiseScorer, path: tuple[int, ...], ids: list[int], log_probs: list[float]
) -> None:
    found_ids, found = pairwise.children(path)
    assert found_ids.tolist() == ids
    assert found.tolist() == log_probs


def test_pairwise_ends_with_its_depths(pairwise: PairwiseScorer) -> None:
    ids, _ = pairwise.children((10, 20, 30))
    assert len(ids) == 0


def test_pairwise_refuses_a_strange_path(pairwise: PairwiseScorer) -> None:
    with pytest.raises(UsageError, match="token 77 is no candidate at depth 2"):
        pairwise.children((10, 77))


def test_pairwise_takes_the_first_column_of_equal_ids() -> None:
    scorer = PairwiseScorer([-1.0, -2.0], [[[-3.0, -4.0], [-5.0, -6.0]]], [[7, 7], [8, 9]])
    assert scorer.children((7,))[1].tolist() == [-3.0, -4.0]


@pytest.mark.parametrize(
    ("root", "tables", "ids"),
    [
        ([-1.0], np.zeros((1, 2, 2)), [[1, 2], [3, 4]]),
        ([-1.0, -1.0], np.zeros((2, 2, 2)), [[1, 2], [3, 4]]),
        ([-1.0, -1.0], np.zeros((1, 2, 3)), [[1, 2], [3, 4]]),
        ([-1.0, -1.0], np.zeros((0, 2, 2)), [1, 2]),
    ],
)
def test_pairwise_shapes_are_checked(root: object, tables: object, ids: object) -> None:
    with pytest.raises(UsageError, match="expected"):
        PairwiseScorer(root, tables, ids)  # type: ignore[arg-type]
