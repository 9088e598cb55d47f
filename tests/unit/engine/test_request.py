import math

import msgspec
import numpy as np
import pytest

from treegraft.engine.request import MAX_STOP_CHARACTERS, MAX_STOPS, SamplingParams, check_context
from treegraft.errors import ContextTooLongError, UsageError

BAD = {
    "max_tokens": [-1, 0, True, 2.0, "5", None, 10**30],
    "temperature": ["hot", None, math.nan, math.inf, -0.1, True, 10**400],
    "top_k": [-1, 1.5, 2**31, "x", None],
    "top_p": [0, 1.5, math.nan, "x", None],
    "min_p": [-0.1, 2, math.nan, None],
    "seed": [-1, 2**64, 1.5, "x", True],
    "stop": [None, 5, "", ("",), (1,), {"a": 1}, ("x",) * (MAX_STOPS + 1), "x" * (MAX_STOP_CHARACTERS + 1)],
    "stop_token_ids": [None, 3, ("a",), (-1,), (2**31,), (True,), "12"],
    "ignore_eos": ["no", None, 1],
    "choice": [-1, 2**32, "a", True],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_wrong_value_is_a_usage_error_that_names_the_field(name, value):
    with pytest.raises(UsageError, match=f"^{name} ") as caught:
        SamplingParams(**{name: value})
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 250


def test_one_stop_string_is_not_taken_apart():
    assert SamplingParams(stop="abc").stop == ("abc",)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")


def test_numbers_and_lists_of_others_become_plain():
    params = SamplingParams(
        max_tokens=np.int64(3), temperature=np.float32(0.5), seed=np.uint64(2**64 - 1), stop_token_ids=[np.int32(7)]
    )
    assert params == SamplingParams(max_tokens=3, temperature=0.5, seed=2**64 - 1, stop_token_ids=(7,))
    wire = msgspec.msgpack.encode(params)
    assert msgspec.msgpack.decode(wire, type=SamplingParams) == params


def test_the_context_is_full_at_its_last_token():
    check_context(60, 4, 64)
    with pytest.raises(ContextTooLongError, match="60 tokens \\+ max_tokens 5 exceeds the context of 64"):
        check_context(60, 5, 64)
