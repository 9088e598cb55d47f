"""Which slots of the KV pool are free. Knows no sequence, no token and no tensor.

    slot 0          scratch: padding rows write there, nobody reads it, it is never handed out
    slots 1..n-1    free, or owned by exactly one of: a sequence (its own tail), the prefix cache

Who frees: a round frees the slots of rejected nodes; a sequence that ends frees its own tail, or gives it to the
prefix cache; eviction frees what the cache held.
"""

import numpy as np
from numpy.typing import NDArray


class SlotAllocator:
    """A stack of free slots."""

    def __init__(self, num_slots: int) -> None:
        assert num_slots >= 2
        self.capacity = num_slots - 1
        self._free = np.arange(num_slots - 1, 0, -1, dtype=np.int64)
        self._num_free = self.capacity

    @property
    def num_free(self) -> int:
        return self._num_free

    def allocate(self, count: int) -> NDArray[np.int64]:
        """`count` slots, int64 [count]. The caller has checked that so many are free."""
        assert 0 <= count <= self._num_free, f"{count} slots asked for, {self._num_free} free"
        start = self._num_free - count
        taken = self._free[start : self._num_free][::-1].copy()
        self._num_free = start
        return taken

    def free(self, slots: NDArray[np.int64]) -> None:
        """Give slots back; each was allocated before."""
        count = len(slots)
        assert self._num_free + count <= self.capacity, "a slot was freed twice"
        self._free[self._num_free : self._num_free + count] = slots
        self._num_free += count

    def check(self, held: NDArray[np.int64]) -> None:
        """Assert that `held` (every slot owned elsewhere) and the free ones are each slot exactly once."""
        everything = np.sort(np.concatenate([self._free[: self._num_free], held]))
        assert np.array_equal(everything, np.arange(1, self.capacity + 1)), (
            f"slots leak: {self._num_free} free + {len(held)} held, {self.capacity} in all"
        )
