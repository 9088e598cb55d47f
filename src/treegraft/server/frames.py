"""Length-prefixed msgpack frames, the wire between the HTTP process and the engine process.

    frame:  4 bytes length of the body, big-endian | body: one msgpack object

Knows no message: the caller brings a msgspec encoder's bytes and a typed decoder. Nothing here can run code
from the wire.
"""

import socket
import struct

import msgspec

HEADER = struct.Struct("!I")
# Far above any request (bodies are limited by the HTTP side); a longer one means the stream is out of step.
MAX_BODY_BYTES = 256 * 2**20

_encoder = msgspec.msgpack.Encoder()


def encode(message: object) -> bytes:
    """One frame holding `message` (a msgspec struct)."""
    body = _encoder.encode(message)
    assert len(body) <= MAX_BODY_BYTES, f"a frame of {len(body)} bytes"
    return HEADER.pack(len(body)) + body


def body_length(header: bytes) -> int:
    """Length that a frame's first four bytes announce."""
    length: int = HEADER.unpack(header)[0]
    assert length <= MAX_BODY_BYTES, f"a frame of {length} bytes announced"
    return length


class FrameSocket:
    """Frames over a blocking stream socket, for the engine process; one owner, one thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()
        self._is_ended = False

    def send(self, message: object) -> None:
        """Raises OSError when the other side is gone."""
        self._socket.sendall(encode(message))

    def receive(self, wait: bool) -> list[bytes] | None:
        """Bodies of all frames that have arrived; with `wait`, sleeps until there is at least one. None at
        the end of the stream, once every complete frame has been handed out."""
        while True:
            while not self._is_ended and self._read(socket.MSG_DONTWAIT):
                pass
            bodies = self._take_bodies()
            if bodies:
                return bodies
            if self._is_ended:
                return None
            if not wait:
                return []
            self._read(0)

    def _read(self, flags: int) -> bool:
        """Append what arrived to the buffer; False when there was nothing to read without waiting."""
        try:
            data = self._socket.recv(2**18, flags)
        except BlockingIOError:
            return False
        except ConnectionError:
            data = b""
        self._buffer += data
        self._is_ended = not data
        return True

    def _take_bodies(self) -> list[bytes]:
        bodies = []
        start = 0
        while len(self._buffer) - start >= HEADER.size:
            body = start + HEADER.size
            end = body + body_length(bytes(self._buffer[start:body]))
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[body:end]))
            start = end
        del self._buffer[:start]
        return bodies
