"""The first half of a round: one drafter pass, and from it each sequence's candidates. Knows no tree and no slot owner.

A tree is limited by what can still be committed: a path of depth d commits d + 1 tokens (the bonus token included), so
the depth is at most remaining - 1. Shapes: B drafting sequences, D depths, K candidates, R = B * D rows.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from treegraft.engine.inputs import pack_blocks
from treegraft.engine.runner import Runner
from treegraft.engine.sampler import RowKey, Sampler
from treegraft.engine.sequence import Sequence
from treegraft.kernels.candidates import candidates
from treegraft.logs import get_logger
from treegraft.models.head import ConditionalHead
from treegraft.speculation.scorer import PairwiseScorer, Scorer

log = get_logger(__name__)

# A pair table grows with the square of the candidates; beyond these ranks it changed no accept length worth its time.
MAX_PAIR_CANDIDATES = 32


@dataclass(frozen=True)
class SpeculationPlan:
    """What the engine resolved: `method` ar, dflash or ddtree; `budget` nodes a round; `block_size` of the drafter
    (0 without one); `drafter_context`: positions the drafter can serve; `max_speculating`: more sequences than that in
    a round decode without speculation (None: no such limit)."""

    method: str
    budget: int
    block_size: int
    drafter_context: int
    max_speculating: int | None = None

    @property
    def rows_per_round(self) -> int:
        """Rows that one sequence may need in a round, the root included."""
        return self.budget + 1

    @property
    def num_candidates(self) -> int:
        """Candidates a depth: a node of rank r needs r heavier siblings, so ranks stay below the budget."""
        return 1 if self.method == "dflash" else self.budget


@dataclass(frozen=True)
class Draft:
    """One sequence's candidates: log_probs float32 [D, K], token_ids int64 [D, K]; scorer: None for marginals."""

    log_probs: NDArray[np.float32]
    token_ids: NDArray[np.int64]
    scorer: Scorer | None = None


@dataclass(frozen=True)
class _Candidates:
    """log_probs float32, token_ids int64, noise float32 (0 in greedy rows) at each of them; all [R, K]."""

    log_probs: torch.Tensor
    token_ids: torch.Tensor
    noise: torch.Tensor


class Drafting:
    def __init__(self, runner: Runner, sampler: Sampler, plan: SpeculationPlan) -> None:
        self._runner = runner
        self._sampler = sampler
        self._plan = plan
        # A chain has no siblings whose children would need telling apart.
        has_head = runner.drafter is not None and plan.method == "ddtree"
        self._head: ConditionalHead | None = runner.drafter.head if has_head and runner.drafter is not None else None

    def run(self, sequences: Seq[Sequence]) -> list[Draft | None]:
        """A draft for each sequence that can use one, from one drafter pass."""
        limit = self._plan.max_speculating
        if limit is not None and len(sequences) > limit:
            return [None] * len(sequences)
        depths = [self._depth(sequence) for sequence in sequences]
        drafting = [sequence for sequence, depth in zip(sequences, depths, strict=True) if depth > 0]
        if not drafting:
            return [None] * len(sequences)
        inputs = pack_blocks([s.slots[: s.num_computed] for s in drafting], self._plan.block_size, self._runner.device)
        hidden = self._runner.draft([s.tokens[-1] for s in drafting], inputs)[:, 1 : max(depths) + 1]
        keys = [RowKey(s, s.num_computed + depth) for s in drafting for depth in range(1, max(depths) + 1)]
        found = self._candidates(self._runner.draft_logits(hidden.flatten(0, 1)), keys)
        made = iter(self._drafts(drafting, hidden, found))
        return [_cut(next(made), depth) if depth > 0 else None for depth in depths]

    def _depth(self, sequence: Sequence) -> int:
        """How deep a tree may go for this sequence now; 0 is an AR step."""
        plan = self._plan
        if plan.budget == 0 or plan.block_size == 0:
            return 0
        if sequence.num_computed + plan.block_size > plan.drafter_context:
            if not sequence.is_beyond_drafter:
                sequence.is_beyond_drafter = True
                log.warning(
                    "request %s: beyond the drafter's context of %d tokens; it goes on without speculation",
                    sequence.request.id,
                    plan.drafter_context,
                )
            return 0
        return min(plan.block_size - 1, plan.budget, sequence.num_remaining - 1)

    def _candidates(self, logits: torch.Tensor, keys: Seq[RowKey]) -> _Candidates:
        """The best candidates of each row of [R, V]: by the drafter's probability, or at T > 0 by
        softmax((scores + noise) / s) with s = 1, since the noise decides what the target will choose."""
        count = min(self._plan.num_candidates, logits.shape[-1])
        if self._head is not None:
            count = min(count, MAX_PAIR_CANDIDATES)
        is_sampled = [key.sequence.params.temperature > 0 for key in keys]
        size = (len(keys), count)
        found = _Candidates(
            torch.empty(size, dtype=torch.float32, device=logits.device),
            torch.empty(size, dtype=torch.int64, device=logits.device),
            torch.zeros(size, dtype=torch.float32, device=logits.device),
        )
        for wanted in (False, True):
            chosen = [r for r, sampled in enumerate(is_sampled) if sampled == wanted]
            if not chosen:
                continue
            rows = torch.tensor(chosen, device=logits.device)
            scores = logits if len(chosen) == len(keys) else logits[rows]
            noise = None
            if wanted:
                scores, noise = self._sampler.scores_and_noise(scores, [keys[r] for r in chosen])
            log_probs, token_ids = candidates(scores, count, noise)
            found.log_probs[rows], found.token_ids[rows] = log_probs, token_ids
            if noise is not None:
                found.noise[rows] = noise.gather(1, token_ids)
        return found

    def _drafts(self, drafting: Seq[Sequence], hidden: torch.Tensor, found: _Candidates) -> list[Draft]:
        """Host copies for each of B sequences, with pair tables where the drafter has a head; hidden [B, D, E]."""
        shape = (*hidden.shape[:2], found.token_ids.shape[1])
        log_probs, token_ids = found.log_probs.view(shape), found.token_ids.view(shape)
        host_log_probs, host_ids = log_probs.cpu().numpy(), token_ids.cpu().numpy()
        if self._head is None:
            return [Draft(host_log_probs[b], host_ids[b]) for b in range(len(drafting))]
        temperature = torch.tensor([s.params.temperature for s in drafting], device=hidden.device)
        pairs = self._head.pair_log_probs(hidden, token_ids, log_probs, temperature, found.noise.view(shape))
        tables = pairs.tables.cpu().numpy()
        return [
            Draft(host_log_probs[b], host_ids[b], PairwiseScorer(host_log_probs[b, 0], tables[b], host_ids[b]))
            for b in range(len(drafting))
        ]


def _cut(draft: Draft, depth: int) -> Draft:
    """The same draft no deeper than `depth`; the number of rows bounds what a scorer is asked for."""
    return Draft(draft.log_probs[:depth], draft.token_ids[:depth], draft.scorer)
