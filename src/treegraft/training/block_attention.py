"""Attention of many draft blocks at once over one row: who sees what, densely or as sparse tiles.

A row has L context positions and A blocks of b rows. Query n belongs to block n // b with anchor a (the position of its
root token): it sees the context before a, and its own block's b rows, nothing of other blocks.

    keys:  [ context 0 .. L-1 | block 0's b rows | block 1's | ... ]

Shape suffixes: R rows, N = A*b queries, S = L + N keys, H query heads, K key heads, D head dimension.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

TILE = 128


def dense_mask(anchors_RA: Tensor, block_size: int, context: int) -> Tensor:
    """bool [R, 1, N, S], True = may see."""
    owner_N = torch.arange(anchors_RA.shape[1], device=anchors_RA.device).repeat_interleave(block_size)
    before = torch.arange(context, device=anchors_RA.device) < anchors_RA[:, owner_N, None]
    own = (owner_N[:, None] == owner_N).expand(len(anchors_RA), -1, -1)
    return torch.cat([before, own], dim=-1)[:, None]


def fits_tiles(block_size: int, num_anchors: int, context: int) -> bool:
    """Whether tile_mask can describe blocks of this size."""
    return TILE % block_size == 0 and num_anchors * block_size % TILE == 0 and context % TILE == 0


def tile_mask(anchors_RA: Tensor, block_size: int, context: int) -> Any:
    """The same mask as a BlockMask for flex attention. anchors_RA must ascend in each row: then a tile of queries needs
    few tiles of keys. Waits for no device."""
    from torch.nn.attention.flex_attention import BlockMask

    R, A = anchors_RA.shape
    N, device = A * block_size, anchors_RA.device
    tiles_R = anchors_RA.view(R, N // TILE, TILE // block_size)
    first, last = tiles_R[..., :1], tiles_R[..., -1:]
    ends = torch.arange(1, context // TILE + 1, device=device) * TILE
    is_full = ends <= first
    is_partial = ~is_full & (ends - TILE < last)
    own = torch.eye(N // TILE, dtype=torch.bool, device=device).expand(R, -1, -1)
    partial = torch.cat([is_partial, own], dim=-1)[:, None]
    full = torch.cat([is_full, torch.zeros_like(own)], dim=-1)[:, None]

    def may_see(r: Tensor, _h: Tensor, n: Tensor, s: Tensor) -> Tensor:
        block = n // block_size
        return torch.where(s < context, s < anchors_RA[r, block], (s - context) // block_size == block)

    return BlockMask.from_kv_blocks(
        *_ordered(partial), *_ordered(full), BLOCK_SIZE=TILE, mask_mod=may_see, seq_lengths=(N, context + N)
    )


def _ordered(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """(count int32, indices int32 with the set ones first) of bool tiles along the last dimension."""
    order = tiles.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return tiles.sum(-1, dtype=torch.int32), order.to(torch.int32)


@cache
def _compiled_flex() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


def attend_blocks(q_RHND: Tensor, k_RKSD: Tensor, v_RKSD: Tensor, mask: Any) -> Tensor:
    """softmax(q k^T / sqrt(D)) v under a mask of dense_mask or tile_mask: [R, H, N, D]."""
    if isinstance(mask, Tensor):
        return F.scaled_dot_product_attention(
            q_RHND, k_RKSD, v_RKSD, attn_mask=mask, enable_gqa=q_RHND.shape[1] != k_RKSD.shape[1]
        )
    return flex(q_RHND, k_RKSD, v_RKSD, mask)


def flex(q_RHND: Tensor, k_RKSD: Tensor, v_RKSD: Tensor, mask: Any) -> Tensor:
    """Flex attention: part of the caller's graph where that is being compiled, else compiled by itself on CUDA."""
    from torch.nn.attention.flex_attention import flex_attention

    is_plain = torch.compiler.is_compiling() or not q_RHND.is_cuda
    function: Any = flex_attention if is_plain else _compiled_flex()
    mixed: Tensor = function(q_RHND, k_RKSD, v_RKSD, block_mask=mask, enable_gqa=q_RHND.shape[1] != k_RKSD.shape[1])
    return mixed
