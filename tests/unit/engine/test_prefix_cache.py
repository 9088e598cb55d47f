import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from treegraft.engine.kv_slots import SlotAllocator
from treegraft.engine.prefix_cache import PrefixCache


def slots(*values):
    return np.array(values, np.int64)


def test_nothing_matches_an_empty_cache():
    assert len(PrefixCache().match([1, 2, 3]).slots) == 0


def test_partial_overlap_splits_an_edge():
    cache = PrefixCache()
    cache.insert([1, 2, 3, 4], slots(11, 12, 13, 14))
    assert cache.match([1, 2, 9]).slots.tolist() == [11, 12]
    match, already = cache.insert([1, 2, 9, 8], slots(21, 22, 23, 24))
    assert already == 2
    assert match.slots.tolist() == [11, 12, 23, 24]
    assert cache.match([1, 2, 3, 4, 5]).slots.tolist() == [11, 12, 13, 14]
    assert cache.num_slots == 6


def test_insert_of_what_is_there_takes_nothing():
    cache = PrefixCache()
    cache.insert([1, 2, 3], slots(1, 2, 3))
    match, already = cache.insert([1, 2], slots(8, 9))
    assert already == 2
    assert match.slots.tolist() == [1, 2]
    assert cache.num_slots == 3


def test_eviction_takes_the_least_recently_used_leaf_and_spares_locks():
    cache = PrefixCache()
    cache.insert([1, 2], slots(1, 2))
    cache.insert([1, 3], slots(1, 3))
    cache.insert([5], slots(5))
    cache.match([1, 2])
    locked = cache.match([5]).node
    cache.lock(locked)
    assert cache.num_evictable == 3
    assert cache.evict(1).tolist() == [3]
    assert sorted(cache.evict(10).tolist()) == [1, 2]
    assert cache.evict(10).tolist() == []
    cache.unlock(locked)
    assert cache.evict(10).tolist() == [5]
    assert cache.num_slots == cache.num_evictable == 0


def test_a_lock_holds_both_halves_of_an_edge_that_is_split_later():
    cache = PrefixCache()
    match, _ = cache.insert([1, 2, 3], slots(1, 2, 3))
    cache.lock(match.node)
    cache.insert([1, 9], slots(1, 9))
    assert cache.evict(10).tolist() == [9]
    cache.unlock(match.node)
    assert sorted(cache.evict(10).tolist()) == [1, 2, 3]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["insert", "match", "evict", "lock", "unlock"]),
            st.lists(st.integers(0, 2), max_size=6),
        ),
        max_size=40,
    )
)
def test_cache_agrees_with_a_dictionary_of_prefixes_and_loses_no_slot(steps):
    cache, allocator = PrefixCache(), SlotAllocator(400)
    known: dict[tuple[int, ...], int] = {}
    locks = []
    for action, tokens in steps:
        if action == "insert":
            mine = allocator.allocate(len(tokens))
            match, already = cache.insert(tokens, mine)
            allocator.free(mine[:already])
            for end in range(1, len(tokens) + 1):
                prefix = tuple(tokens[:end])
                assert match.slots[end - 1] == known.setdefault(prefix, int(match.slots[end - 1]))
        elif action == "match":
            longest = max((n for n in range(len(tokens) + 1) if n == 0 or tuple(tokens[:n]) in known), default=0)
            assert cache.match(tokens).slots.tolist() == [known[tuple(tokens[: n + 1])] for n in range(longest)]
        elif action == "evict":
            gone = set(cache.evict(len(tokens)).tolist())
            allocator.free(np.array(sorted(gone), np.int64))
            known = {prefix: slot for prefix, slot in known.items() if slot not in gone}
        elif action == "lock":
            node = cache.match(tokens).node
            cache.lock(node)
            locks.append((node, tuple(tokens[:n] for n in range(1, len(tokens) + 1) if tuple(tokens[:n]) in known)))
        elif locks:
            cache.unlock(locks.pop()[0])
        for _, prefixes in locks:
            assert all(tuple(prefix) in known for prefix in prefixes), "a locked prefix was evicted"
        allocator.check(cache.held_slots())
    for node, _ in locks:
        cache.unlock(node)
    allocator.free(cache.evict(10**6))
    assert allocator.num_free == allocator.capacity
    assert cache.num_slots == cache.num_evictable == 0
