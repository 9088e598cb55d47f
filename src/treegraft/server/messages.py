"""What the HTTP process and the engine process say to each other: tagged msgspec structs. Knows no transport.

HTTP -> engine   Start, then any number of Add and Abort; the end of the stream means stop
engine -> HTTP   Ready or Failed in answer to Start; Accepted or Rejected for each Add; Outputs; Failed
"""

import msgspec

from treegraft.engine.config import EngineConfig, EngineInfo
from treegraft.engine.request import Request, StepOutput


class Message(msgspec.Struct, frozen=True, tag=True):
    pass


class Start(Message, frozen=True, tag=True):
    config: EngineConfig


class Add(Message, frozen=True, tag=True):
    """Requests that are taken together or not at all; `group` is what the answer names."""

    group: str
    requests: tuple[Request, ...]


class Abort(Message, frozen=True, tag=True):
    request_ids: tuple[str, ...]


class Ready(Message, frozen=True, tag=True):
    info: EngineInfo


class Failed(Message, frozen=True, tag=True):
    """The engine process cannot start or cannot go on, and ends. `error` names a class of
    treegraft.errors."""

    error: str
    message: str


class Accepted(Message, frozen=True, tag=True):
    group: str


class Rejected(Message, frozen=True, tag=True):
    """Nothing of the group was added. `error` names a class of treegraft.errors."""

    group: str
    error: str
    message: str


class Status(msgspec.Struct, frozen=True):
    """The engine between two steps: requests running and waiting, K/V slots that a new request could get."""

    running: int
    waiting: int
    free_slots: int


class Outputs(Message, frozen=True, tag=True):
    """One step's outputs (none when only the status changed)."""

    outputs: tuple[StepOutput, ...]
    status: Status


FromHttp = Start | Add | Abort
FromEngine = Ready | Failed | Accepted | Rejected | Outputs

from_http: msgspec.msgpack.Decoder[FromHttp] = msgspec.msgpack.Decoder(FromHttp)
from_engine: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)
