from pathlib import Path

import numpy as np
import pytest

from treegraft.engine.config import MAX_BUDGET, EngineConfig
from treegraft.errors import UsageError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", None),
        ("model", ""),
        ("drafter", 5),
        ("drafter", False),
        ("drafter", ""),
        ("method", "x"),
        ("method", None),
        ("budget", -1),
        ("budget", True),
        ("budget", 1.5),
        ("budget", "8"),
        ("budget", MAX_BUDGET + 1),
        ("max_context", 1),
        ("max_context", "8"),
        ("max_running", 0),
        ("max_running", None),
        ("num_slots", 1),
        ("num_slots", 10**12),
        ("prefill_chunk", 0),
        ("prefill_chunk", None),
    ],
)
def test_a_wrong_value_is_a_usage_error_that_names_the_field(name, value):
    with pytest.raises(UsageError, match=f"^{name} is "):
        EngineConfig(**({"model": "m"} | {name: value}))


def test_paths_and_numpy_numbers_become_plain():
    config = EngineConfig(model=Path("a/b"), drafter=Path("c"), budget=np.int64(4))
    assert (config.model, config.drafter, config.budget) == ("a/b", "c", 4)
    assert type(config.budget) is int
