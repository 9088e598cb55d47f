"""Messages come back as they were; what is none of them is refused."""

import msgspec
import pytest

from treegraft.engine.config import EngineConfig, EngineInfo
from treegraft.engine.request import Request, SamplingParams, StepOutput
from treegraft.server.messages import (
    Abort,
    Accepted,
    Add,
    Failed,
    Outputs,
    Ready,
    Rejected,
    Start,
    Status,
    from_engine,
    from_http,
)

PARAMS = SamplingParams(max_tokens=3, temperature=0.7, stop=("a", "b"), stop_token_ids=(1,), seed=2**64 - 1, choice=2)
INFO = EngineInfo(
    model="m",
    drafter=None,
    method="ar",
    budget=None,
    block_size=None,
    device="cpu",
    dtype="float32",
    max_context=64,
    vocab_size=10,
    num_slots=100,
)
OUTPUT = StepOutput(
    request_id="g/0",
    token_ids=(1, 2),
    text="ab",
    finish_reason=None,
    accept_length=2,
    num_prompt_tokens=3,
    cached_tokens=0,
    seed=2**64 - 1,
)


@pytest.mark.parametrize(
    "message",
    [
        Start(EngineConfig(model="m", drafter=None, method="ddtree", budget=4)),
        Add("g", (Request(id="g/0", prompt_token_ids=(1, 2), params=PARAMS),)),
        Abort(("g/0", "g/1")),
    ],
)
def test_to_the_engine(message):
    assert from_http.decode(msgspec.msgpack.encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        Ready(INFO),
        Failed("DrafterError", "no"),
        Accepted("g"),
        Rejected("g", "UsageError", "no"),
        Outputs((OUTPUT,), Status(1, 2, 3)),
        Outputs((), Status(0, 0, 9)),
    ],
)
def test_from_the_engine(message):
    assert from_engine.decode(msgspec.msgpack.encode(message)) == message


@pytest.mark.parametrize("document", [{"type": "Run"}, {}, 3, {"type": "Abort", "request_ids": 3}])
def test_anything_else_is_refused(document):
    with pytest.raises(msgspec.ValidationError):
        from_http.decode(msgspec.msgpack.encode(document))
