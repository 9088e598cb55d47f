"""Frames among noise, damaged answers, and the program's own text."""

import zlib

import msgspec
import pytest

from treegraft.environments.agent_call import FrameReader, build_program
from treegraft.errors import HostError

MARKER = "0123456789abcdef" * 2


class Answer(msgspec.Struct):
    value: int


def frame(kind: str, document: object, marker: str = MARKER) -> bytes:
    payload = zlib.compress(msgspec.json.encode(document))
    return marker.encode() + kind.encode() + b"%08x" % len(payload) + payload


def reader(seen: list[tuple[int, int]] | None = None) -> FrameReader[Answer]:
    return FrameReader(MARKER, Answer, None if seen is None else lambda done, files: seen.append((done, files)))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_frames_in_any_pieces_and_between_noise(size: int) -> None:
    seen: list[tuple[int, int]] = []
    frames = reader(seen)
    stream = b"Welcome!\n" + frame("P", {"bytes": 5, "files": 1}) + b"\x1b[0m" + MARKER[:9].encode()
    stream += frame("R", {"value": 7}) + b"bye"
    for at in range(0, len(stream), size):
        frames.feed(stream[at : at + size])
    assert seen == [(5, 1)]
    assert frames.has_answer
    assert frames.take("h").value == 7


def test_marker_of_somebody_else_is_noise() -> None:
    frames = reader()
    frames.feed(frame("R", {"value": 7}, marker="f" * 32))
    assert not frames.has_answer


def test_marker_without_a_length_is_noise() -> None:
    frames = reader()
    frames.feed(MARKER.encode() + b"Rnot-hex!" + frame("R", {"value": 7}))
    assert frames.take("h").value == 7


@pytest.mark.parametrize("document", [{"value": "x"}, {}, [1]])
def test_answer_of_another_shape(document: object) -> None:
    frames = reader()
    frames.feed(frame("R", document))
    with pytest.raises(HostError, match="the agent's answer is damaged"):
        frames.take("h")


def test_answer_that_is_not_compressed() -> None:
    frames = reader()
    frames.feed(MARKER.encode() + b"R00000004abcd")
    with pytest.raises(HostError, match="the agent's answer is damaged"):
        frames.take("h")


def test_refusal_is_one_escaped_line() -> None:
    frames = reader()
    frames.feed(frame("E", {"message": "no \x1b[31m\nsuch"}))
    with pytest.raises(HostError) as caught:
        frames.take("far")
    assert str(caught.value) == "far: no \\x1b[31m\\nsuch"


def test_program_is_plain_ascii_and_compiles() -> None:
    program = build_program({"operation": "read", "names": ["ü", "\n", '"""']})
    assert program.isascii()
    compile(program, "program", "exec")
    assert max(len(line) for line in program.splitlines()) <= 1 << 16
