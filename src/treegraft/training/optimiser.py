"""Optimisers over master weights in float32: Muon for matrices, AdamW for the rest (or for all). Knows no loss.

Muon (K. Jordan, 2024, kellerjordan.github.io/posts/muon): the momentum of a matrix is replaced by the nearest
semi-orthogonal one, found by a Newton-Schulz iteration, before it is applied. Fused projections are taken apart first.
Everything stays on the device: a gradient that is not finite freezes all weights from that step on, and is found out
when the caller asks.
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
    """Owns master weights and moments of a network whose parameters may be of a smaller type.

    splits: rows at which a fused matrix is taken apart, by parameter name (its last part).
    """

    def __init__(self, network: nn.Module, rates: Rates, use_muon: bool, splits: dict[str, tuple[int, ...]]) -> None:
        self._rates = rates
        named = dict(network.named_parameters())
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

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self._parameters, self.master, strict=True))

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
        gradients = [torch.zeros_like(m) if p.grad is None else p.grad.float() for p, m in self._pairs()]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(list(torch._foreach_norm(gradients))))
        self._is_sound &= torch.isfinite(norm)
        self._bad_step.copy_(torch.where(self._is_sound | (self._bad_step >= 0), self._bad_step, self.num_steps))
        scale = (self._rates.clip / (norm + 1e-12)).clamp(max=1.0)
        self.num_steps += 1
        sound = self._is_sound.float()
        gradients = [torch.where(self._is_sound, g * scale, 0.0) for g in gradients]
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
        """Parts of one shape go through the iteration together."""
        by_shape: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
        for i in which:
            torch._foreach_lerp_([self.first[i]], [gradients[i]], 1 - MOMENTUM)
            momentum = gradients[i].lerp(self.first[i], MOMENTUM)
            parts = zip(
                torch.split(self.master[i], list(self._splits[i])),
                torch.split(momentum, list(self._splits[i])),
                strict=True,
            )
            for weight, part in parts:
                by_shape.setdefault((weight.shape[0], weight.shape[1]), []).append((weight, part))
        for (rows, columns), parts_of_shape in by_shape.items():
            change = orthogonalised(torch.stack([part for _, part in parts_of_shape]))
            rate = self._rates.muon * factor
            change *= -sound * (rate * max(1.0, rows / columns) ** 0.5)
            weights = [weight for weight, _ in parts_of_shape]
            if self._rates.weight_decay:
                torch._foreach_mul_(weights, 1 - sound * (rate * self._rates.weight_decay))
            torch._foreach_add_(weights, list(change.unbind()))


def orthogonalised(matrices: Tensor) -> Tensor:
    """float32 [G, m, n]: each matrix' singular values brought near 1 (0.7 to 1.2), its vectors kept."""
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    x = x.bfloat16() if x.is_cuda else x
    a, b, c = NEWTON_SCHULZ
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x.float()
    return result.mT if is_tall else result
