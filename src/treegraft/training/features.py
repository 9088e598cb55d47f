"""What the target says about training rows: the tapped residual streams, and its last hidden state, which is what it
would say itself. No cache, no pool: whole rows, causally.

Shape suffixes: R rows, L tokens of a row, T taps, E hidden, H query heads, K key/value heads, D head dimension.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from treegraft.errors import UnsupportedModelError
from treegraft.models.layers import LayerWeights, gated_mlp, rms_norm
from treegraft.models.target import TargetModel


class TapReader:
    """Runs the target's layers. compile_layers: fuse each layer's small operations (CUDA)."""

    def __init__(self, target: TargetModel, taps: tuple[int, ...], row_tokens: int, compile_layers: bool) -> None:
        config = target.config
        if any(window is not None and window < row_tokens for window in config.layer_windows):
            raise UnsupportedModelError(
                f"the target has sliding windows shorter than data.row_tokens = {row_tokens}; use shorter rows"
            )
        self._target, self._taps = target, taps
        positions = torch.arange(row_tokens, device=target.device)[None]
        self._angles = target.rope.angles(positions, torch.float32)
        self._layer: Callable[..., Tensor] = torch.compile(_layer, dynamic=False) if compile_layers else _layer

    def read(self, tokens_RL: Tensor) -> Tensor:
        """Tapped states [R, L, T*E] of token ids int64 [R, L]; without gradient; up to the last tap."""
        return self._run(tokens_RL, max(self._taps) + 1)[0]

    def read_all(self, tokens_RL: Tensor) -> tuple[Tensor, Tensor]:
        """(tapped states [R, L, T*E], final state [R, L, E]) of token ids int64 [R, L]; without gradient. The LM head's
        answer to the final state at a position is the target's distribution of the token after it."""
        tapped, hidden = self._run(tokens_RL, len(self._target.layers))
        with torch.no_grad():
            return tapped, rms_norm(hidden, self._target.final_norm, self._target.config.rms_norm_eps)

    def _run(self, tokens_RL: Tensor, num_layers: int) -> tuple[Tensor, Tensor]:
        target, config = self._target, self._target.config
        sizes = (config.num_heads, config.num_kv_heads, config.head_dim)
        with torch.no_grad():
            hidden_RLE = target.embed(tokens_RL)
            found: dict[int, Tensor] = {}
            for i, layer in enumerate(target.layers[:num_layers]):
                hidden_RLE = self._layer(hidden_RLE, layer, self._angles, sizes, config.rms_norm_eps)
                if i in self._taps:
                    found[i] = hidden_RLE
            return torch.cat([found[i] for i in self._taps], dim=-1), hidden_RLE


def _layer(
    hidden_RLE: Tensor, layer: LayerWeights, angles: tuple[Tensor, Tensor], sizes: tuple[int, int, int], eps: float
) -> Tensor:
    H, K, D = sizes
    normed = rms_norm(hidden_RLE, layer.input_norm, eps)
    heads = layer.qkv(normed).view(*normed.shape[:2], H + 2 * K, D)
    turned = heads[:, :, : H + K]
    if layer.qk_norm is not None:
        turned = rms_norm_heads(turned, layer.qk_norm, eps)
    turned = turn(turned, *angles)
    q, k, v = (part.transpose(1, 2) for part in (turned[:, :, :H], turned[:, :, H:], heads[:, :, H + K :]))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != K)
    hidden_RLE = hidden_RLE + layer.output(mixed.transpose(1, 2).flatten(2))
    normed = rms_norm(hidden_RLE, layer.mlp_norm, eps)
    return hidden_RLE + gated_mlp(normed, layer.gate_up, layer.down)


def rms_norm_heads(heads: Tensor, weight: Tensor, eps: float) -> Tensor:
    """rms_norm of each head [..., heads, D] with weight [heads, D] or [D]."""
    return F.rms_norm(heads, (heads.shape[-1],), None, eps) * weight


def turn(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding in float32 with `Rope.angles` (sin carries rotate_half's sign); keeps heads' dtype."""
    wide = heads.float()
    return (wide * cos + wide.roll(heads.shape[-1] // 2, -1) * sin).to(heads.dtype)
