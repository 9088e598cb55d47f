"""The parts that target and drafter layers are made of: rotary embedding, norm, gated MLP, fused weights.

Knows no attention, no checkpoint and no model. Shape suffixes: B sequences, N rows of one, E hidden, H query heads,
K key/value heads, D head dimension, I intermediate.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from treegraft.models.config import RopeScaling

TensorSource = Callable[[str], Tensor]


@dataclass(frozen=True)
class Linear:
    """y = x weight^T + bias; weight [out, in]."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer, projections fused by output rows: qkv is q [H*D], k [K*D], v [K*D]; gate_up is gate [I],
    up [I]. qk_norm [H+K, D]: a norm weight for each q and k head, None without q/k norms."""

    input_norm: Tensor
    qkv: Linear
    qk_norm: Tensor | None
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class DecoderShape(Protocol):
    """What both ModelConfig and DrafterConfig say about a decoder layer."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...


@dataclass(frozen=True)
class LayerParts:
    """Which optional tensors a layer has."""

    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool


def layer_shapes(shape: DecoderShape, parts: LayerParts, prefix: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a layer's tensors as Hugging Face spells them, below `prefix` ("model.layers.3.")."""
    E, I, D = shape.hidden_size, shape.intermediate_size, shape.head_dim
    q, kv = shape.num_heads * D, shape.num_kv_heads * D
    matrices = {
        "self_attn.q_proj": ((q, E), parts.qkv_bias),
        "self_attn.k_proj": ((kv, E), parts.qkv_bias),
        "self_attn.v_proj": ((kv, E), parts.qkv_bias),
        "self_attn.o_proj": ((E, q), parts.output_bias),
        "mlp.gate_proj": ((I, E), parts.mlp_bias),
        "mlp.up_proj": ((I, E), parts.mlp_bias),
        "mlp.down_proj": ((E, I), parts.mlp_bias),
    }
    names: dict[str, tuple[int, ...]] = {
        f"{prefix}input_layernorm.weight": (E,),
        f"{prefix}post_attention_layernorm.weight": (E,),
    }
    for name, (dimensions, has_bias) in matrices.items():
        names[f"{prefix}{name}.weight"] = dimensions
        if has_bias:
            names[f"{prefix}{name}.bias"] = dimensions[:1]
    if parts.qk_norm:
        names[f"{prefix}self_attn.q_norm.weight"] = (D,)
        names[f"{prefix}self_attn.k_norm.weight"] = (D,)
    return names


def load_layer(source: TensorSource, shape: DecoderShape, parts: LayerParts, prefix: str) -> LayerWeights:
    """Fuse one layer's tensors; `source(name)` gives each in the serving dtype on the serving device."""

    def fused(names: tuple[str, ...], has_bias: bool) -> Linear:
        weights = [source(f"{prefix}{name}.weight") for name in names]
        biases = [source(f"{prefix}{name}.bias") for name in names] if has_bias else []
        if len(names) == 1:
            return Linear(weights[0], biases[0] if biases else None)
        return Linear(torch.cat(weights), torch.cat(biases) if biases else None)

    qk_norm = None
    if parts.qk_norm:
        q_norm, k_norm = source(f"{prefix}self_attn.q_norm.weight"), source(f"{prefix}self_attn.k_norm.weight")
        qk_norm = torch.cat([q_norm.expand(shape.num_heads, -1), k_norm.expand(shape.num_kv_heads, -1)])
    return LayerWeights(
        input_norm=source(f"{prefix}input_layernorm.weight"),
        qkv=fused(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), parts.qkv_bias),
        qk_norm=qk_norm,
        output=fused(("self_attn.o_proj",), parts.output_bias),
        mlp_norm=source(f"{prefix}post_attention_layernorm.weight"),
        gate_up=fused(("mlp.gate_proj", "mlp.up_proj"), parts.mlp_bias),
        down=fused(("mlp.down_proj",), parts.mlp_bias),
    )


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension (arXiv 1910.07467)."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def head_norm(heads: Tensor, weight: Tensor, eps: float) -> Tensor:
    """rms_norm of each head [..., heads, D] with a weight of its own [heads, D]."""
    return F.rms_norm(heads, (heads.shape[-1],), None, eps) * weight


def gated_mlp(x: Tensor, gate_up: Linear, down: Linear) -> Tensor:
    """down(silu(gate(x)) * up(x)) (arXiv 2002.05202)."""
    gate, up = gate_up(x).chunk(2, dim=-1)
    return down(F.silu(gate) * up)


class Rope:
    """Rotary embedding (arXiv 2104.09864) in the half-split layout of Hugging Face checkpoints.

    Cosines and sines are made once a forward from the rows' positions: no table, hence no limit of its own and
    nothing to rebuild under a captured graph.
    """

    def __init__(self, head_dim: int, theta: float, scaling: RopeScaling | None, device: torch.device) -> None:
        self.frequencies = rope_frequencies(head_dim, theta, scaling).to(device)
        self.factor = scaling.attention_factor if scaling is not None else 1.0

    def angles(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos, sin [B, N, 1, D] for positions [B, N] int64; sin carries the sign of rotate_half."""
        half = positions[..., None, None].float() * self.frequencies
        cos, sin = half.cos() * self.factor, half.sin() * self.factor
        return torch.cat([cos, cos], -1).to(dtype), torch.cat([-sin, sin], -1).to(dtype)


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of heads [B, N, heads, D] with `Rope.angles`; returns a new tensor."""
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin)


def rope_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> Tensor:
    """Angle per position of each pair, float32 [D/2]: theta^(-2i/D), stretched as `scaling` says."""
    powers = theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    frequencies = 1.0 / powers
    if scaling is None:
        return frequencies
    if scaling.frequency_divisors:
        return frequencies / torch.tensor(scaling.frequency_divisors, dtype=torch.float32)
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind == "llama3":
        # Share of the unscaled frequency by rotations over the original context: 0 below low, 1 above high.
        rotations = scaling.original_max_context * frequencies / (2 * math.pi)
        kept = (rotations - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
        kept = kept.clamp(0, 1)
    else:
        kept = 1 - _yarn_ramp(head_dim, theta, scaling)
    return frequencies * kept + frequencies / scaling.factor * (1 - kept)


def _yarn_ramp(head_dim: int, theta: float, scaling: RopeScaling) -> Tensor:
    """Share of interpolation per pair: 0 where a pair turns more than beta_fast times over the original context,
    1 where it turns less than beta_slow times (arXiv 2309.00071, section 3.2)."""

    def pair_with(rotations: float) -> float:
        return head_dim * math.log(scaling.original_max_context / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_with(scaling.beta_fast), pair_with(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    return ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
