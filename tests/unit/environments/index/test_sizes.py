"""Sizes that a server says, or does not."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from treegraft.environments.index.sizes import content_length


@contextmanager
def answering(data: bytes) -> Iterator[str]:
    """host:port of a server that sends these bytes to one caller."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(data)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n", 1234),
        (b"HTTP/1.1 200 OK\r\n\r\n", 0),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", 0),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", 0),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\n", 0),
        (b"no such thing as a status line\r\n\r\n", 0),
        (b"", 0),
    ],
)
def test_what_servers_say(data: bytes, size: int) -> None:
    with answering(data) as place:
        assert content_length(f"http://{place}/a.whl") == size


def test_urls_that_cannot_be_asked() -> None:
    assert content_length("https://user:secret@host.invalid/a.whl") == 0
    assert content_length("http://[::1/a.whl") == 0
