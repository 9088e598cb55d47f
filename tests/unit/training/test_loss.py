import pytest
import torch
import torch.nn.functional as F

from treegraft.training.build import build_network, drafter_config
from treegraft.training.features import TapReader
from treegraft.training.loss import OUT_OF_REACH, Learning, Teacher, block_loss, make_blocks, random_anchors


@pytest.fixture
def parts(config, target):
    """(network, tokens, hidden of random blocks, blocks with everything learnt, the target's logits)."""
    generator = torch.Generator().manual_seed(0)
    network = build_network(config, drafter_config(config, target, None), target)
    tokens = torch.randint(10, 24, (2, 40), generator=generator)
    kinds = torch.ones_like(tokens)
    anchors = random_anchors(kinds, 5, generator)
    blocks = make_blocks(tokens, kinds, anchors, 4, 1e9, generator)
    hidden = torch.randn(2, 5, 4, target.config.hidden_size, generator=generator)
    _, final = TapReader(target, (0,), 40, False).read_all(tokens)
    return network, tokens, hidden, blocks, final


def expected_losses(target, tokens, hidden, blocks, final, is_soft):
    """Cross-entropies by (row, block, depth), one at a time."""
    found = {}
    for row in range(2):
        for block, anchor in enumerate(blocks.anchors[row].tolist()):
            for depth in range(1, 1 + int(blocks.cutoffs[row, block])):
                place = anchor + depth
                wanted = F.one_hot(tokens[row, place], 24).float()
                if is_soft[row, place]:
                    wanted = target.logits(final[row, place - 1]).softmax(-1)
                log_probs = target.logits(hidden[row, block, depth]).log_softmax(-1)
                found[row, block, depth] = -float((wanted * log_probs).sum())
    return found


@pytest.mark.parametrize("soft", ["none", "some", "all"])
def test_each_row_learns_its_own_token_or_the_targets_distribution_of_it(parts, target, soft):
    network, tokens, hidden, blocks, final = parts
    is_soft = torch.full(tokens.shape, soft == "all")
    if soft == "some":
        is_soft = torch.arange(40).remainder(3).eq(0).expand(2, -1)
    teacher = None if soft == "none" else Teacher(final, is_soft)
    found = block_loss(network, target, hidden, blocks, teacher, Learning(30, 0.0), torch.Generator())
    expected = expected_losses(target, tokens, hidden, blocks, final, is_soft)
    assert float(found.total) == pytest.approx(sum(expected.values()) / len(expected), rel=1e-5)
    assert int(found.counts.sum()) == len(expected)


def test_rows_that_no_tree_reaches_count_less(parts, target):
    network, tokens, hidden, blocks, final = parts
    found = block_loss(network, target, hidden * 0.1, blocks, None, Learning(30, 0.0, tree_nodes=30), torch.Generator())
    none = torch.zeros(tokens.shape, dtype=torch.bool)
    losses = expected_losses(target, tokens, hidden * 0.1, blocks, final, none)
    total = weight = 0.0
    for (row, block, depth), loss in losses.items():
        above = sum(losses[row, block, d] for d in range(1, depth))
        w = 1.0 if above <= torch.tensor(30.0).log() else OUT_OF_REACH
        total, weight = total + w * loss, weight + w
    assert weight < len(losses)
    assert float(found.total) == pytest.approx(total / weight, rel=1e-4)
