"""A radix tree from token prefixes to the KV slots that hold them. Knows no request and no tensor.

One slot holds a token's K/V of the target and of the drafter, so a hit restores both. An edge carries tokens and, in
parallel, their slots:

    root ──[t0 t1 t2]──► A ──[t3 t4]──► B        slots of A: s0 s1 s2, of B: s3 s4
                         └──[t9]─────► C

A node is locked while a sequence reads it (lock counts the path up to the root); eviction frees unlocked leaves, least
recently used first, and returns their slots to the allocator.
"""

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(eq=False)
class CacheNode:
    tokens: tuple[int, ...]
    slots: NDArray[np.int64]
    parent: "CacheNode | None"
    children: dict[int, "CacheNode"] = field(default_factory=dict)
    num_locks: int = 0
    last_used: int = 0


@dataclass(frozen=True)
class PrefixMatch:
    """The longest cached prefix: its end node and its slots, int64 [matched tokens]."""

    node: CacheNode
    slots: NDArray[np.int64]


def _shared_length(a: Sequence[int], b: Sequence[int], start: int) -> int:
    """How many tokens of `a` equal b[start:]."""
    limit = min(len(a), len(b) - start)
    for i in range(limit):
        if a[i] != b[start + i]:
            return i
    return limit


class PrefixCache:
    def __init__(self) -> None:
        self.root = CacheNode((), np.empty(0, np.int64), None)
        self._clock = itertools.count(1)
        self.num_slots = 0
        self.num_evictable = 0

    def match(self, tokens: Sequence[int]) -> PrefixMatch:
        """Longest cached prefix of `tokens`; splits an edge that is matched in part."""
        node, pieces, position = self.root, [self.root.slots], 0
        now = next(self._clock)
        while position < len(tokens):
            child = node.children.get(tokens[position])
            if child is None:
                break
            shared = _shared_length(child.tokens, tokens, position)
            if shared < len(child.tokens):
                child = self._split(child, shared)
            child.last_used = now
            pieces.append(child.slots)
            node, position = child, position + shared
        return PrefixMatch(node, np.concatenate(pieces))

    def insert(self, tokens: Sequence[int], slots: NDArray[np.int64]) -> tuple[PrefixMatch, int]:
        """Put a prefix in; returns the match for all of `tokens` and how many of them were there before.

        The cache takes over slots[already:]; slots[:already] remain the caller's where they differ from the
        match's (duplicates: the caller frees them).
        """
        assert len(tokens) == len(slots)
        found = self.match(tokens)
        already = len(found.slots)
        if already == len(tokens):
            return found, already
        node = CacheNode(tuple(tokens[already:]), slots[already:].copy(), found.node, last_used=next(self._clock))
        found.node.children[node.tokens[0]] = node
        self.num_slots += len(node.slots)
        self.num_evictable += len(node.slots)
        return PrefixMatch(node, np.concatenate([found.slots, node.slots])), already

    def lock(self, node: CacheNode) -> None:
        """Keep a node and all above it from eviction; undone by unlock."""
        walk: CacheNode | None = node
        while walk is not None:
            if walk.num_locks == 0:
                self.num_evictable -= len(walk.slots)
            walk.num_locks += 1
            walk = walk.parent

    def unlock(self, node: CacheNode) -> None:
        walk: CacheNode | None = node
        while walk is not None:
            assert walk.num_locks > 0
            walk.num_locks -= 1
            if walk.num_locks == 0:
                self.num_evictable += len(walk.slots)
            walk = walk.parent

    def evict(self, count: int) -> NDArray[np.int64]:
        """Drop unlocked leaves, oldest first, until at least `count` slots are out (or nothing unlocked is left)."""
        order = itertools.count()
        heap = [(n.last_used, next(order), n) for n in self._nodes() if not n.children and n.num_locks == 0]
        heapq.heapify(heap)
        freed = [np.empty(0, np.int64)]
        num_freed = 0
        while heap and num_freed < count:
            _, _, node = heapq.heappop(heap)
            parent = node.parent
            assert parent is not None
            del parent.children[node.tokens[0]]
            freed.append(node.slots)
            num_freed += len(node.slots)
            if parent is not self.root and not parent.children and parent.num_locks == 0:
                heapq.heappush(heap, (parent.last_used, next(order), parent))
        self.num_slots -= num_freed
        self.num_evictable -= num_freed
        return np.concatenate(freed)

    def held_slots(self) -> NDArray[np.int64]:
        """Every slot the cache owns, int64 [num_slots]; for the idle integrity check."""
        return np.concatenate([self.root.slots, *(node.slots for node in self._nodes())])

    def _nodes(self) -> Iterator[CacheNode]:
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            yield node

    def _split(self, node: CacheNode, length: int) -> CacheNode:
        """Cut an edge after `length` tokens; returns the new upper node. Locks hold for both halves."""
        parent = node.parent
        assert parent is not None
        assert 0 < length < len(node.tokens)
        upper = CacheNode(
            node.tokens[:length],
            node.slots[:length],
            parent,
            {node.tokens[length]: node},
            node.num_locks,
            node.last_used,
        )
        parent.children[upper.tokens[0]] = upper
        node.tokens, node.slots, node.parent = node.tokens[length:], node.slots[length:], upper
        return upper
