"""The printed tree: order, indentation, marks, and where the bonus token stands."""

import numpy as np

from treegraft.cli.trace_text import tree_lines
from treegraft.speculation.accept import accept
from treegraft.speculation.tree import DraftTree

# 0 a, 1 b (children of the root), 2 c (of a), 3 d (of a), 4 e (of c)
TREE = DraftTree(
    np.array([1, 2, 3, 4, 5], np.int64),
    np.array([-1, -1, 0, 0, 2], np.int64),
    np.array([1, 1, 2, 2, 3], np.int64),
    np.array([-0.5, -1.0, -1.5, -2.0, -2.5], np.float32),
)


def text_of(token: int) -> str:
    return {0: "root", 1: "a", 2: "b", 3: "\n", 4: "d", 5: "e", 9: "bonus"}[token]


def test_accepted_path_is_marked_and_the_bonus_follows_its_last_node() -> None:
    targets = np.array([1, 3, 9, 9, 9, 9])
    assert tree_lines(0, TREE, accept(TREE, targets), text_of) == [
        '  "root" (root)',
        '*   "a"  -0.50  (path -0.50)',
        '*     "\\n"  -1.00  (path -1.50)',
        '        "e"  -1.00  (path -2.50)',
        '        -> "bonus"',
        '      "d"  -1.50  (path -2.00)',
        '    "b"  -1.00  (path -1.00)',
    ]


def test_nothing_accepted_puts_the_bonus_below_the_root() -> None:
    lines = tree_lines(0, TREE, accept(TREE, np.full(6, 9)), text_of)
    assert not any(line.startswith("*") for line in lines)
    assert lines[-1] == '    -> "bonus"'


def test_an_empty_tree_is_root_and_bonus() -> None:
    none = DraftTree(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    assert tree_lines(0, none, accept(none, np.array([9])), text_of) == ['  "root" (root)', '    -> "bonus"']
