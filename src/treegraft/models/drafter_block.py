"""The DFlash drafter (published layout): a block of masks that attends to the target's tapped hidden states.

The context's K/V are written once, from what the target's pass left behind; a block's own K/V live for one forward.
Knows no tree and no sampling; callers wrap it in torch.inference_mode.

Shape suffixes: B sequences, N rows, b block rows, C context positions, T taps, L layers, E hidden, K key/value heads,
D head dimension.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from treegraft.models.attention import BlockInputs, KVPool, MaskBias, attend, read_kv, row_fold
from treegraft.models.config import DrafterConfig
from treegraft.models.layers import (
    LayerParts,
    LayerWeights,
    Linear,
    Rope,
    TensorSource,
    gated_mlp,
    head_norm,
    layer_shapes,
    load_layer,
    rms_norm,
    rotate,
)
from treegraft.models.packed import pack, pack_layer
from treegraft.models.target import TargetModel

if TYPE_CHECKING:
    from treegraft.models.head import ConditionalHead


def tensor_shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a drafter's tensors; those of a conditional head come on top (models/head.py)."""
    E = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (E, len(config.target_layer_ids) * E),
        "hidden_norm.weight": (E,),
        "norm.weight": (E,),
    }
    for i in range(config.num_layers):
        shapes.update(layer_shapes(config, _parts(config), f"layers.{i}."))
    return shapes


def _parts(config: DrafterConfig) -> LayerParts:
    return LayerParts(config.attention_bias, config.attention_bias, mlp_bias=False, qk_norm=True)


@dataclass(frozen=True)
class ContextWeights:
    """k and v projections of all layers as one matrix [L*2*K*D, E] (layer by layer, k before v), and the k norms
    [L, 1, D]: committed tokens go through every layer's projections at once."""

    kv: Linear
    k_norm: Tensor


class DrafterModel:
    """Weights and the two passes of a drafter. Embedding and LM head are the target's."""

    def __init__(
        self,
        config: DrafterConfig,
        source: TensorSource,
        target: TargetModel,
        head: "ConditionalHead | None" = None,
    ) -> None:
        self.config, self.target, self.head = config, target, head
        self.fc = Linear(source("fc.weight"))
        self.hidden_norm, self.final_norm = source("hidden_norm.weight"), source("norm.weight")
        self.layers = [load_layer(source, config, _parts(config), f"layers.{i}.") for i in range(config.num_layers)]
        self.context = _context_weights(config, self.layers)
        self.rope = Rope(config.head_dim, config.rope_theta, config.rope_scaling, target.device)

    def pack(self) -> None:
        """Give up the plain weights for packed ones where the machine has them (CPUs); serving only."""
        self.fc = pack(self.fc)
        self.layers = [pack_layer(layer) for layer in self.layers]
        self.context = replace(self.context, kv=pack(self.context.kv))

    @property
    def dtype(self) -> torch.dtype:
        return self.hidden_norm.dtype

    @property
    def device(self) -> torch.device:
        return self.hidden_norm.device

    def allocate_pool(self, num_slots: int) -> KVPool:
        """A pool of the drafter's own, slot for slot beside the target's."""
        c = self.config
        return KVPool.allocate(c.num_layers, num_slots, c.num_kv_heads, c.head_dim, self.dtype, self.device)

    def write_context(self, tapped: Tensor, positions: Tensor, slots: Tensor, kv: KVPool) -> None:
        """Make committed tokens visible: K/V from tapped [B,N,T*E] at positions, slots [B,N] int64 of the pool."""
        c = self.config
        B, N = positions.shape
        hidden = rms_norm(self.fc(tapped), self.hidden_norm, c.rms_norm_eps)
        both = self.context.kv(hidden).view(B, N, c.num_layers, 2, c.num_kv_heads, c.head_dim)
        cos, sin = self.rope.angles(positions, self.dtype)
        keys = head_norm(both[:, :, :, 0], self.context.k_norm, c.rms_norm_eps)
        keys = rotate(keys.flatten(2, 3), cos, sin).view(B * N, c.num_layers, c.num_kv_heads, c.head_dim)
        flat = slots.reshape(-1)
        kv.keys.index_copy_(1, flat, keys.transpose(0, 1))
        kv.values.index_copy_(1, flat, both[:, :, :, 1].flatten(0, 1).transpose(0, 1))

    def forward(self, last_tokens: Tensor, inputs: BlockInputs, kv: KVPool) -> Tensor:
        """hidden [B,b,E] after the final norm, for blocks of last_tokens [B] int64 and b-1 masks.

        Row 0 belongs to the last token; rows 1 .. b-1 predict the b-1 tokens after it. b is inputs.positions' width
        (at most block_size makes sense: that is what it was trained for).
        """
        c = self.config
        B, b = inputs.positions.shape
        token_ids = torch.full((B, b), c.mask_token_id, dtype=torch.int64, device=last_tokens.device)
        token_ids[:, 0] = last_tokens
        hidden = self.target.embed(token_ids)
        if c.embedding_scale != 1.0:
            hidden = hidden * c.embedding_scale
        angles = self.rope.angles(inputs.positions, self.dtype)
        seen = torch.cat([inputs.context_mask, inputs.context_mask.new_ones(B, b)], dim=1)
        key_positions = torch.cat([inputs.context_positions, inputs.positions], dim=1)
        fold = row_fold(c.num_heads, c.num_kv_heads, self.device)
        masks = MaskBias(seen[:, None].expand(B, b, -1), inputs.positions, key_positions, self.dtype, fold)
        for i, layer in enumerate(self.layers):
            normed = rms_norm(hidden, layer.input_norm, c.rms_norm_eps)
            bias = masks.get(c.layer_windows[i], c.is_causal[i])
            hidden = hidden + self._attention(i, layer, normed, angles, bias, inputs, kv)
            normed = rms_norm(hidden, layer.mlp_norm, c.rms_norm_eps)
            hidden = hidden + gated_mlp(normed, layer.gate_up, layer.down)
        return rms_norm(hidden, self.final_norm, c.rms_norm_eps)

    def _attention(
        self,
        index: int,
        layer: LayerWeights,
        normed: Tensor,
        angles: tuple[Tensor, Tensor],
        bias: Tensor,
        inputs: BlockInputs,
        kv: KVPool,
    ) -> Tensor:
        H, K, D = self.config.num_heads, self.config.num_kv_heads, self.config.head_dim
        heads = layer.qkv(normed).view(*normed.shape[:2], H + 2 * K, D)
        assert layer.qk_norm is not None
        turned = rotate(head_norm(heads[:, :, : H + K], layer.qk_norm, self.config.rms_norm_eps), *angles)
        keys, values = turned[:, :, H:], heads[:, :, H + K :]
        if inputs.context_slots.shape[1]:
            context_keys, context_values = read_kv(kv, index, inputs.context_slots)
            keys, values = torch.cat([context_keys, keys], 1), torch.cat([context_values, values], 1)
        return layer.output(attend(turned[:, :, :H], keys, values, bias))

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [..., vocab_size] by the target's head, scaled and soft-capped where the drafter's config says."""
        logits, cap = self.target.logits(hidden), self.config.logit_softcap
        if self.config.logit_scale != 1.0:
            logits = logits * self.config.logit_scale
        return logits if cap is None else torch.tanh(logits / cap) * cap


def _context_weights(config: DrafterConfig, layers: list[LayerWeights]) -> ContextWeights:
    """A copy of the layers' k and v rows, fused: a few MB against one launch a layer."""
    first = config.num_heads * config.head_dim
    weight = torch.cat([layer.qkv.weight[first:] for layer in layers])
    biases = [layer.qkv.bias[first:] for layer in layers if layer.qkv.bias is not None]
    k_norm = torch.stack([layer.qk_norm[-1:] for layer in layers if layer.qk_norm is not None])
    return ContextWeights(Linear(weight, torch.cat(biases) if biases else None), k_norm)
