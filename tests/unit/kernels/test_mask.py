import numpy as np
import torch

from treegraft.kernels import mask
from treegraft.speculation import mask as oracle
from treegraft.speculation.build import build_tree
from treegraft.speculation.tree import DraftTree


def random_trees(num_trees: int, budget: int) -> list[DraftTree]:
    random = np.random.default_rng(3)
    ids = np.zeros((4, 6), np.int64)
    return [build_tree(np.log(random.dirichlet(np.ones(6), 4)), ids, budget) for _ in range(num_trees)]


def test_masks_and_positions_equal_the_oracle() -> None:
    trees = random_trees(5, 20)
    parents = torch.stack([torch.from_numpy(tree.parents.copy()) for tree in trees])
    depths = torch.stack([torch.from_numpy(tree.depths.copy()) for tree in trees])
    lengths = torch.tensor([0, 7, 100, 3, 4])
    found = mask.ancestor_mask(parents, max_depth=4)
    positions = mask.node_positions(depths, lengths)
    for i, tree in enumerate(trees):
        np.testing.assert_array_equal(found[i].numpy(), oracle.ancestor_mask(tree))
        np.testing.assert_array_equal(positions[i].numpy(), oracle.node_positions(tree, int(lengths[i])))


def test_padding_nodes_see_the_root_and_are_seen_by_no_other() -> None:
    tree = random_trees(1, 6)[0]
    parents = torch.nn.functional.pad(torch.from_numpy(tree.parents.copy()), (0, 3), value=-1)[None]
    found = mask.ancestor_mask(parents, max_depth=4)[0].numpy()
    np.testing.assert_array_equal(found[:7, :7], oracle.ancestor_mask(tree))
    assert not found[:7, 7:].any()
    np.testing.assert_array_equal(found[7:, 7:], np.eye(3, dtype=bool))
    assert found[7:, 0].all()
    assert not found[7:, 1:7].any()


def test_trees_without_nodes() -> None:
    assert mask.ancestor_mask(torch.zeros((2, 0), dtype=torch.int64), max_depth=3).tolist() == [[[True]], [[True]]]
