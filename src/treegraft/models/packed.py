"""Linear layers whose weight lies in oneDNN's own blocked layout: on CPUs the few rows of a decoding pass then cost
about half of what the plain layout costs (figures in docs/log.md). Knows no model; serving only, the plain weight is
gone.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from treegraft.models.layers import LayerWeights, Linear

# The layout is chosen for about this many rows; it serves one row as well as a hundred.
ROWS_HINT = 16


@dataclass(frozen=True)
class PackedLinear(Linear):
    """y = x weight^T + bias over x [..., in]; here `weight` is opaque, its shape says nothing."""

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        y: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self.weight, self.bias, "none", [], "")
        return y.view(*x.shape[:-1], y.shape[-1])


def can_pack(weight: Tensor) -> bool:
    """Whether this machine's oneDNN takes weights of this dtype and device."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32


def pack(linear: Linear) -> Linear:
    """The same layer in the packed layout where the machine can, else as it is."""
    if not can_pack(linear.weight):
        return linear
    return PackedLinear(torch.ops.mkldnn._reorder_linear_weight(linear.weight, ROWS_HINT), linear.bias)


def pack_layer(layer: LayerWeights) -> LayerWeights:
    """All projections of one decoder layer, packed."""
    return replace(
        layer,
        qkv=pack(layer.qkv),
        output=pack(layer.output),
        gate_up=pack(layer.gate_up),
        down=pack(layer.down),
    )
