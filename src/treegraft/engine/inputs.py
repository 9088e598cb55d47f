"""Packs rows of several sequences into the padded tensors of one pass. Knows slots and positions, not who owns them.

One sequence's rows in a target pass, n rows after `length` tokens that have K/V:

    keys       context 0 .. length-1 | row 0 .. row n-1
    mask       all true              | causal (prefill) or ancestors and self (tree)
    positions  0 .. length-1         | length + depth of the row (prefill: length + index)

Padding rows and keys use slot 0; a padding row may see key 0, so that attention stays finite there.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from treegraft.models.attention import AttentionInputs, BlockInputs


@dataclass(frozen=True)
class Rows:
    """tokens int64 [n]; offsets int64 [n], position minus `len(context)`; slots int64 [n], where the rows' K/V go;
    context int64 [length], slots of what is before; visible bool [n, n], which rows a row sees."""

    tokens: NDArray[np.int64]
    offsets: NDArray[np.int64]
    slots: NDArray[np.int64]
    context: NDArray[np.int64]
    visible: NDArray[np.bool_]


def prefill_rows(tokens: Seq[int], slots: NDArray[np.int64], context: NDArray[np.int64]) -> Rows:
    """Rows of the next len(tokens) prompt tokens."""
    count = len(tokens)
    return Rows(
        np.asarray(tokens, np.int64),
        np.arange(count),
        slots,
        context,
        np.tril(np.ones((count, count), np.bool_)),
    )


def pack_rows(batch: Seq[Rows], device: torch.device) -> tuple[torch.Tensor, AttentionInputs]:
    """token ids int64 [B, N] and the attention inputs of one target pass, padded to the longest of each."""
    num_rows = max(len(rows.tokens) for rows in batch)
    num_keys = max(len(rows.tokens) + len(rows.context) for rows in batch)
    size = len(batch)
    tokens = np.zeros((size, num_rows), np.int64)
    positions = np.zeros((size, num_rows), np.int64)
    write_slots = np.zeros((size, num_rows), np.int64)
    context_slots = np.zeros((size, num_keys), np.int64)
    key_positions = np.zeros((size, num_keys), np.int64)
    mask = np.zeros((size, num_rows, num_keys), np.bool_)
    for b, rows in enumerate(batch):
        count, length = len(rows.tokens), len(rows.context)
        tokens[b, :count] = rows.tokens
        positions[b, :count] = length + rows.offsets
        write_slots[b, :count] = rows.slots
        context_slots[b, :length] = rows.context
        context_slots[b, length : length + count] = rows.slots
        key_positions[b, :length] = np.arange(length)
        key_positions[b, length : length + count] = length + rows.offsets
        mask[b, :count, :length] = True
        mask[b, :count, length : length + count] = rows.visible
        mask[b, count:, 0] = True
    inputs = AttentionInputs(
        positions=_send(positions, device),
        write_slots=_send(write_slots, device),
        context_slots=_send(context_slots, device),
        key_positions=_send(key_positions, device),
        mask=_send(mask, device),
    )
    return _send(tokens, device), inputs


def pack_blocks(contexts: Seq[NDArray[np.int64]], block_size: int, device: torch.device) -> BlockInputs:
    """Inputs of one drafter pass: each block follows its context, int64 [length] slots."""
    size, longest = len(contexts), max(len(context) for context in contexts)
    positions = np.zeros((size, block_size), np.int64)
    context_slots = np.zeros((size, longest), np.int64)
    context_positions = np.zeros((size, longest), np.int64)
    context_mask = np.zeros((size, longest), np.bool_)
    for b, context in enumerate(contexts):
        length = len(context)
        positions[b] = length + np.arange(block_size)
        context_slots[b, :length] = context
        context_positions[b, :length] = np.arange(length)
        context_mask[b, :length] = True
    return BlockInputs(
        positions=_send(positions, device),
        context_slots=_send(context_slots, device),
        context_positions=_send(context_positions, device),
        context_mask=_send(context_mask, device),
    )


def _send(array: NDArray[np.int64] | NDArray[np.bool_], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(array).to(device, non_blocking=True)
