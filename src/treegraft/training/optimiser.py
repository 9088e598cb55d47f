"""Optimisers over master weights in float32: Muon for matrices, AdamW for the rest (or for all). Knows no loss.

Muon (K. Jordan, 2024, kellerjordan.github.io/posts/muon): the momentum of a matrix is replaced by the nearest
semi-orthogonal one, found by a Newton-Schulz iteration, before it is applied. Fused projections are taken apart first.
Everything stays on the device: a gradient that is not finite freezes all weights from that step on, and is found out
when the caller asks. A step is short beside its launches, so tensors go through together wherever they can.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

MOMENTUM, BETAS, EPS = 0.95, (0.9, 0.95), 1e-8
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5


@dataclass(frozen=True)
class Rates:
    muon: float
    adam: float
    weight_decay: float
    clip: float


class Optimiser:
    """Owns master weights and moments of a network's trainable parameters, which may be of a smaller type.

    splits: rows at which a fused matrix is taken apart, by parameter name (its last part).
    """

    def __init__(self, network: nn.Module, rates: Rates, use_muon: bool, splits: dict[str, tuple[int, ...]]) -> None:
        self._rates = rates
        named = {name: p for name, p in network.named_parameters() if p.requires_grad}
        self._parameters: list[Tensor] = list(named.values())
        self._names = list(named)
        self.master = [p.detach().float().clone() for p in self._parameters]
        self.first = [torch.zeros_like(m) for m in self.master]
        self.second = [torch.zeros_like(m) for m in self.master]
        self._is_muon = [use_muon and p.ndim == 2 for p in self._parameters]
        self._splits = [splits.get(name.rsplit(".", 1)[-1], (p.shape[0],)) for name, p in named.items()]
        device = self._parameters[0].device
        self.num_steps = 0
        self._is_sound = torch.ones((), dtype=torch.bool, device=device)
        self._bad_step = torch.full((), -1, dtype=torch.int64, device=device)

    def _parts_of(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """(parameter, its part of all gradients in a row)."""
        parts = torch.split(flat, [p.numel() for p in self._parameters])
        return [(p, part.view(p.shape)) for p, part in zip(self._parameters, parts, strict=True)]

    def tensors(self) -> dict[str, Tensor]:
        """Everything that must be saved to go on exactly, by name; the tensors themselves."""
        groups = {"master": self.master, "first": self.first, "second": self.second}
        return {f"{group}.{name}": t for group, ts in groups.items() for name, t in zip(self._names, ts, strict=True)}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor], num_steps: int) -> None:
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
        self.num_steps = num_steps
        torch._foreach_copy_(self._parameters, self.master)

    def bad_step(self) -> int | None:
        """The first step whose gradient was not finite; weights have been frozen since. Waits for the device."""
        step = int(self._bad_step)
        return step if step >= 0 else None

    @torch.no_grad()
    def step(self, factor: float) -> Tensor:
        """One update from the parameters' gradients with rates times `factor`; returns the gradients' norm."""
        pieces = [(p if p.grad is None else p.grad).flatten() for p in self._parameters]
        flat = torch.cat(pieces).float()
        for p, part in self._parts_of(flat):
            if p.grad is None:
                part.zero_()
        norm: Tensor = torch.linalg.vector_norm(flat)
        self._is_sound &= torch.isfinite(norm)
        self._bad_step.copy_(torch.where(self._is_sound | (self._bad_step >= 0), self._bad_step, self.num_steps))
        scale = (self._rates.clip / (norm + 1e-12)).clamp(max=1.0)
        self.num_steps += 1
        sound = self._is_sound.float()
        flat = torch.where(self._is_sound, flat * scale, 0.0)
        gradients = [part for _, part in self._parts_of(flat)]
        self._adam([i for i, is_muon in enumerate(self._is_muon) if not is_muon], gradients, factor, sound)
        self._muon([i for i, is_muon in enumerate(self._is_muon) if is_muon], gradients, factor, sound)
        torch._foreach_copy_(self._parameters, self.master)
        return norm

    def _adam(self, which: list[int], gradients: list[Tensor], factor: float, sound: Tensor) -> None:
        if not which:
            return
        g, m, v = ([ts[i] for i in which] for ts in (gradients, self.first, self.second))
        master = [self.master[i] for i in which]
        torch._foreach_lerp_(m, g, 1 - BETAS[0])
        torch._foreach_mul_(v, BETAS[1])
        torch._foreach_addcmul_(v, g, g, 1 - BETAS[1])
        below = torch._foreach_sqrt(v)
        torch._foreach_div_(below, (1 - BETAS[1] ** self.num_steps) ** 0.5)
        torch._foreach_add_(below, EPS)
        change = torch._foreach_div(m, below)
        rate = self._rates.adam * factor
        torch._foreach_mul_(change, -sound * (rate / (1 - BETAS[0] ** self.num_steps)))
        if self._rates.weight_decay:
            torch._foreach_mul_(master, 1 - sound * (rate * self._rates.weight_decay))
        torch._foreach_add_(master, change)

    def _muon(self, which: list[int], gradients: list[Tensor], factor: float, sound: Tensor) -> None:
        """Parts of one shape (lying or standing) go through the iteration together."""
        if not which:
            return
        first = [self.first[i] for i in which]
        given = [gradients[i] for i in which]
        torch._foreach_lerp_(first, given, 1 - MOMENTUM)
        momenta = torch._foreach_lerp(given, first, MOMENTUM)
        by_shape: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
        for i, momentum in zip(which, momenta, strict=True):
            rows = list(self._splits[i])
            for weight, part in zip(torch.split(self.master[i], rows), torch.split(momentum, rows), strict=True):
                is_tall = weight.shape[0] > weight.shape[1]
                shape = (min(weight.shape), max(weight.shape))
                by_shape.setdefault(shape, []).append((weight, part.mT if is_tall else part))
        rate = self._rates.muon * factor
        for (short, long), parts_of_shape in by_shape.items():
            weights = [weight for weight, _ in parts_of_shape]
            tall = [w.shape[0] > w.shape[1] for w in weights]
            change = orthogonalised(torch.stack([part for _, part in parts_of_shape])) * (-sound * rate)
            sizes = [(long / short) ** 0.5 if is_tall else 1.0 for is_tall in tall]
            changes = [c.mT if is_tall else c for c, is_tall in zip(change.unbind(), tall, strict=True)]
            if self._rates.weight_decay:
                torch._foreach_mul_(weights, 1 - sound * (rate * self._rates.weight_decay))
            torch._foreach_add_(weights, torch._foreach_mul(changes, sizes))


def orthogonalised(matrices: Tensor) -> Tensor:
    """float32 [G, m, n], m <= n: each matrix' singular values brought near 1 (0.7 to 1.2), its vectors kept."""
    x: Tensor = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    x = x.bfloat16() if x.is_cuda else x
    a, b, c = NEWTON_SCHULZ
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.float()
