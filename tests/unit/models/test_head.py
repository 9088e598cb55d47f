import pytest
import torch

from treegraft.errors import UnsupportedModelError
from treegraft.models.config import HeadConfig
from treegraft.models.head import ConditionalHead, correct, tensor_shapes, unit_rms

E, R, V, B, D, K = 12, 5, 40, 2, 4, 6


@pytest.fixture
def parts():
    generator = torch.Generator().manual_seed(3)
    shapes = tensor_shapes(HeadConfig("pairwise", (("width", R),)), E)
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    table, lm_head = torch.randn(V, E, generator=generator), torch.randn(V, E, generator=generator)
    head = ConditionalHead(
        HeadConfig("pairwise", (("width", R),)), tensors.__getitem__, table.__getitem__, lm_head.__getitem__
    )
    hidden = torch.randn(B, D, E, generator=generator)
    ids = torch.stack([torch.randperm(V, generator=generator)[:K] for _ in range(B * D)]).view(B, D, K)
    return head, tensors, table, lm_head, hidden, ids


def test_scores_are_the_formula_written_out(parts):
    head, tensors, table, lm_head, hidden, ids = parts
    scores = head.pair_scores(hidden, ids)
    assert scores.shape == (B, D - 1, K, K)
    for b, d, i, j in ((0, 0, 0, 0), (1, 2, 5, 3), (0, 1, 2, 4)):
        row, parent = hidden[b, d + 1], table[ids[b, d, i]]
        both = tensors["head.hidden.weight"] @ row + tensors["head.parent.weight"] @ unit_rms(parent)
        inner = torch.nn.functional.silu(both[:R]) * both[R:]
        expected = lm_head[ids[b, d + 1, j]] @ (row + tensors["head.output.weight"] @ inner)
        torch.testing.assert_close(scores[b, d, i, j], expected)
    corrected = correct(hidden[:, 1:], table[ids[:, :-1, 0]], *tensors.values())
    torch.testing.assert_close((corrected[:, :, None] * lm_head[ids[:, 1:]]).sum(-1), scores[:, :, 0])


def test_children_of_a_parent_share_the_mass_of_their_depth(parts):
    head, _, _, _, hidden, ids = parts
    marginal = torch.log_softmax(torch.randn(B, D, K + 3), -1)[..., :K]
    tables = head.pair_log_probs(hidden, ids, marginal)
    torch.testing.assert_close(
        tables.tables.exp().sum(-1), marginal[:, 1:].exp().sum(-1)[:, :, None].expand(B, D - 1, K)
    )
    assert torch.equal(tables.root_log_probs, marginal[:, 0])
    assert (tables.tables <= 0).all()


def test_noise_and_temperature_go_through_the_scores(parts):
    head, _, _, _, hidden, ids = parts
    marginal = torch.log_softmax(torch.randn(B, D, K), -1)
    noise, temperature = torch.randn(B, D, K), torch.tensor([0.0, 2.0])
    tables = head.pair_log_probs(hidden, ids, marginal, temperature, noise, scale=0.5).tables
    raw = head.pair_scores(hidden, ids)
    expected = torch.log_softmax((raw[1, 0, 3] / 2 + noise[1, 1]) / 0.5, -1)
    torch.testing.assert_close(tables[1, 0, 3], expected)
    expected = torch.log_softmax((raw[0, 2, 1] + noise[0, 3]) / 0.5, -1)
    torch.testing.assert_close(tables[0, 2, 1], expected)


def test_filtered_candidates_stay_out(parts):
    head, _, _, _, hidden, ids = parts
    marginal = torch.log_softmax(torch.randn(B, D, K), -1)
    marginal[0, 2, 4] = -torch.inf
    tables = head.pair_log_probs(hidden, ids, marginal).tables
    assert (tables[0, 1, :, 4] == -torch.inf).all()
    assert not tables.isnan().any()


@pytest.mark.parametrize("config", [HeadConfig("other", (("width", 4),)), HeadConfig("pairwise", (("rank", 4),))])
def test_unknown_heads_are_refused_by_name(config):
    with pytest.raises(UnsupportedModelError, match=config.kind):
        tensor_shapes(config, E)
