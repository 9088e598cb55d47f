"""The mathematics alone, without a model: build a draft tree, accept a path. Needs NumPy only.

python examples/draft_tree.py
"""

import numpy as np

from treegraft.speculation.accept import accept
from treegraft.speculation.build import build_tree
from treegraft.speculation.mask import ancestor_mask


def main() -> None:
    # Two positions, three candidates each: what a drafter thinks comes next, and after that.
    log_probs = np.log([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1]])
    token_ids = np.array([[10, 11, 12], [20, 21, 22]])
    tree = build_tree(log_probs, token_ids, budget=5)
    for node in range(len(tree)):
        print(f"node {node}: path {tree.path(node)}, probability {np.exp(tree.log_probs[node]):.2f}")
    print(ancestor_mask(tree).astype(int))

    # What the target says after the root and after each node; here it follows 11, then 20, then says 99.
    says = {(): 11, (11,): 20, (11, 20): 99}
    targets = [says.get(tree.path(node), 0) for node in range(-1, len(tree))]
    acceptance = accept(tree, targets)
    print("committed:", acceptance.tokens(tree).tolist())


if __name__ == "__main__":
    main()
