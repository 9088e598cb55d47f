"""Chooses tokens from logits: argmax, or Gumbel noise keyed by (seed, choice, position, token). Knows no model.

A row's token depends on its own logits, parameters and noise key only, so the same seed gives the same text with any
method, budget and batch. Penalties, logit bias and grammars belong at the head of `choose`: each row there is one node
and can be given the state of its own path.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch

from treegraft.engine.sequence import Sequence
from treegraft.kernels import noise as noise_kernel
from treegraft.kernels import sampling


@dataclass(frozen=True)
class RowKey:
    """Whose row it is, and the absolute position of the token that the row chooses."""

    sequence: Sequence
    position: int


class Sampler:
    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        # A position's noise is asked for by the drafter, then by each node of its depth, then by later rounds.
        self._noise: dict[str, dict[int, torch.Tensor]] = {}

    def choose(self, logits: torch.Tensor, keys: Seq[RowKey]) -> list[int]:
        """The token of each row of float32 [R, V]."""
        sampled = [r for r, key in enumerate(keys) if key.sequence.params.temperature > 0]
        if not sampled:
            return sampling.choose(logits, None).tolist()
        if len(sampled) == len(keys):
            return sampling.choose(*self.scores_and_noise(logits, keys)).tolist()
        chosen = sampling.choose(logits, None)
        rows = torch.tensor(sampled, device=self._device)
        sampled_keys = [keys[r] for r in sampled]
        chosen[rows] = sampling.choose(*self.scores_and_noise(logits[rows], sampled_keys))
        return chosen.tolist()

    def scores_and_noise(self, logits: torch.Tensor, keys: Seq[RowKey]) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits through temperature, top-k, top-p and min-p, and the Gumbel noise of the same rows; both [R, V].

        All rows have temperature > 0.
        """
        params = [key.sequence.params for key in keys]
        scores = sampling.filtered_scores(
            logits,
            torch.tensor([p.temperature for p in params], dtype=torch.float32, device=self._device),
            torch.tensor([p.top_k for p in params], dtype=torch.int64, device=self._device),
            torch.tensor([p.top_p for p in params], dtype=torch.float32, device=self._device),
            torch.tensor([p.min_p for p in params], dtype=torch.float32, device=self._device),
        )
        return scores, self._noise_rows(keys)

    def forget(self, sequence: Sequence, before: int | None = None) -> None:
        """Drop a sequence's noise below position `before`, or all of it."""
        if before is None:
            self._noise.pop(sequence.request.id, None)
            return
        rows = self._noise.get(sequence.request.id, {})
        for position in [p for p in rows if p < before]:
            del rows[position]

    def _noise_rows(self, keys: Seq[RowKey]) -> torch.Tensor:
        missing = {
            (key.sequence.request.id, key.position): key
            for key in keys
            if key.position not in self._noise.get(key.sequence.request.id, {})
        }
        if missing:
            made = noise_kernel.gumbel(
                _signed([key.sequence.seed for key in missing.values()], self._device),
                torch.tensor([key.sequence.params.choice for key in missing.values()], device=self._device),
                torch.tensor([key.position for key in missing.values()], device=self._device),
                self._vocab_size,
            )
            for (request_id, position), row in zip(missing, made, strict=True):
                self._noise.setdefault(request_id, {})[position] = row
        return torch.stack([self._noise[key.sequence.request.id][key.position] for key in keys])


def _signed(seeds: Seq[int], device: torch.device) -> torch.Tensor:
    """Unsigned 64-bit seeds as the int64 of the same bits."""
    return torch.tensor([s - 2**64 if s >= 2**63 else s for s in seeds], dtype=torch.int64, device=device)
