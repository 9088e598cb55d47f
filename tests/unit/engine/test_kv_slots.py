import numpy as np
import pytest

from treegraft.engine.kv_slots import SlotAllocator


def test_slots_are_distinct_and_never_the_scratch_slot():
    allocator = SlotAllocator(10)
    a, b = allocator.allocate(4), allocator.allocate(5)
    assert sorted([*a, *b]) == list(range(1, 10))
    assert allocator.num_free == 0


def test_freed_slots_come_back():
    allocator = SlotAllocator(6)
    taken = allocator.allocate(5)
    allocator.free(taken[1:3])
    assert sorted(allocator.allocate(2)) == sorted(taken[1:3])


def test_asking_for_more_than_is_free_is_our_fault():
    allocator = SlotAllocator(4)
    with pytest.raises(AssertionError, match="4 slots asked for, 3 free"):
        allocator.allocate(4)


def test_check_finds_a_leak_and_a_double_owner():
    allocator = SlotAllocator(8)
    taken = allocator.allocate(3)
    allocator.check(taken)
    with pytest.raises(AssertionError, match="leak"):
        allocator.check(taken[:2])
    with pytest.raises(AssertionError, match="leak"):
        allocator.check(np.concatenate([taken[:2], taken[:1]]))


def test_freeing_twice_is_found():
    allocator = SlotAllocator(4)
    taken = allocator.allocate(1)
    allocator.free(taken)
    with pytest.raises(AssertionError, match="freed twice"):
        allocator.free(taken)
