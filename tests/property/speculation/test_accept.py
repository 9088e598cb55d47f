"""Acceptance, masks and slots on random trees with random targets."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from treegraft.speculation.accept import accept
from treegraft.speculation.build import build_tree
from treegraft.speculation.compact import split_slots
from treegraft.speculation.mask import ancestor_mask, node_positions
from treegraft.speculation.tree import DraftTree

VOCAB = 4


@st.composite
def verified(draw: st.DrawFn) -> tuple[DraftTree, NDArray[np.int64]]:
    """A tree of distinct siblings and the target's token at root and nodes."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    depth = draw(st.integers(0, 5))
    ids = np.array([random.permutation(VOCAB) for _ in range(depth)], np.int64).reshape(depth, VOCAB)
    log_probs = -np.sort(random.exponential(2.0, (depth, VOCAB)))
    tree = build_tree(log_probs, ids, draw(st.integers(0, 40)))
    return tree, random.integers(0, VOCAB, len(tree) + 1)


def spine_of(tree: DraftTree) -> list[int]:
    """The chain inside the tree: from the root, always the first child emitted."""
    nodes: list[int] = []
    children = tree.children(-1)
    while len(children):
        nodes.append(int(children[0]))
        children = tree.children(nodes[-1])
    return nodes


@settings(max_examples=80, deadline=None)
@given(verified())
def test_the_accepted_path_is_what_the_target_writes(case: tuple[DraftTree, NDArray[np.int64]]) -> None:
    tree, targets = case
    acceptance = accept(tree, targets)
    above = -1
    for node in acceptance.path.tolist():
        assert tree.parents[node] == above
        assert tree.token_ids[node] == targets[above + 1]
        above = node
    assert acceptance.bonus == targets[above + 1]
    assert acceptance.bonus not in tree.token_ids[tree.children(above)]


@settings(max_examples=80, deadline=None)
@given(verified())
def test_a_tree_accepts_at_least_its_own_spine(case: tuple[DraftTree, NDArray[np.int64]]) -> None:
    tree, targets = case
    spine = spine_of(tree)
    chain = DraftTree(
        tree.token_ids[spine],
        np.arange(-1, len(spine) - 1, dtype=np.int64),
        tree.depths[spine],
        tree.log_probs[spine],
    )
    along = accept(chain, targets[[0, *(node + 1 for node in spine)]])
    acceptance = accept(tree, targets)
    assert len(acceptance.path) >= len(along.path)
    assert acceptance.tokens(tree)[: len(along.path) + 1].tolist() == along.tokens(chain).tolist()


@settings(max_examples=60, deadline=None)
@given(verified())
def test_a_row_sees_its_own_path(case: tuple[DraftTree, NDArray[np.int64]]) -> None:
    tree, _ = case
    mask, positions = ancestor_mask(tree), node_positions(tree, 50)
    for node in range(len(tree)):
        seen = np.flatnonzero(mask[node + 1])
        assert tuple(tree.token_ids[seen[1:] - 1].tolist()) == tree.path(node)
        assert positions[seen].tolist() == list(range(50, 51 + int(tree.depths[node])))


@settings(max_examples=60, deadline=None)
@given(verified())
def test_every_slot_is_kept_or_freed_once(case: tuple[DraftTree, NDArray[np.int64]]) -> None:
    tree, targets = case
    slots = np.random.default_rng(len(tree)).permutation(100)[: len(tree) + 1]
    acceptance = accept(tree, targets)
    kept, freed = split_slots(slots, acceptance)
    assert sorted([*kept.tolist(), *freed.tolist()]) == sorted(slots.tolist())
    assert kept.tolist() == [slots[0], *(slots[node + 1] for node in acceptance.path.tolist())]
