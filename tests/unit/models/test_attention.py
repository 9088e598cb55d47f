"""Attention over slots against a plain softmax, on the grouped path and on the one that CUDA takes."""

import pytest
import torch

from treegraft.models.attention import KVPool, MaskBias, attend, read_kv, row_fold, write_kv


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """softmax(q k^T / sqrt(D)) v, one query head at a time; [B, N, H*D]."""
    group = q.shape[2] // k.shape[2]
    heads = []
    for head in range(q.shape[2]):
        scores = q[:, :, head] @ k[:, :, head // group].transpose(1, 2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(~mask, float("-inf"))
        heads.append(scores.softmax(-1) @ v[:, :, head // group])
    return torch.cat(heads, -1)


def seen(positions: torch.Tensor, keys: torch.Tensor, window: int | None, causal: bool | None) -> torch.Tensor:
    """The window's meaning, pair by pair."""
    mask = torch.ones(*positions.shape, keys.shape[1], dtype=torch.bool)
    for b, n, s in mask.nonzero().tolist():
        behind = int(positions[b, n] - keys[b, s])
        if causal and behind < 0:
            mask[b, n, s] = False
        if window is not None and (behind >= window or (causal is False and -behind >= window)):
            mask[b, n, s] = False
    return mask


@pytest.mark.parametrize("fold", [1, 3])
@pytest.mark.parametrize(("window", "causal"), [(None, None), (3, None), (3, True), (3, False), (None, True)])
def test_attention_equals_plain_softmax(fold: int, window: int | None, causal: bool | None) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 5, 6, 8), torch.randn(2, 9, 2, 8), torch.randn(2, 9, 2, 8)
    positions, key_positions = torch.arange(4, 9).expand(2, -1), torch.arange(9).expand(2, -1)
    mask = torch.rand(2, 5, 9) < 0.7
    mask[:, torch.arange(5), torch.arange(4, 9)] = True  # each row sees itself
    bias = MaskBias(mask, positions, key_positions, torch.float32, fold).get(window, causal)
    assert bias.shape == (2, 1, 5 * fold, 9)
    expected = plain(q, k, v, mask & seen(positions, key_positions, window, causal))
    assert (attend(q, k, v, bias) - expected).abs().max() < 1e-5


@pytest.mark.parametrize("fold", [1, 3])
def test_rows_that_see_nothing_are_finite_and_change_no_other_row(fold: int) -> None:
    q, k, v = torch.randn(1, 3, 6, 8), torch.randn(1, 4, 2, 8), torch.randn(1, 4, 2, 8)
    positions, key_positions = torch.arange(3)[None], torch.arange(4)[None]
    mask = torch.ones(1, 3, 4, dtype=torch.bool)
    whole = attend(q, k, v, MaskBias(mask, positions, key_positions, torch.float32, fold).get(None))
    mask = mask.clone()
    mask[0, 1] = False
    blind = attend(q, k, v, MaskBias(mask, positions, key_positions, torch.float32, fold).get(None))
    assert torch.isfinite(blind).all()
    assert torch.equal(blind[0, [0, 2]], whole[0, [0, 2]])


def test_slots_hold_what_was_written_and_only_there() -> None:
    kv = KVPool.allocate(2, 10, 2, 4, torch.float32, "cpu")
    keys, values = torch.randn(2, 3, 2, 4), torch.randn(2, 3, 2, 4)
    slots = torch.tensor([[7, 2, 5], [1, 9, 3]])
    write_kv(kv, 1, slots, keys, values)
    for found, written in zip(read_kv(kv, 1, slots), (keys, values), strict=True):
        assert torch.equal(found, written)
    assert not kv.keys[0].any()
    assert not kv.keys[1, [0, 4, 6, 8]].any()


def test_rows_are_folded_on_cuda_only() -> None:
    assert row_fold(12, 4, torch.device("cpu")) == 1
    assert row_fold(12, 4, torch.device("cuda")) == 3
