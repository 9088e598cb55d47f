"""Frames survive any cut of the byte stream, and the end of the stream comes after the last whole frame."""

import socket

import msgspec
import pytest

from treegraft.server.frames import HEADER, FrameSocket, body_length, encode

MESSAGES = [{"a": 1}, [1, 2, 3], "", "x" * 1000]


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def decoded(bodies):
    return [msgspec.msgpack.decode(body) for body in bodies]


def test_messages_arrive_whole_and_in_order_however_the_stream_is_cut(pair):
    ours, theirs = pair
    frames = FrameSocket(theirs)
    stream = b"".join(map(encode, MESSAGES))
    for size in (1, 2, 3, 7, 500, len(stream)):
        received = []
        for start in range(0, len(stream), size):
            ours.sendall(stream[start : start + size])
            received += frames.receive(wait=False)
        assert decoded(received) == MESSAGES


def test_a_waiting_receiver_gets_at_least_one_frame(pair):
    ours, theirs = pair
    ours.sendall(encode("first") + encode("second")[:-1])
    frames = FrameSocket(theirs)
    assert decoded(frames.receive(wait=True)) == ["first"]
    ours.sendall(encode("second")[-1:])
    assert decoded(frames.receive(wait=True)) == ["second"]


def test_the_end_is_none_after_all_whole_frames(pair):
    ours, theirs = pair
    ours.sendall(encode("last") + b"\0\0")
    ours.close()
    frames = FrameSocket(theirs)
    assert decoded(frames.receive(wait=False)) == ["last"]
    assert frames.receive(wait=False) is None
    assert frames.receive(wait=True) is None


def test_sending_to_a_peer_that_is_gone_raises(pair):
    ours, theirs = pair
    ours.close()
    with pytest.raises(OSError):
        FrameSocket(theirs).send("x")


def test_an_announced_length_beyond_reason_is_refused():
    with pytest.raises(AssertionError):
        body_length(HEADER.pack(2**32 - 1))
