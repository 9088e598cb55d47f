import numpy as np
import pytest

from treegraft.errors import UsageError
from treegraft.speculation.accept import Acceptance
from treegraft.speculation.compact import split_slots

SLOTS = np.array([40, 41, 42, 57, 58], np.int64)


@pytest.mark.parametrize(
    ("path", "kept", "freed"),
    [
        ([], [40], [41, 42, 57, 58]),
        ([1, 3], [40, 42, 58], [41, 57]),
        ([0, 1, 2, 3], [40, 41, 42, 57, 58], []),
    ],
)
def test_kept_in_path_order_and_the_rest_freed(path: list[int], kept: list[int], freed: list[int]) -> None:
    found_kept, found_freed = split_slots(SLOTS, Acceptance(np.array(path, np.int64), 7))
    assert found_kept.tolist() == kept
    assert found_freed.tolist() == freed


@pytest.mark.parametrize("slots", [[], [[1, 2]], [1, 2]])
def test_a_path_outside_the_rows_is_refused(slots: list[int]) -> None:
    with pytest.raises(UsageError, match="expected one slot for the root and each node"):
        split_slots(np.array(slots, np.int64), Acceptance(np.array([1], np.int64), 7))
