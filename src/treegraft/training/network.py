"""The drafter as something that can be trained: parameters under the published names' shapes, many blocks a row.

models.drafter_block serves what this trains; a test holds the two together. Knows no loss and no optimiser.
Shape suffixes: R rows, L context tokens, A anchors (blocks) a row, b block rows, N = A*b, E hidden, H query heads,
K key/value heads, D head dimension, W head width.
"""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from treegraft.models import head as conditional
from treegraft.models.config import DrafterConfig
from treegraft.models.layers import Rope
from treegraft.models.target import TargetModel
from treegraft.training.block_attention import attend_blocks
from treegraft.training.features import rms_norm_heads, turn


class DraftLayer(nn.Module):
    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        E, I, D = config.hidden_size, config.intermediate_size, config.head_dim
        H, K = config.num_heads, config.num_kv_heads
        self.sizes, self.eps = (H, K, D), config.rms_norm_eps
        self.input_norm = nn.Parameter(torch.ones(E))
        self.qkv = nn.Parameter(_random((H + 2 * K) * D, E))
        self.q_norm, self.k_norm = nn.Parameter(torch.ones(D)), nn.Parameter(torch.ones(D))
        self.output = nn.Parameter(_random(E, H * D) * 0.1)
        self.mlp_norm = nn.Parameter(torch.ones(E))
        self.gate_up = nn.Parameter(_random(2 * I, E))
        self.down = nn.Parameter(_random(E, I) * 0.1)

    def forward(self, x_RNE: Tensor, context_RLE: Tensor, angles: tuple[Tensor, ...], mask: Any) -> Tensor:
        """angles: cos, sin of the block rows [R, N, 1, D] and of the context [1, L, 1, D]."""
        H, K, D = self.sizes
        heads = F.linear(rms(x_RNE, self.input_norm, self.eps), self.qkv).view(*x_RNE.shape[:2], H + 2 * K, D)
        before = F.linear(context_RLE, self.qkv[H * D :]).view(*context_RLE.shape[:2], 2 * K, D)
        q = turn(rms_norm_heads(heads[:, :, :H], self.q_norm, self.eps), *angles[:2])
        own_k = turn(rms_norm_heads(heads[:, :, H : H + K], self.k_norm, self.eps), *angles[:2])
        context_k = turn(rms_norm_heads(before[:, :, :K], self.k_norm, self.eps), *angles[2:])
        k = torch.cat([context_k, own_k], dim=1).transpose(1, 2)
        v = torch.cat([before[:, :, K:], heads[:, :, H + K :]], dim=1).transpose(1, 2)
        mixed = attend_blocks(q.transpose(1, 2), k, v, mask)
        x_RNE = x_RNE + F.linear(mixed.transpose(1, 2).flatten(2), self.output)
        gate, up = F.linear(rms(x_RNE, self.mlp_norm, self.eps), self.gate_up).chunk(2, dim=-1)
        return x_RNE + F.linear(F.silu(gate) * up, self.down)


class DrafterNetwork(nn.Module):
    """All trained tensors of a drafter, its conditional head (width 0: none) included."""

    def __init__(self, config: DrafterConfig, device: torch.device) -> None:
        super().__init__()
        E = config.hidden_size
        self.config = config
        with torch.device(device):
            self.fc = nn.Parameter(_random(E, len(config.target_layer_ids) * E))
            self.hidden_norm = nn.Parameter(torch.ones(E))
            self.layers = nn.ModuleList(DraftLayer(config) for _ in range(config.num_layers))
            self.norm = nn.Parameter(torch.ones(E))
            width = config.head.size(conditional.WIDTH) if config.head is not None else 0
            if width:
                self.head_hidden = nn.Parameter(_random(2 * width, E))
                self.head_parent = nn.Parameter(_random(2 * width, E))
                self.head_output = nn.Parameter(torch.zeros(E, width))
        self.has_head = width > 0
        self.rope = Rope(config.head_dim, config.rope_theta, config.rope_scaling, device)

    def forward(self, tapped: Tensor, roots_RA: Tensor, anchors_RA: Tensor, target: TargetModel, mask: Any) -> Tensor:
        """hidden [R, A, b, E] after the final norm. tapped [R, L, T*E]; roots_RA int64: the token at each anchor;
        mask: of block_attention for these anchors. Row d of a block (d >= 1) predicts the token at anchor + d."""
        c = self.config
        R, A = anchors_RA.shape
        b = c.block_size
        token_ids = torch.full((R, A, b), c.mask_token_id, dtype=torch.int64, device=roots_RA.device)
        token_ids[:, :, 0] = roots_RA
        positions = anchors_RA[:, :, None] + torch.arange(b, device=roots_RA.device)
        before = torch.arange(tapped.shape[1], device=tapped.device)[None]
        turns = self.rope.angles(positions.flatten(1), torch.float32)
        angles = (*turns, *self.rope.angles(before, torch.float32))
        context = rms(F.linear(tapped.to(self.fc.dtype), self.fc), self.hidden_norm, c.rms_norm_eps)
        x = target.embed(token_ids.flatten(1)).to(self.fc.dtype)
        for layer in self.layers:
            x = layer(x, context, angles, mask)
        hidden: Tensor = rms(x, self.norm, c.rms_norm_eps).view(R, A, b, -1)
        return hidden

    def drop_head(self) -> None:
        """Become the drafter without its head, as published servers know it."""
        self.config, self.has_head = replace(self.config, head=None), False

    def conditional(self, hidden: Tensor, parents: Tensor) -> Tensor:
        """hidden [..., E] corrected for parent embeddings [..., E]."""
        return conditional.correct(hidden, parents, self.head_hidden, self.head_parent, self.head_output)


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    normed: Tensor = F.rms_norm(x, (x.shape[-1],), weight, eps)
    return normed


def _random(rows: int, columns: int) -> Tensor:
    weights: Tensor = torch.randn(rows, columns) / columns**0.5
    return weights


def copy_target(network: DrafterNetwork, target: TargetModel) -> None:
    """Start from the target: its last layers, its final norm, and a context that is the last tap alone."""
    E, config = network.config.hidden_size, network.config
    sources = target.layers[-config.num_layers :]
    with torch.no_grad():
        network.norm.copy_(target.final_norm)
        network.hidden_norm.copy_(torch.stack([s.input_norm for s in sources]).mean(0))
        network.fc.mul_(0.1)
        network.fc[:, -E:] += torch.eye(E, device=network.fc.device, dtype=network.fc.dtype)
        for layer, source in zip(network.layers, sources, strict=True):
            assert isinstance(layer, DraftLayer)
            for name in ("input_norm", "mlp_norm"):
                getattr(layer, name).copy_(getattr(source, name))
            for name in ("qkv", "output", "gate_up", "down"):
                getattr(layer, name).copy_(getattr(source, name).weight)
            H, K, D = layer.sizes
            # Queries and keys get a norm that the target may lack: give them the size that a normed input leads to.
            sizes = (layer.qkv * layer.input_norm).float().square().sum(1).view(H + 2 * K, D).mean(1).sqrt()
            if source.qk_norm is None:
                layer.q_norm.fill_(float(sizes[:H].mean()))
                layer.k_norm.fill_(float(sizes[H : H + K].mean()))
            else:
                layer.q_norm.copy_(source.qk_norm[:H].mean(0))
                layer.k_norm.copy_(source.qk_norm[H:].mean(0))


def can_copy_target(config: DrafterConfig, target: TargetModel) -> bool:
    """Whether the drafter's layers have the shapes of the target's."""
    its = target.config
    pairs = ("hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim")
    return config.num_layers <= its.num_layers and all(getattr(config, p) == getattr(its, p) for p in pairs)
