"""What the routes do with a body, without a socket."""

import asyncio

import pytest
from starlette.requests import Request

from treegraft.server.app import _read
from treegraft.server.failures import RequestError


def request_of(pieces):
    """A request whose body is these pieces; after them nothing comes, not even its end."""
    waiting = list(pieces)

    async def receive():
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    return Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)


def piece(body, more):
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_comes_in_pieces():
    assert asyncio.run(_read(request_of([piece(b"a", True), piece(b"b", False)]))) == b"ab"


@pytest.mark.parametrize("pieces", [[], [piece(b"a", True)]])
def test_a_body_that_does_not_come_is_given_up(pieces):
    with pytest.raises(RequestError, match="no more of the body") as caught:
        asyncio.run(_read(request_of(pieces), patience_seconds=0.05))
    assert caught.value.status == 408
