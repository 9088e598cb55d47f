"""The target: a dense decoder (Llama, Qwen2, Qwen3) over the slot pool. One class serves all three, the config's flags
tell them apart. Knows no file, no sampling and no scheduling; callers wrap it in torch.inference_mode.

Shape suffixes: B sequences, N rows of one, E hidden, H query heads, K key/value heads, D head dimension.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from treegraft.models.attention import AttentionInputs, KVPool, MaskBias, attend, read_kv, row_fold, write_kv
from treegraft.models.config import ModelConfig
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

EMBEDDING, FINAL_NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
# Buffers that older exporters wrote beside the weights; and a tied head written out a second time is not needed.
IGNORED_TENSORS = (".rotary_emb.inv_freq", ".attn.masked_bias")


@dataclass(frozen=True)
class TargetOutput:
    """hidden [B,N,E] after the final norm; tapped [B, N, len(taps)*E] in the order of the taps, None without taps."""

    hidden: Tensor
    tapped: Tensor | None


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors that a checkpoint of this config must have."""
    shapes: dict[str, tuple[int, ...]] = {
        EMBEDDING: (config.vocab_size, config.hidden_size),
        FINAL_NORM: (config.hidden_size,),
    }
    if not config.tie_embeddings:
        shapes[HEAD] = (config.vocab_size, config.hidden_size)
    for i in range(config.num_layers):
        shapes.update(layer_shapes(config, _parts(config), f"model.layers.{i}."))
    return shapes


def _parts(config: ModelConfig) -> LayerParts:
    return LayerParts(config.qkv_bias, config.output_bias, config.mlp_bias, config.qk_norm)


class TargetModel:
    """Weights and forward pass. `source(name)` gives each tensor of `tensor_shapes` (vocabularies may be padded)."""

    def __init__(self, config: ModelConfig, source: TensorSource) -> None:
        self.config = config
        self.embedding = source(EMBEDDING)
        head = self.embedding if config.tie_embeddings else source(HEAD)
        self.head = Linear(head[: config.vocab_size])
        self.head_weight = self.head.weight  # stays plain when the head is packed
        self.final_norm = source(FINAL_NORM)
        parts = _parts(config)
        self.layers = [load_layer(source, config, parts, f"model.layers.{i}.") for i in range(config.num_layers)]
        self.rope = Rope(config.head_dim, config.rope_theta, config.rope_scaling, self.device)

    def pack(self) -> None:
        """Give up the plain weights for packed ones where the machine has them (CPUs); serving only."""
        self.layers = [pack_layer(layer) for layer in self.layers]
        self.head = pack(self.head)

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    def embed(self, token_ids: Tensor) -> Tensor:
        """Embeddings [..., E] of token ids int64 [...]."""
        return F.embedding(token_ids, self.embedding)

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [..., vocab_size] of hidden [..., E] after the final norm; padded vocabulary rows are cut."""
        return self.head(hidden).float()

    def head_rows(self, token_ids: Tensor) -> Tensor:
        """The LM head's rows [..., E] of token ids int64 [...]: what scores a few candidates without all logits."""
        return F.embedding(token_ids, self.head_weight)

    def forward(
        self, token_ids: Tensor, inputs: AttentionInputs, kv: KVPool, taps: tuple[int, ...] = ()
    ) -> TargetOutput:
        """One pass over token_ids [B,N] int64: writes the rows' K/V at inputs.write_slots, attends as inputs say.

        Tap i is the residual stream after layer i (counted from 0).
        """
        config = self.config
        hidden = self.embed(token_ids)
        angles = self.rope.angles(inputs.positions, self.dtype)
        fold = row_fold(config.num_heads, config.num_kv_heads, self.device)
        masks = MaskBias(inputs.mask, inputs.positions, inputs.key_positions, self.dtype, fold)
        tapped: dict[int, Tensor] = {}
        for i, layer in enumerate(self.layers):
            normed = rms_norm(hidden, layer.input_norm, config.rms_norm_eps)
            bias = masks.get(config.layer_windows[i])
            hidden = hidden + self._attention(i, layer, normed, angles, bias, inputs, kv)
            normed = rms_norm(hidden, layer.mlp_norm, config.rms_norm_eps)
            hidden = hidden + gated_mlp(normed, layer.gate_up, layer.down)
            if i in taps:
                tapped[i] = hidden
        hidden = rms_norm(hidden, self.final_norm, config.rms_norm_eps)
        return TargetOutput(hidden, torch.cat([tapped[i] for i in taps], dim=-1) if taps else None)

    def _attention(
        self,
        index: int,
        layer: LayerWeights,
        normed: Tensor,
        angles: tuple[Tensor, Tensor],
        bias: Tensor,
        inputs: AttentionInputs,
        kv: KVPool,
    ) -> Tensor:
        H, K, D = self.config.num_heads, self.config.num_kv_heads, self.config.head_dim
        heads = layer.qkv(normed).view(*normed.shape[:2], H + 2 * K, D)
        turned = heads[:, :, : H + K]
        if layer.qk_norm is not None:
            turned = head_norm(turned, layer.qk_norm, self.config.rms_norm_eps)
        turned = rotate(turned, *angles)
        write_kv(kv, index, inputs.write_slots, turned[:, :, H:], heads[:, :, H + K :])
        keys, values = read_kv(kv, index, inputs.context_slots)
        return layer.output(attend(turned[:, :, :H], keys, values, bias))
