"""Triton kernels of one decode step for many sequences that all stand at the same position. CUDA only; the torch twins
and the shapes are in decode_step.py. The position and the step counter are read from device memory, so that one
captured graph serves every step.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

MIN_DOT_ROWS = 16  # tl.dot wants at least so many rows


@triton.jit
def _add_rms_norm(x_ptr, delta_ptr, weight_ptr, out_ptr, size, eps, HAS_DELTA: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * size
    cols = tl.arange(0, BLOCK)
    mask = cols < size
    x = tl.load(x_ptr + row + cols, mask=mask, other=0.0)
    if HAS_DELTA:
        x += tl.load(delta_ptr + row + cols, mask=mask, other=0.0)
        tl.store(x_ptr + row + cols, x, mask=mask)
    wide = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / size + eps)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row + cols, (wide * scale * weight).to(x.dtype), mask=mask)


def add_rms_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    out = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    _add_rms_norm[(x.shape[0],)](
        x, x if delta is None else delta, weight, out, x.shape[1], eps, HAS_DELTA=delta is not None, BLOCK=block
    )
    return out


@triton.jit
def _silu_mul(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < size
    gate = tl.load(x_ptr + row * 2 * size + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * size + size + cols, mask=mask, other=0.0).to(tl.float32)
    value = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out_ptr + row * size + cols, value.to(out_ptr.dtype.element_ty), mask=mask)


def silu_mul(gate_up: Tensor) -> Tensor:
    size = gate_up.shape[1] // 2
    out = torch.empty((gate_up.shape[0], size), dtype=gate_up.dtype, device=gate_up.device)
    _silu_mul[(gate_up.shape[0], triton.cdiv(size, 512))](gate_up, out, size, BLOCK=512)
    return out


@triton.jit
def _rope_store(
    qkv_ptr,
    norm_ptr,
    cos_ptr,
    sin_ptr,
    position_ptr,
    key_ptr,
    value_ptr,
    num_positions,
    eps,
    H: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    HAS_NORM: tl.constexpr,
    HEADS: tl.constexpr,
):
    # One program a sequence; a head's halves [HEADS, D/2] are turned together.
    half: tl.constexpr = D // 2
    row = tl.program_id(0).to(tl.int64)
    position = tl.load(position_ptr)
    heads = tl.arange(0, HEADS)[:, None]
    dims = tl.arange(0, half)[None, :]
    base = qkv_ptr + row * (H + 2 * K) * D + heads * D + dims
    mask = heads < H + 2 * K
    first = tl.load(base, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(base + half, mask=mask, other=0.0).to(tl.float32)
    if HAS_NORM:
        is_turned = heads < H + K
        mean = (tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1))[:, None] / D
        scale = tl.rsqrt(mean + eps)
        w_first = tl.load(norm_ptr + heads * D + dims, mask=is_turned, other=1.0).to(tl.float32)
        w_second = tl.load(norm_ptr + heads * D + half + dims, mask=is_turned, other=1.0).to(tl.float32)
        first = tl.where(is_turned, first * scale * w_first, first)
        second = tl.where(is_turned, second * scale * w_second, second)
    cos = tl.load(cos_ptr + position * half + dims)
    sin = tl.load(sin_ptr + position * half + dims)
    turned_first = first * cos - second * sin
    turned_second = second * cos + first * sin
    is_query = heads < H
    dtype = qkv_ptr.dtype.element_ty
    tl.store(base, turned_first.to(dtype), mask=is_query)
    tl.store(base + half, turned_second.to(dtype), mask=is_query)
    is_key = (heads >= H) & (heads < H + K)
    key = key_ptr + ((row * K + heads - H) * num_positions + position) * D + dims
    tl.store(key, turned_first.to(dtype), mask=is_key)
    tl.store(key + half, turned_second.to(dtype), mask=is_key)
    is_value = (heads >= H + K) & mask
    value = value_ptr + ((row * K + heads - H - K) * num_positions + position) * D + dims
    tl.store(value, first.to(dtype), mask=is_value)
    tl.store(value + half, second.to(dtype), mask=is_value)


def rope_store(
    qkv: Tensor,
    qk_norm: Tensor | None,
    table: tuple[Tensor, Tensor],
    position: Tensor,
    cache: tuple[Tensor, Tensor],
    num_heads: int,
    eps: float,
) -> None:
    keys, values = cache
    K, D = keys.shape[1], keys.shape[3]
    _rope_store[(qkv.shape[0],)](
        qkv,
        qkv if qk_norm is None else qk_norm,
        *table,
        position,
        keys,
        values,
        keys.shape[2],
        eps,
        H=num_heads,
        K=K,
        D=D,
        HAS_NORM=qk_norm is not None,
        HEADS=triton.next_power_of_2(num_heads + 2 * K),
    )


@triton.jit
def _attend_cached(
    qkv_ptr,
    position_ptr,
    key_ptr,
    value_ptr,
    out_ptr,
    num_positions,
    scale,
    H: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # One program for a sequence and a key head; its group's query heads are the (padded) rows of the dot.
    group: tl.constexpr = H // K
    row = tl.program_id(0).to(tl.int64)
    kv = tl.program_id(1)
    num_keys = (tl.load(position_ptr) + 1).to(tl.int32)
    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, D)
    is_row = (rows < group)[:, None]
    q = tl.load(
        qkv_ptr + row * (H + 2 * K) * D + (kv * group + rows)[:, None] * D + dims[None, :], mask=is_row, other=0.0
    )
    base = (row * K + kv) * num_positions * D
    best = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, D], tl.float32)
    for start in range(0, num_keys, BLOCK):
        at = start + tl.arange(0, BLOCK)
        is_key = at < num_keys
        offsets = base + at[:, None] * D + dims[None, :]
        k = tl.load(key_ptr + offsets, mask=is_key[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = tl.where(is_key[None, :], scores, -float("inf"))
        new_best = tl.maximum(best, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_best[:, None])
        shrink = tl.exp(best - new_best)
        total = total * shrink + tl.sum(weights, axis=1)
        v = tl.load(value_ptr + offsets, mask=is_key[:, None], other=0.0)
        mixed = mixed * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        best = new_best
    out = mixed / total[:, None]
    where = out_ptr + row * H * D + (kv * group + rows)[:, None] * D + dims[None, :]
    tl.store(where, out.to(out_ptr.dtype.element_ty), mask=is_row)


def attend_cached(qkv: Tensor, position: Tensor, cache: tuple[Tensor, Tensor], num_heads: int) -> Tensor:
    keys, values = cache
    B, K, T, D = keys.shape
    out = torch.empty((B, num_heads * D), dtype=qkv.dtype, device=qkv.device)
    _attend_cached[(B, K)](
        qkv,
        position,
        keys,
        values,
        out,
        T,
        D**-0.5,
        H=num_heads,
        K=K,
        D=D,
        ROWS=max(MIN_DOT_ROWS, triton.next_power_of_2(num_heads // K)),
        BLOCK=64,
        num_warps=4,
    )
    return out


@triton.jit
def _sample(logits_ptr, temperature_ptr, min_p_ptr, key_ptr, out_ptr, size, stride, BLOCK: tl.constexpr):
    # Pass 1: the row's maximum and argmax (greedy rows are done). Pass 2: argmax of logits / T + Gumbel noise.
    row = tl.program_id(0)
    base = logits_ptr + row.to(tl.int64) * stride
    cols = tl.arange(0, BLOCK)
    best = -float("inf")
    best_id = 0
    for start in range(0, size, BLOCK):
        logits = tl.load(base + start + cols, mask=start + cols < size, other=-float("inf")).to(tl.float32)
        top = tl.max(logits, axis=0)
        place = tl.argmax(logits, axis=0) + start
        best_id = tl.where(top > best, place, best_id)
        best = tl.maximum(top, best)
    temperature = tl.load(temperature_ptr + row)
    if temperature > 0:
        floor = best + temperature * tl.log(tl.load(min_p_ptr + row))
        seed = tl.load(key_ptr) + tl.load(key_ptr + 1) * tl.num_programs(0) + row
        best = -float("inf")
        for start in range(0, size, BLOCK):
            logits = tl.load(base + start + cols, mask=start + cols < size, other=-float("inf")).to(tl.float32)
            uniform = tl.maximum(tl.rand(seed, start + cols), 1e-10)
            scores = logits / temperature - tl.log(-tl.log(uniform))
            scores = tl.where(logits >= floor, scores, -float("inf"))
            top = tl.max(scores, axis=0)
            place = tl.argmax(scores, axis=0) + start
            best_id = tl.where(top > best, place, best_id)
            best = tl.maximum(top, best)
    tl.store(out_ptr + row, tl.cast(best_id, tl.int64))


def sample(logits: Tensor, temperature: Tensor, min_p: Tensor, key: Tensor) -> Tensor:
    out = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
    block = min(4096, triton.next_power_of_2(logits.shape[1]))
    _sample[(logits.shape[0],)](
        logits, temperature, min_p, key, out, logits.shape[1], logits.stride(0), BLOCK=block, num_warps=8
    )
    return out
