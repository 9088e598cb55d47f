"""Who runs, in which slots, and who must wait: admission, prefix hits, preemption, release. Knows no tensor.

Slots come from the allocator, then from evicting unlocked cached prefixes, then from preempting the sequence that
arrived last. One sequence alone always fits: the pool holds a full context and one round's rows.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from treegraft.engine.kv_slots import SlotAllocator
from treegraft.engine.prefix_cache import PrefixCache, PrefixMatch
from treegraft.engine.sequence import Sequence
from treegraft.logs import get_logger

log = get_logger(__name__)


class Scheduler:
    def __init__(self, num_slots: int, max_running: int, rows_per_round: int) -> None:
        self.allocator = SlotAllocator(num_slots)
        self.cache = PrefixCache()
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.request_ids: set[str] = set()
        self.num_preemptions = 0
        self._num_slots = num_slots
        self._max_running = max_running
        self._rows_per_round = rows_per_round

    @property
    def num_available(self) -> int:
        return self.allocator.num_free + self.cache.num_evictable

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence whose request id is not in use."""
        assert sequence.request.id not in self.request_ids
        self.request_ids.add(sequence.request.id)
        self.waiting.append(sequence)

    def admit(self) -> None:
        """Move waiting sequences to running, oldest first, while their prefill and everybody's next round fit."""
        while self.waiting and len(self.running) < self._max_running:
            sequence = self.waiting[0]
            # A fresh prompt keeps its last token to compute: its logits choose the first token.
            num_matchable = len(sequence.tokens) - 1
            match = self.cache.match(sequence.tokens[:num_matchable])
            # Locked before the count: what this hit pins can no longer be evicted for its own prefill.
            self.cache.lock(match.node)
            num_owed = sum(s.prefill_end - s.num_computed for s in self.running)
            num_new = sequence.prefill_end - len(match.slots)
            if (
                num_new + num_owed + self._rows_per_round * (len(self.running) + 1) > self.num_available
                and self.running
            ):
                self.cache.unlock(match.node)
                return
            self.waiting.popleft()
            self._attach(sequence, match)
            self.running.append(sequence)

    def match_again(self, sequence: Sequence) -> None:
        """Before a sequence's first chunk: read what others have put into the cache since its admission (prompts that
        came together and begin alike are computed once)."""
        if sequence.num_computed == sequence.num_cached:
            match = self.cache.match(sequence.tokens[: len(sequence.tokens) - 1])
            if len(match.slots) > sequence.num_cached:
                self.cache.lock(match.node)
                self._detach(sequence)
                self._attach(sequence, match)
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.num_cached

    def take(self, sequence: Sequence, count: int) -> NDArray[np.int64] | None:
        """`count` slots for `sequence`, preempting later arrivals where needed; None when `sequence` itself had to
        give way (it is waiting again). int64 [count]."""
        while self.num_available < count:
            victim = self.running[-1]
            assert victim is not sequence or len(self.running) > 1, "one sequence alone must fit: see Engine"
            self._preempt(victim)
            if victim is sequence:
                return None
        short = count - self.allocator.num_free
        if short > 0:
            self.allocator.free(self.cache.evict(short))
        return self.allocator.allocate(count)

    def give_back(self, slots: NDArray[np.int64]) -> None:
        self.allocator.free(slots)

    def share(self, sequence: Sequence) -> None:
        """Put what `sequence` has computed into the prefix cache, and read it from there on."""
        tokens = sequence.tokens[: sequence.num_computed]
        match, already = self.cache.insert(tokens, sequence.slots[: sequence.num_computed])
        # Where another sequence was first, ours are duplicates; below num_cached they are the same slots.
        self.allocator.free(sequence.slots[sequence.num_cached : max(already, sequence.num_cached)])
        self._detach(sequence)
        self.cache.lock(match.node)
        sequence.cache_node = match.node
        sequence.slots[: sequence.num_computed] = match.slots
        sequence.num_cached = sequence.num_computed

    def finish(self, sequence: Sequence) -> None:
        """A running sequence has ended: what it computed stays as cache."""
        self.share(sequence)
        self._detach(sequence)
        self.running.remove(sequence)
        self.request_ids.discard(sequence.request.id)

    def abort(self, request_id: str) -> Sequence | None:
        """Drop a sequence wherever it is, between steps; its own slots are free again. None when unknown."""
        for sequence in self.waiting:
            if sequence.request.id == request_id:
                self.waiting.remove(sequence)
                self.request_ids.discard(request_id)
                return sequence
        for sequence in self.running:
            if sequence.request.id == request_id:
                self.allocator.free(sequence.owned_slots())
                self._detach(sequence)
                self.running.remove(sequence)
                self.request_ids.discard(request_id)
                return sequence
        return None

    def drop_all(self) -> list[Sequence]:
        """Forget every sequence and every cached prefix: all slots are free, whoever held them. The sequences."""
        dropped = [*self.running, *self.waiting]
        self.running.clear()
        self.waiting.clear()
        self.request_ids.clear()
        self.cache = PrefixCache()
        self.allocator = SlotAllocator(self._num_slots)
        return dropped

    def check_idle(self) -> None:
        """Assert that with nothing to do every slot is free or cached, and nothing is locked."""
        assert not self.running
        assert self.cache.num_evictable == self.cache.num_slots, "a cached prefix is still locked"
        self.allocator.check(self.cache.held_slots())

    def _attach(self, sequence: Sequence, match: PrefixMatch) -> None:
        num_hit = len(match.slots)
        sequence.cache_node = match.node
        sequence.slots[:num_hit] = match.slots
        sequence.num_cached = sequence.num_computed = num_hit

    def _detach(self, sequence: Sequence) -> None:
        if sequence.cache_node is not None:
            self.cache.unlock(sequence.cache_node)
            sequence.cache_node = None

    def _preempt(self, sequence: Sequence) -> None:
        log.info(
            "request %s preempted: out of slots (%d tokens computed)",
            sequence.request.id,
            sequence.num_computed,
        )
        self.num_preemptions += 1
        self.share(sequence)
        self._detach(sequence)
        self.running.remove(sequence)
        sequence.num_cached = sequence.num_computed = 0
        self.waiting.appendleft(sequence)
