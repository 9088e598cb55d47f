"""One round for a batch: draft, build, verify, accept, commit. Knows no queue, no text and no process.

Each sequence's tree is limited by what can still be committed: a path of depth d commits d + 1 tokens (the bonus token
included), so the depth is at most remaining - 1. A sequence without room for a node, or beyond the drafter's own
context, goes through the same pass as a root alone: an AR step.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from treegraft.engine.inputs import Rows, pack_blocks, pack_rows
from treegraft.engine.runner import PassOutput, Runner
from treegraft.engine.sampler import RowKey, Sampler
from treegraft.engine.scheduler import Scheduler
from treegraft.engine.sequence import Sequence
from treegraft.kernels.candidates import candidates
from treegraft.logs import get_logger
from treegraft.speculation.accept import Acceptance, accept
from treegraft.speculation.build import build_tree
from treegraft.speculation.compact import split_slots
from treegraft.speculation.mask import ancestor_mask
from treegraft.speculation.scorer import Scorer
from treegraft.speculation.tree import DraftTree

log = get_logger(__name__)

NO_DRAFT = DraftTree(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))


@dataclass(frozen=True)
class SpeculationPlan:
    """What the engine resolved: `method` ar, dflash or ddtree; `budget` nodes a round; `block_size` of the drafter
    (0 without one); `drafter_context`: positions the drafter can serve."""

    method: str
    budget: int
    block_size: int
    drafter_context: int

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
    """One sequence's candidates: log_probs float32 [depth, k], token_ids int64 [depth, k]."""

    log_probs: NDArray[np.float32]
    token_ids: NDArray[np.int64]
    scorer: Scorer | None = None


@dataclass(frozen=True)
class RoundTrace:
    """What one round did for one request; for `generate --trace`."""

    request_id: str
    root_token: int
    tree: DraftTree
    acceptance: Acceptance


@dataclass(frozen=True)
class Commit:
    """What one target pass committed for a sequence: ids kept (cut at a stop), text that is final, the trace."""

    sequence: Sequence
    token_ids: list[int]
    text: str
    trace: RoundTrace


@dataclass(frozen=True)
class Candidate:
    """A sequence in this round with its tree and the slots of its rows, int64 [n + 1], root first."""

    sequence: Sequence
    tree: DraftTree
    slots: NDArray[np.int64]


class Round:
    def __init__(self, runner: Runner, sampler: Sampler, scheduler: Scheduler, plan: SpeculationPlan) -> None:
        self._runner = runner
        self._sampler = sampler
        self._scheduler = scheduler
        self._plan = plan

    def run(self, sequences: Seq[Sequence]) -> list[Commit]:
        """One round for prefilled sequences. Those preempted for want of slots are left out of the answer."""
        batch = self._build(sequences, self._draft(sequences))
        if not batch:
            return []
        output = self._verify(batch)
        chosen = self._choose(batch, output)
        acceptances = [accept(item.tree, tokens) for item, tokens in zip(batch, chosen, strict=True)]
        return self._commit(batch, acceptances, output)

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

    def _draft(self, sequences: Seq[Sequence]) -> list[Draft | None]:
        """One drafter pass for those that can use it."""
        depths = [self._depth(sequence) for sequence in sequences]
        drafting = [(s, d) for s, d in zip(sequences, depths, strict=True) if d > 0]
        if not drafting:
            return [None] * len(sequences)
        inputs = pack_blocks(
            [s.slots[: s.num_computed] for s, _ in drafting], self._plan.block_size, self._runner.device
        )
        hidden = self._runner.draft([s.tokens[-1] for s, _ in drafting], inputs)
        rows = torch.cat([hidden[i, 1 : d + 1] for i, (_, d) in enumerate(drafting)])
        keys = [RowKey(s, s.num_computed + depth) for s, d in drafting for depth in range(1, d + 1)]
        log_probs, token_ids = self._candidates(self._runner.draft_logits(rows), keys)
        made, start = [], 0
        for _, d in drafting:
            made.append(Draft(log_probs[start : start + d], token_ids[start : start + d]))
            start += d
        remaining = iter(made)
        return [next(remaining) if d > 0 else None for d in depths]

    def _candidates(self, logits: torch.Tensor, keys: Seq[RowKey]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The best candidates of each row, [R, k]: by the drafter's probability, or at T > 0 by
        softmax((scores + noise) / s) with s = 1, since the noise decides what the target will choose."""
        count = min(self._plan.num_candidates, logits.shape[-1])
        sampled = torch.tensor([key.sequence.params.temperature > 0 for key in keys])
        log_probs = torch.empty((len(keys), count), dtype=torch.float32, device=logits.device)
        token_ids = torch.empty((len(keys), count), dtype=torch.int64, device=logits.device)
        for is_sampled in (False, True):
            rows = torch.nonzero(sampled == is_sampled)[:, 0]
            if len(rows) == 0:
                continue
            chosen_keys = [keys[r] for r in rows.tolist()]
            own = logits if len(rows) == len(keys) else logits[rows.to(logits.device)]
            noise = None
            if is_sampled:
                own, noise = self._sampler.scores_and_noise(own, chosen_keys)
            found = candidates(own, count, noise)
            log_probs[rows.to(logits.device)], token_ids[rows.to(logits.device)] = found
        return log_probs.cpu().numpy(), token_ids.cpu().numpy()

    def _build(self, sequences: Seq[Sequence], drafts: Seq[Draft | None]) -> list[Candidate]:
        """Trees, and slots for their rows; a sequence that had to give its place up is left out."""
        batch = []
        for sequence, draft in zip(sequences, drafts, strict=True):
            if sequence not in self._scheduler.running:
                continue
            tree = NO_DRAFT
            if draft is not None:
                tree = build_tree(draft.log_probs, draft.token_ids, self._plan.budget, draft.scorer)
            slots = self._scheduler.take(sequence, len(tree.token_ids) + 1)
            if slots is not None:
                batch.append(Candidate(sequence, tree, slots))
        return batch

    def _verify(self, batch: Seq[Candidate]) -> PassOutput:
        """One target pass over every sequence's root and nodes."""
        packed = []
        for item in batch:
            sequence, tree = item.sequence, item.tree
            tokens = np.concatenate([[sequence.tokens[-1]], tree.token_ids])
            offsets = np.concatenate([[0], tree.depths])
            context = sequence.slots[: sequence.num_computed]
            packed.append(Rows(tokens, offsets, item.slots, context, ancestor_mask(tree)))
        return self._runner.forward(*pack_rows(packed, self._runner.device))

    def _choose(self, batch: Seq[Candidate], output: PassOutput) -> list[NDArray[np.int64]]:
        """The target's token at the root and at each node, int64 [n + 1] a sequence."""
        counts = [len(item.slots) for item in batch]
        rows = torch.cat([output.hidden[b, :count] for b, count in enumerate(counts)])
        keys: list[RowKey] = []
        for item in batch:
            position = item.sequence.num_computed + 1
            keys.append(RowKey(item.sequence, position))
            keys += [RowKey(item.sequence, position + depth) for depth in item.tree.depths.tolist()]
        chosen = np.asarray(self._sampler.choose(self._runner.logits(rows), keys), np.int64)
        return np.split(chosen, np.cumsum(counts)[:-1])

    def _commit(self, batch: Seq[Candidate], acceptances: Seq[Acceptance], output: PassOutput) -> list[Commit]:
        """Tokens, slots and drafter context of the accepted rows; all other rows' slots are free again.

        rows     root t1 .. tm | the rest         committed  t1 .. tm bonus, cut after j at a stop
        K/V kept root t1 .. t(min(j, m))          the last committed token is the next root
        """
        commits, tapped, positions, slots = [], [], [], []
        for b, (item, acceptance) in enumerate(zip(batch, acceptances, strict=True)):
            sequence = item.sequence
            trace = RoundTrace(sequence.request.id, sequence.tokens[-1], item.tree, acceptance)
            kept_ids, text = sequence.commit(acceptance.tokens(item.tree).tolist())
            commits.append(Commit(sequence, kept_ids, text, trace))
            num_rows = 1 + min(len(kept_ids), len(acceptance.path))
            path_slots, freed = split_slots(item.slots, acceptance)
            self._scheduler.give_back(np.concatenate([freed, path_slots[num_rows:]]))
            if output.tapped is not None:
                rows = np.concatenate([[0], acceptance.path + 1])[:num_rows]
                tapped.append(output.tapped[b, torch.from_numpy(rows).to(output.tapped.device)])
            positions.append(np.arange(sequence.num_computed, sequence.num_computed + num_rows))
            slots.append(path_slots[:num_rows])
            sequence.add_slots(path_slots[:num_rows])
            self._sampler.forget(sequence, before=len(sequence.tokens))
        if tapped:
            self._runner.write_context(torch.cat(tapped), np.concatenate(positions), np.concatenate(slots))
        return commits
