"""Packed layers give what plain ones give, for one row and for many; a packed pair still serves."""

from pathlib import Path

import pytest
import torch
from model_feeding import allocate, draft, feed, scattered_slots
from tiny_models import TinyShape, write_drafter, write_target

from treegraft.models.layers import Linear
from treegraft.models.packed import can_pack, pack
from treegraft.models.registry import ModelFiles, load_drafter, load_target


@pytest.mark.parametrize("rows", [1, 7, 16, 70])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_packed_layer_equals_the_plain_one(rows: int, has_bias: bool) -> None:
    linear = Linear(torch.randn(50, 33), torch.randn(50) if has_bias else None)
    x = torch.randn(2, rows, 33)
    with torch.inference_mode():
        found = pack(linear)(x)
    assert found.shape == (2, rows, 50)
    assert (found - linear(x)).abs().max() < 1e-4


def test_float16_and_other_devices_stay_plain() -> None:
    assert not can_pack(torch.ones(2, 2, dtype=torch.float16))
    assert not can_pack(torch.ones(2, 2, device="meta"))
    linear = Linear(torch.ones(2, 2, dtype=torch.float16))
    assert pack(linear) is linear


@pytest.mark.parametrize("tied", [True, False])
def test_a_packed_target_and_drafter_give_the_same(tied: bool, tmp_path: Path) -> None:
    shape = TinyShape(num_layers=3, tie_embeddings=tied)
    target_folder, drafter_folder = write_target(tmp_path / "t", shape), write_drafter(tmp_path / "d", shape)
    token_ids, slots = torch.randint(24, (2, 10)), scattered_slots(2, 10, 32)
    logits, drafted, rows = [], [], []
    for packed in (False, True):
        target = load_target(ModelFiles("folder", target_folder, "t"), torch.float32, "cpu")
        drafter = load_drafter(ModelFiles("folder", drafter_folder, "d"), target, torch.float32, "cpu")
        if packed:
            target.pack()
            drafter.pack()
        output = feed(target, token_ids, allocate(target, 32), slots, [9, 1], (0, 2))
        kv = drafter.allocate_pool(32)
        with torch.inference_mode():
            assert output.tapped is not None
            drafter.write_context(output.tapped, torch.arange(10).expand(2, -1), slots, kv)
            logits.append(target.logits(output.hidden))
            drafted.append(drafter.logits(draft(drafter, torch.tensor([1, 2]), 10, kv, slots, width=5)))
            rows.append(target.head_rows(torch.tensor([3, 0])))
    assert (logits[0] - logits[1]).abs().max() < 1e-4
    assert (drafted[0] - drafted[1]).abs().max() < 1e-4
    assert torch.equal(rows[0], rows[1])
