"""Attention over token slots: the KV pool, what a forward needs to know of it, and the attention itself.

Knows no model and no scheduler: who owns which slot is decided elsewhere. Shape suffixes: B sequences, N rows of one,
S key positions, C context positions, H query heads, K key/value heads, D head dimension.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from treegraft.errors import ModelError


@dataclass(frozen=True)
class KVPool:
    """Keys and values of all token slots, [num_layers, num_slots, num_kv_heads, head_dim]. Slot 0 is scratch:
    padding rows write there, and no mask lets a real row see it."""

    keys: Tensor
    values: Tensor

    @staticmethod
    def allocate(
        num_layers: int,
        num_slots: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> "KVPool":
        """A pool of zeros (not garbage: a masked NaN would still be a NaN). Raises ModelError when it does not fit in
        memory."""
        size = (num_layers, num_slots, num_kv_heads, head_dim)
        try:
            return KVPool(torch.zeros(size, dtype=dtype, device=device), torch.zeros(size, dtype=dtype, device=device))
        except RuntimeError as error:  # out of memory, also as the CPU's allocator words it
            num_bytes = 2 * math.prod(size) * dtype.itemsize
            raise ModelError(
                f"K/V of {num_slots} tokens ({num_bytes >> 20} MiB) do not fit in the memory of {device}; lower "
                "max_context, max_running, num_slots or the budget"
            ) from error

    @property
    def num_slots(self) -> int:
        return self.keys.shape[1]


@dataclass(frozen=True)
class AttentionInputs:
    """Where the rows of one target forward stand and what they may see.

    positions [B,N] int64. write_slots [B,N] int64: where each row's K/V go. context_slots [B,S] int64: slots of the
    keys, the rows' own included. key_positions [B,S] int64. mask [B,N,S] bool, True = may see; sliding windows come on
    top of it, from the positions. A row that may see nothing gives finite numbers that mean nothing.
    """

    positions: Tensor
    write_slots: Tensor
    context_slots: Tensor
    key_positions: Tensor
    mask: Tensor


@dataclass(frozen=True)
class BlockInputs:
    """Where a drafter block stands: positions [B,b] int64; context_slots, context_positions [B,C] int64 and
    context_mask [B,C] bool for the committed context in the drafter's own pool. C may be 0."""

    positions: Tensor
    context_slots: Tensor
    context_positions: Tensor
    context_mask: Tensor


def row_fold(num_heads: int, num_kv_heads: int, device: torch.device) -> int:
    """How many times `attend` repeats the rows: CUDA's masked kernels know no grouped heads, so there the query
    heads of a group become further rows of their key head; elsewhere 1."""
    return num_heads // num_kv_heads if device.type == "cuda" else 1


class MaskBias:
    """A boolean mask [B,N,S] as the additive bias that attention takes, made once a forward for each window in use.

    fold: see row_fold. Positions are those of rows [B,N] and keys [B,S].
    """

    def __init__(self, mask: Tensor, positions: Tensor, key_positions: Tensor, dtype: torch.dtype, fold: int) -> None:
        self.mask, self.positions, self.key_positions = mask, positions, key_positions
        self.dtype, self.fold = dtype, fold
        self.biases: dict[tuple[int | None, bool | None], Tensor] = {}

    def get(self, window: int | None, is_causal: bool | None = None) -> Tensor:
        """Bias [B, 1, fold*N, S]: 0 where a row may see a key, -inf elsewhere.

        window w keeps keys less than w behind, and also less than w ahead where is_causal is False; is_causal True
        drops keys ahead; None leaves what is ahead to the mask.
        """
        key = (window, is_causal)
        if key not in self.biases:
            self.biases[key] = self._make(window, is_causal)
        return self.biases[key]

    def _make(self, window: int | None, is_causal: bool | None) -> Tensor:
        mask = self.mask
        if window is not None or is_causal:
            distance = self.positions[:, :, None] - self.key_positions[:, None, :]
            if is_causal:
                mask = mask & (distance >= 0)
            if window is not None:
                mask = mask & ((distance.abs() if is_causal is False else distance) < window)
        # A row that sees nothing would be a softmax over nothing, NaN: let it see everything instead.
        mask = mask | ~mask.any(-1, keepdim=True)
        bias = torch.zeros(mask.shape, dtype=self.dtype, device=mask.device).masked_fill_(~mask, float("-inf"))
        return bias.repeat(1, self.fold, 1)[:, None] if self.fold > 1 else bias[:, None]


def write_kv(kv: KVPool, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
    """Store keys and values [B,N,K,D] of one layer at slots [B,N]."""
    flat = slots.reshape(-1)
    kv.keys[layer].index_copy_(0, flat, keys.flatten(0, 1))
    kv.values[layer].index_copy_(0, flat, values.flatten(0, 1))


def read_kv(kv: KVPool, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values [B,S,K,D] of one layer at slots [B,S]."""
    shape = (*slots.shape, *kv.keys.shape[2:])
    flat = slots.reshape(-1)
    return kv.keys[layer].index_select(0, flat).view(shape), kv.values[layer].index_select(0, flat).view(shape)


def attend(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(D) + bias) v for queries [B,N,H,D], keys and values [B,S,K,D], bias of MaskBias;
    returns [B, N, H*D]. H / K neighbouring query heads share a key head."""
    B, N, H, D = queries.shape
    K = keys.shape[2]
    q, k, v = queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
    if bias.shape[2] == N:
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, enable_gqa=H != K)
        return mixed.transpose(1, 2).reshape(B, N, H * D)
    group = H // K
    mixed = F.scaled_dot_product_attention(q.reshape(B, K, group * N, D), k, v, attn_mask=bias)
    return mixed.view(B, K, group, N, D).permute(0, 3, 1, 2, 4).reshape(B, N, H * D)
