"""Feeds plain sequences through a target or drafter over a slot pool, the way an engine would but without one."""

import torch
from torch import Tensor

from treegraft.models.attention import AttentionInputs, BlockInputs, KVPool
from treegraft.models.drafter_block import DrafterModel
from treegraft.models.target import TargetModel, TargetOutput


def allocate(target: TargetModel, num_slots: int) -> KVPool:
    c = target.config
    return KVPool.allocate(c.num_layers, num_slots, c.num_kv_heads, c.head_dim, target.dtype, target.device)


def causal_inputs(slots: Tensor, start: int, count: int) -> AttentionInputs:
    """Rows start .. start+count of sequences whose token t lies at slots[:, t] ([B, >= start+count] int64)."""
    batch = slots.shape[0]
    positions = torch.arange(start, start + count).expand(batch, -1)
    key_positions = torch.arange(start + count).expand(batch, -1)
    return AttentionInputs(
        positions=positions,
        write_slots=slots[:, start : start + count],
        context_slots=slots[:, : start + count],
        key_positions=key_positions,
        mask=key_positions[:, None, :] <= positions[:, :, None],
    )


def scattered_slots(batch: int, length: int, num_slots: int, seed: int = 0) -> Tensor:
    """Distinct slots in random order (slot 0 left out), [batch, length] int64."""
    order = torch.randperm(num_slots - 1, generator=torch.Generator().manual_seed(seed)) + 1
    return order[: batch * length].view(batch, length)


@torch.inference_mode()
def feed(
    target: TargetModel, token_ids: Tensor, kv: KVPool, slots: Tensor, chunks: list[int], taps: tuple[int, ...] = ()
) -> TargetOutput:
    """The sequences [B, N] in consecutive chunks; outputs of all rows, put together."""
    outputs, start = [], 0
    for count in chunks:
        rows = token_ids[:, start : start + count]
        outputs.append(target.forward(rows, causal_inputs(slots, start, count), kv, taps))
        start += count
    assert start == token_ids.shape[1]
    tapped = [output.tapped for output in outputs if output.tapped is not None]
    return TargetOutput(torch.cat([o.hidden for o in outputs], 1), torch.cat(tapped, 1) if tapped else None)


@torch.inference_mode()
def draft(drafter: DrafterModel, last_tokens: Tensor, length: int, kv: KVPool, slots: Tensor, width: int) -> Tensor:
    """Hidden states [B, width, E] of a block after `length` committed tokens."""
    batch = slots.shape[0]
    inputs = BlockInputs(
        positions=torch.arange(length, length + width).expand(batch, -1),
        context_slots=slots[:, :length],
        context_positions=torch.arange(length).expand(batch, -1),
        context_mask=torch.ones(batch, length, dtype=torch.bool),
    )
    return drafter.forward(last_tokens, inputs, kv)
