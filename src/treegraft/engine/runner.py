"""Runs target and drafter over the KV pools. Knows no sequence, request or sampling; every call is one pass."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from treegraft.models.attention import AttentionInputs, BlockInputs, KVPool
from treegraft.models.drafter_block import DrafterModel
from treegraft.models.target import TargetModel


@dataclass(frozen=True)
class PassOutput:
    """hidden [B, N, E] after the final norm; tapped [B, N, T*E] of the drafter's tap layers (None without drafter)."""

    hidden: torch.Tensor
    tapped: torch.Tensor | None


class Runner:
    def __init__(self, target: TargetModel, drafter: DrafterModel | None, num_slots: int) -> None:
        self.target = target
        self.drafter = drafter
        self.device = target.device
        config = target.config
        self._target_pool = KVPool.allocate(
            config.num_layers, num_slots, config.num_kv_heads, config.head_dim, target.dtype, self.device
        )
        self._taps: tuple[int, ...] = ()
        if drafter is not None:
            self._taps = drafter.config.target_layer_ids
            self._drafter_pool = drafter.allocate_pool(num_slots)

    def forward(self, token_ids: torch.Tensor, inputs: AttentionInputs) -> PassOutput:
        """One target pass over int64 [B, N]; writes the rows' K/V to inputs.write_slots."""
        output = self.target.forward(token_ids, inputs, self._target_pool, self._taps)
        return PassOutput(output.hidden, output.tapped)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 [..., V] of hidden [..., E]."""
        return self.target.logits(hidden)

    def draft(self, last_tokens: list[int], inputs: BlockInputs) -> torch.Tensor:
        """One drafter pass: hidden [B, block, E]; position 0 is the last token's."""
        assert self.drafter is not None
        ids = torch.tensor(last_tokens, dtype=torch.int64, device=self.device)
        return self.drafter.forward(ids, inputs, self._drafter_pool)

    def draft_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The drafter's float32 [..., V] of hidden [..., E]."""
        assert self.drafter is not None
        return self.drafter.logits(hidden)

    def write_context(
        self, tapped: torch.Tensor | None, positions: NDArray[np.int64], slots: NDArray[np.int64]
    ) -> None:
        """The drafter's K/V of R committed tokens from their tapped states [R, T*E]. Without a drafter: nothing."""
        if self.drafter is None:
            return
        assert tapped is not None
        self.drafter.write_context(
            tapped[None],
            torch.from_numpy(positions)[None].to(self.device),
            torch.from_numpy(slots)[None].to(self.device),
            self._drafter_pool,
        )
