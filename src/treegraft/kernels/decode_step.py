"""One decode step for many sequences that all stand at the same position, over a cache of their own.

The parts between the matrix products: norm, rotary embedding with the cache write, attention over the cache, gated
activation, sampling. On CUDA they are Triton kernels (decode_step_triton.py); elsewhere the few lines below, which are
also what the kernels are tested against. Knows no model and no conversation.

Shape suffixes: B sequences, T positions of the cache, H query heads, K key/value heads, D head dimension, V vocabulary.
The position (and the sampling key) are tensors: on a device they are read when the step runs, so a captured graph can
be replayed for every position.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

Cache = tuple[Tensor, Tensor]
"""Keys (after rotary embedding) and values of one layer, each [B, K, T, D]."""


def rope_table(frequencies: Tensor, factor: float, num_positions: int) -> Cache:
    """cos, sin float32 [T, D/2] for `layers.Rope`'s frequencies [D/2] and factor."""
    angles = torch.arange(num_positions, device=frequencies.device)[:, None].float() * frequencies
    return (angles.cos() * factor).contiguous(), (angles.sin() * factor).contiguous()


def add_rms_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """x += delta in place, then rms_norm(x) * weight. x, delta: [B, E]; weight: [E]."""
    if x.is_cuda:
        from treegraft.kernels import decode_step_triton

        return decode_step_triton.add_rms_norm(x, delta, weight, eps)
    if delta is not None:
        x += delta
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) * up of [B, 2I], gate first: [B, I]."""
    if gate_up.is_cuda:
        from treegraft.kernels import decode_step_triton

        return decode_step_triton.silu_mul(gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def rope_store(
    qkv: Tensor, qk_norm: Tensor | None, table: Cache, position: Tensor, cache: Cache, num_heads: int, eps: float
) -> None:
    """Normalise (qk_norm [H+K, D] or None) and turn queries and keys of qkv [B, (H+2K)*D]: queries stay in place, keys
    and values go to the cache at `position` (int64 [1])."""
    if qkv.is_cuda:
        from treegraft.kernels import decode_step_triton

        return decode_step_triton.rope_store(qkv, qk_norm, table, position, cache, num_heads, eps)
    keys, values = cache
    K, D = keys.shape[1], keys.shape[3]
    heads = qkv.view(len(qkv), num_heads + 2 * K, D)
    turned = heads[:, : num_heads + K]
    if qk_norm is not None:
        turned = F.rms_norm(turned, (D,), None, eps) * qk_norm
    cos, sin = table[0][position], table[1][position]
    first, second = turned.chunk(2, dim=-1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(qkv.dtype)
    at = int(position)
    keys[:, :, at] = turned[:, num_heads:]
    values[:, :, at] = heads[:, num_heads + K :]
    heads[:, :num_heads] = turned[:, :num_heads]
    return None


def attend_cached(qkv: Tensor, position: Tensor, cache: Cache, num_heads: int) -> Tensor:
    """Attention of the queries in qkv (after rope_store) over cache positions 0 .. position: [B, H*D]."""
    if qkv.is_cuda:
        from treegraft.kernels import decode_step_triton

        return decode_step_triton.attend_cached(qkv, position, cache, num_heads)
    keys, values = cache
    K, D = keys.shape[1], keys.shape[3]
    end = int(position) + 1
    queries = qkv.view(len(qkv), num_heads + 2 * K, D)[:, :num_heads, None]
    mixed = F.scaled_dot_product_attention(queries, keys[:, :, :end], values[:, :, :end], enable_gqa=num_heads != K)
    return mixed.reshape(len(qkv), num_heads * D)


def sample(logits: Tensor, temperature: Tensor, min_p: Tensor, key: Tensor) -> Tensor:
    """Next tokens int64 [B] of logits [B, V]: argmax where temperature (float32 [B]) is 0, else a draw from
    softmax(logits / T) over tokens at least min_p (float32 [B], > 0: 1e-30 switches it off) times as likely as the
    best. key: int64 [2], a seed and the step; a draw depends on both, the row and the token alone (on one device).
    """
    if logits.is_cuda:
        from treegraft.kernels import decode_step_triton

        return decode_step_triton.sample(logits, temperature, min_p, key)
    generator = torch.Generator().manual_seed(int(key[0]) + int(key[1]) * len(logits))
    scores = logits.float()
    divisor = torch.where(temperature > 0, temperature, 1.0)[:, None]
    floor = scores.amax(-1, keepdim=True) + divisor * min_p.log()[:, None]
    noise = -torch.log(torch.empty_like(scores).exponential_(generator=generator).clamp(min=1e-30))
    drawn = (scores / divisor + noise).masked_fill(scores < floor, -torch.inf)
    return torch.where((temperature > 0)[:, None], drawn, scores).argmax(-1)
