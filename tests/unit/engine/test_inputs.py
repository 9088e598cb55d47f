import numpy as np
import torch

from treegraft.engine.inputs import Rows, pack_blocks, pack_rows, prefill_rows

CPU = torch.device("cpu")


def test_blocks_follow_their_contexts_and_padding_is_not_seen():
    inputs = pack_blocks([np.array([7, 3, 9]), np.array([4])], 4, CPU)
    # The block begins with the root, which sits where the context ends.
    assert inputs.positions.tolist() == [[3, 4, 5, 6], [1, 2, 3, 4]]
    assert inputs.context_slots.tolist() == [[7, 3, 9], [4, 0, 0]]
    assert inputs.context_positions.tolist() == [[0, 1, 2], [0, 0, 0]]
    assert inputs.context_mask.tolist() == [[True, True, True], [True, False, False]]


def test_rows_of_a_tree_and_of_a_prefill_in_one_pass():
    visible = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], np.bool_)
    tree = Rows(np.array([5, 6, 7]), np.array([0, 1, 1]), np.array([20, 21, 22]), np.array([11, 12]), visible)
    tokens, inputs = pack_rows([tree, prefill_rows([8], np.array([30]), np.array([13]))], CPU)
    assert tokens.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert inputs.positions.tolist() == [[2, 3, 3], [1, 0, 0]]
    assert inputs.write_slots.tolist() == [[20, 21, 22], [30, 0, 0]]
    assert inputs.context_slots.tolist() == [[11, 12, 20, 21, 22], [13, 30, 0, 0, 0]]
    assert inputs.key_positions.tolist() == [[0, 1, 2, 3, 3], [0, 1, 0, 0, 0]]
    assert inputs.mask[0].int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 1]]
    assert inputs.mask[1, 0].int().tolist() == [1, 1, 0, 0, 0]
    assert inputs.mask.any(-1).all()  # a padding row sees something: attention stays finite
