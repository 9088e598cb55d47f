"""The engine loop at the other end of a socket, a real tiny engine behind it."""

import socket
import threading

import pytest
import torch
from tiny_models import TinyShape, write_target

from treegraft.engine.config import EngineConfig
from treegraft.engine.request import Request, SamplingParams
from treegraft.server.engine_process import serve
from treegraft.server.frames import FrameSocket
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
)


class Peer:
    """The HTTP side of an engine loop that runs in a thread; `exit_code` once `leave` was called."""

    def __init__(self, config):
        ours, theirs = socket.socketpair()
        self.exit_code = None
        self._socket, self._frames, self._messages = ours, FrameSocket(ours), []
        self._thread = threading.Thread(target=self._run, args=(theirs,))
        self._thread.start()
        self.send(Start(config))

    def _run(self, theirs):
        with theirs:
            self.exit_code = serve(theirs)

    def send(self, message):
        self._frames.send(message)

    def next(self):
        """The next message; None at the end."""
        if not self._messages:
            self._messages = list(self._frames.receive(wait=True) or [])
        return from_engine.decode(self._messages.pop(0)) if self._messages else None

    def leave(self):
        self._socket.close()
        self._thread.join(60)
        return self.exit_code


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    target = write_target(tmp_path_factory.mktemp("model"), TinyShape())
    return EngineConfig(model=str(target), drafter=None, device="cpu")


@pytest.fixture
def peer(config):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    peer = Peer(config)
    assert isinstance(peer.next(), Ready)
    yield peer
    peer.leave()
    torch.set_num_threads(threads)


def request(name, **fields):
    params = SamplingParams(seed=1, **({"max_tokens": 4} | fields))
    return Request(id=name, prompt_token_ids=(1, 2, 3), params=params)


def idle_status(peer):
    message = peer.next()
    assert isinstance(message, Outputs)
    assert message.outputs == ()
    assert (message.status.running, message.status.waiting) == (0, 0)
    return message.status


def test_a_group_is_accepted_and_run_to_its_end(peer):
    status = idle_status(peer)
    peer.send(Add("g", (request("g/0"), request("g/1", max_tokens=6))))
    assert peer.next() == Accepted("g")
    ids = {"g/0": [], "g/1": []}
    reasons = {}
    while len(reasons) < 2:
        message = peer.next()
        for output in message.outputs:
            ids[output.request_id] += output.token_ids
            if output.finish_reason:
                reasons[output.request_id] = output.finish_reason
    assert {name: len(each) for name, each in ids.items()} == {"g/0": 4, "g/1": 6}
    assert message.status == status
    assert peer.leave() == 0


def test_a_refused_group_adds_nothing(peer):
    status = idle_status(peer)
    peer.send(Add("g", (request("g/0"), request("g/1", max_tokens=5000))))
    refused = peer.next()
    assert isinstance(refused, Rejected)
    assert (refused.group, refused.error) == ("g", "ContextTooLongError")
    peer.send(Add("h", (request("h/0"),)))
    assert peer.next() == Accepted("h")
    message = peer.next()
    assert {output.request_id for output in message.outputs} == {"h/0"}
    assert message.status == Status(1, 0, message.status.free_slots)
    assert message.status.free_slots < status.free_slots


def test_an_abort_frees_what_runs(peer):
    status = idle_status(peer)
    peer.send(Add("g", (request("g/0", max_tokens=400),)))
    assert peer.next() == Accepted("g")
    peer.next()
    peer.send(Abort(("g/0", "unknown")))
    while (message := peer.next()).status.running:
        pass
    assert message.status == status


def test_what_cannot_be_built_is_told(tmp_path):
    peer = Peer(EngineConfig(model=str(tmp_path / "nothing")))
    failed = peer.next()
    assert isinstance(failed, Failed)
    assert failed.error == "UsageError"
    assert "nothing" in failed.message
    assert peer.leave() == 2


def test_a_loop_that_breaks_says_so_before_it_ends(peer, config):
    idle_status(peer)
    peer.send(Start(config))  # a peer that is out of step: ours to fix, and so an assertion
    failed = peer.next()
    assert isinstance(failed, Failed)
    assert failed.error == "ServerError"
    assert "AssertionError" in failed.message
    assert peer.next() is None
    assert peer.leave() == 1
