import pytest
import torch

from treegraft.models.attention import BlockInputs
from treegraft.training.block_attention import attend_blocks, dense_mask, fits_tiles, tile_mask
from treegraft.training.build import build_network, drafter_config, served_model
from treegraft.training.features import TapReader


@pytest.fixture
def network(config, target):
    network = build_network(config, drafter_config(config, target, None), target)
    with torch.no_grad():
        network.head_output.normal_()
        for layer in network.layers:
            layer.q_norm.uniform_(0.5, 1.5)
            layer.k_norm.uniform_(0.5, 1.5)
    return network


def test_training_and_serving_draft_the_same(network, target):
    tokens = torch.randint(24, (2, 30), generator=torch.Generator().manual_seed(0))
    anchors = torch.tensor([[3, 9, 20], [1, 15, 28]])
    tapped = TapReader(target, network.config.target_layer_ids, 30, False).read(tokens)
    roots = tokens.gather(1, anchors)
    hidden = network(tapped, roots, anchors, target, dense_mask(anchors, 4, 30))
    model = served_model(network, target)
    for row in range(2):
        for index, anchor in enumerate(anchors[row].tolist()):
            pool = model.allocate_pool(64)
            positions, slots = torch.arange(anchor)[None], torch.arange(1, anchor + 1)[None]
            model.write_context(tapped[row : row + 1, :anchor], positions, slots, pool)
            inputs = BlockInputs(
                torch.arange(anchor, anchor + 4)[None], slots, positions, torch.ones(1, anchor, dtype=torch.bool)
            )
            served = model.forward(roots[row, index : index + 1], inputs, pool)
            torch.testing.assert_close(hidden[row, index], served[0], atol=1e-4, rtol=1e-4)
    ids = torch.randint(24, (1, 3, 5))
    scores = model.head.pair_scores(hidden[:1, 0, 1:], ids)
    corrected = network.conditional(hidden[:1, 0, 2:], target.embed(ids[:, :-1, 2]))
    expected = (corrected[:, :, None] * target.head.weight[ids[:, 1:]]).sum(-1)
    torch.testing.assert_close(scores[:, :, 2], expected)


def test_a_later_token_changes_no_earlier_block(network, target):
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(24, (1, 30), generator=generator)
    other = tokens.clone()
    other[:, 15:] = torch.randint(24, (1, 15), generator=generator)
    anchors = torch.tensor([[2, 14, 15, 22]])
    reader = TapReader(target, network.config.target_layer_ids, 30, False)
    outputs = [
        network(reader.read(t), t.gather(1, anchors), anchors, target, dense_mask(anchors, 4, 30))
        for t in (tokens, other)
    ]
    torch.testing.assert_close(outputs[0][:, :2], outputs[1][:, :2])
    assert not torch.allclose(outputs[0][:, 2:], outputs[1][:, 2:])


def test_tiles_say_the_same_as_the_dense_mask():
    generator = torch.Generator().manual_seed(2)
    R, A, b, L, H, K, D = 2, 16, 16, 256, 4, 2, 16
    assert fits_tiles(b, A, L)
    assert not fits_tiles(12, A, L)
    anchors = torch.randint(1, L, (R, A), generator=generator).sort(1).values
    N = A * b
    q, k, v = (torch.randn(R, h, n, D, generator=generator) for h, n in ((H, N), (K, L + N), (K, L + N)))
    dense = attend_blocks(q, k, v, dense_mask(anchors, b, L))
    mask = tile_mask(anchors, b, L)
    torch.testing.assert_close(dense, attend_blocks(q, k, v, mask), atol=1e-5, rtol=1e-4)
    # The plain flex path applies mask_mod everywhere; what the sparse kernel skips or takes whole must agree with it.
    tiles = dense_mask(anchors, b, L).view(R, 1, N // 128, 128, (L + N) // 128, 128)
    some, every = tiles.any(5).any(3), tiles.all(5).all(3)
    listed = torch.zeros_like(some)
    for count, indices, only in (
        (mask.kv_num_blocks, mask.kv_indices, some),
        (mask.full_kv_num_blocks, mask.full_kv_indices, every),
    ):
        for place in torch.cartesian_prod(torch.arange(R), torch.arange(1), torch.arange(N // 128)).tolist():
            chosen = indices[tuple(place)][: count[tuple(place)]].long()
            listed[tuple(place)][chosen] = True
            assert only[tuple(place)][chosen].all()
    assert torch.equal(listed, some)
