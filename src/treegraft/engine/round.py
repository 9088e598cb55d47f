"""One round for a batch: draft, build, verify, accept, commit. Knows no queue, no text and no process.

A sequence without a draft (no room for a node, beyond the drafter's context, method ar) goes through the same pass as
a root alone: an AR step.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from treegraft.engine.drafting import Draft, Drafting, SpeculationPlan
from treegraft.engine.inputs import Rows, pack_rows
from treegraft.engine.runner import PassOutput, Runner
from treegraft.engine.sampler import RowKey, Sampler
from treegraft.engine.scheduler import Scheduler
from treegraft.engine.sequence import Sequence
from treegraft.speculation.accept import Acceptance, accept
from treegraft.speculation.build import build_tree
from treegraft.speculation.compact import split_slots
from treegraft.speculation.mask import ancestor_mask
from treegraft.speculation.tree import DraftTree

NO_DRAFT = DraftTree(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))


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
        self._drafting = Drafting(runner, sampler, plan)

    def run(self, sequences: Seq[Sequence]) -> list[Commit]:
        """One round for prefilled sequences. Those preempted for want of slots are left out of the answer."""
        batch = self._build(sequences, self._drafting.run(sequences))
        if not batch:
            return []
        output = self._verify(batch)
        chosen = self._choose(batch, output)
        acceptances = [accept(item.tree, tokens) for item, tokens in zip(batch, chosen, strict=True)]
        return self._commit(batch, acceptances, output)

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
