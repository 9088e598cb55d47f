import numpy as np
import pytest

from treegraft.errors import UsageError
from treegraft.speculation.accept import accept
from treegraft.speculation.tree import DraftTree


def tree_of(token_ids: list[int], parents: list[int]) -> DraftTree:
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return DraftTree(
        np.array(token_ids, np.int64),
        np.array(parents, np.int64),
        np.array(depths, np.int64),
        np.zeros(len(parents), np.float32),
    )


# root -> 10 (node 0) -> 20 (1), 21 (3); root -> 11 (2) -> 30 (4)
TREE = tree_of([10, 20, 11, 21, 30], [-1, 0, -1, 0, 2])


@pytest.mark.parametrize(
    ("targets", "path", "bonus"),
    [
        ([99, 0, 0, 0, 0, 0], [], 99),
        ([10, 99, 0, 0, 0, 0], [0], 99),
        ([10, 20, 99, 0, 0, 0], [0, 1], 99),
        ([10, 21, 0, 0, 99, 0], [0, 3], 99),
        ([11, 0, 0, 30, 0, 99], [2, 4], 99),
        ([11, 0, 0, 10, 0, 0], [2], 10),  # 10 is a node, but no child of node 2
        ([20, 0, 0, 0, 0, 0], [], 20),  # 20 is a node, but no child of the root
    ],
)
def test_walk_follows_the_target(targets: list[int], path: list[int], bonus: int) -> None:
    acceptance = accept(TREE, targets)
    assert acceptance.path.tolist() == path
    assert acceptance.bonus == bonus
    assert acceptance.tokens(TREE).tolist() == [*(int(TREE.token_ids[node]) for node in path), bonus]


def test_an_empty_tree_commits_the_bonus_token() -> None:
    empty = tree_of([], [])
    acceptance = accept(empty, [7])
    assert acceptance.path.dtype == np.int64
    assert acceptance.tokens(empty).tolist() == [7]


def test_of_equal_siblings_the_first_is_taken() -> None:
    twins = tree_of([5, 5, 6, 7], [-1, -1, 0, 1])
    assert accept(twins, [5, 6, 7, 0, 0]).path.tolist() == [0, 2]
    assert accept(twins, [5, 7, 7, 0, 0]).path.tolist() == [0]


@pytest.mark.parametrize("targets", [[1, 2], [1] * 7, [1.0] * 6, [[1] * 6]])
def test_targets_that_do_not_fit_are_refused(targets: object) -> None:
    with pytest.raises(UsageError, match="expected 6 integers"):
        accept(TREE, targets)  # type: ignore[arg-type]
