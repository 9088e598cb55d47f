import numpy as np

from treegraft.speculation.mask import ancestor_mask, node_positions
from treegraft.speculation.tree import DraftTree

# root -> 10 (node 0) -> 20 (1); root -> 11 (2); 20 -> 30 (3)
TREE = DraftTree(
    np.array([10, 20, 11, 30], np.int64),
    np.array([-1, 0, -1, 1], np.int64),
    np.array([1, 2, 1, 3], np.int64),
    np.zeros(4, np.float32),
)
EMPTY = DraftTree(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))


def test_rows_see_themselves_and_their_ancestors() -> None:
    expected = [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 0, 0, 1, 0],
        [1, 1, 1, 0, 1],
    ]
    mask = ancestor_mask(TREE)
    assert mask.dtype == np.bool_
    assert mask.astype(int).tolist() == expected


def test_an_empty_tree_has_the_root_alone() -> None:
    assert ancestor_mask(EMPTY).tolist() == [[True]]
    assert node_positions(EMPTY, 9).tolist() == [9]


def test_positions_go_by_depth() -> None:
    assert node_positions(TREE, 100).tolist() == [100, 101, 102, 101, 103]
