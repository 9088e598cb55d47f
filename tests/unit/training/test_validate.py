import math

import pytest
import torch

from treegraft.training.build import build_network, drafter_config
from treegraft.training.corpus.shards import Rows
from treegraft.training.features import TapReader
from treegraft.training.validate import _noise_given, chain_tau, draft_everywhere, tree_tau, whole_replies


def test_noise_drawn_after_the_fact_is_gumbel_noise_that_chose_the_token():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20000, 7, generator=generator) * 2
    first = -torch.empty_like(scores).exponential_(generator=generator).log()
    chosen = (scores + first).argmax(-1)
    noise = _noise_given(scores, chosen, generator)
    assert torch.equal((scores.log_softmax(-1) + noise).argmax(-1), chosen)
    # Over tokens that were chosen with such noise, what is drawn given them is standard Gumbel again.
    for token in range(7):
        values = noise[:, token].sort().values
        expected = torch.exp(-torch.exp(-values))
        distance = (expected - torch.arange(len(values)) / len(values)).abs().max()
        assert distance < 1.95 / math.sqrt(len(values))  # Kolmogorov-Smirnov at 0.1 %


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_tree_accepts_no_less_than_its_chain(config, target, temperature):
    network = build_network(config, drafter_config(config, target, None), target)
    with torch.no_grad():
        network.norm.mul_(0.1)  # so doubtful that the noise decides
    rows = sampled_rows(target, temperature, torch.Generator().manual_seed(3))
    replies = whole_replies(rows, 1, end_token=2, max_rows=12)
    assert len(replies) == 12
    reader = TapReader(target, network.config.target_layer_ids, 64, False)
    drafts = draft_everywhere(network, target, reader, rows, replies, 8, temperature)
    chain, tree = chain_tau(drafts, replies, by_head=False), tree_tau(drafts, rows, replies, 8, by_head=False)
    assert 1.0 < chain < tree
    # A head that says nothing yet scores as the marginals do, among the candidates.
    assert tree_tau(drafts, rows, replies, 8, by_head=True) == pytest.approx(tree, rel=0.1)
    if temperature:
        deaf = draft_everywhere(network, target, reader, rows, replies, 8, 0.0)
        assert chain > chain_tau(deaf, replies, by_head=False) + 0.1  # the noise chose, and the drafter heard it


def sampled_rows(target, temperature, generator):
    """Twelve rows of 64 tokens that the target wrote from their fourth on."""
    reader = TapReader(target, (0,), 64, False)
    tokens = torch.randint(10, 24, (12, 64), generator=generator)
    for place in range(4, 64):
        logits = target.logits(reader.read_all(tokens)[1][:, place - 1])
        logits[:, :10] = -torch.inf  # no token that ends
        noise = -torch.empty_like(logits).exponential_(generator=generator).log()
        tokens[:, place] = (logits + noise if temperature else logits).argmax(-1)
    kinds = torch.ones_like(tokens)
    kinds[:, :4] = 0
    return Rows(tokens, kinds.to(torch.uint8), torch.arange(12), torch.zeros(12, dtype=torch.uint8))
