import numpy as np
import pytest

from treegraft.speculation.tree import DraftTree


@pytest.fixture
def tree() -> DraftTree:
    """root -> 10 -> (20, 21), root -> 11; 20 -> 30."""
    return DraftTree(
        token_ids=np.array([10, 20, 11, 21, 30], np.int64),
        parents=np.array([-1, 0, -1, 0, 1], np.int64),
        depths=np.array([1, 2, 1, 2, 3], np.int64),
        log_probs=np.array([-0.1, -0.2, -0.3, -0.4, -0.5], np.float32),
    )


def test_length_is_the_number_of_nodes(tree: DraftTree) -> None:
    assert len(tree) == 5


def test_path_lists_tokens_from_depth_one_down(tree: DraftTree) -> None:
    assert tree.path(4) == (10, 20, 30)
    assert tree.path(2) == (11,)
    assert tree.path(-1) == ()


def test_children_are_in_order_of_emission(tree: DraftTree) -> None:
    assert tree.children(-1).tolist() == [0, 2]
    assert tree.children(0).tolist() == [1, 3]
    assert tree.children(4).tolist() == []


def test_arrays_cannot_be_written(tree: DraftTree) -> None:
    with pytest.raises(ValueError, match="read-only"):
        tree.token_ids[0] = 1


def test_arrays_of_different_length_are_our_own_mistake() -> None:
    one, two = np.zeros(1, np.int64), np.zeros(2, np.int64)
    with pytest.raises(AssertionError):
        DraftTree(token_ids=one, parents=two, depths=one, log_probs=np.zeros(1, np.float32))
