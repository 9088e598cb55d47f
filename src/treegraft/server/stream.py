"""Server-sent events of one answer: chunks as they come, then usage when asked for, then [DONE], or an error object.

Knows no route. A stream that has begun cannot change its HTTP status any more, so errors become its last event.
"""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from treegraft.errors import TreegraftError
from treegraft.server.answers import Answer
from treegraft.server.engine_client import Submission
from treegraft.server.failures import error_object

DONE = b"data: [DONE]\n\n"


def event(document: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


async def events(submission: Submission, answer: Answer, includes_usage: bool) -> AsyncIterator[bytes]:
    """The whole stream; the last chunk carries `treegraft`."""
    try:
        async for index, output in submission.outputs():
            answer.take(index, output)
            chunks = answer.chunks(index, output)
            if not submission.unfinished and not includes_usage:
                chunks[-1]["treegraft"] = answer.extras()
            for chunk in chunks:
                yield event({**chunk, "usage": None} if includes_usage else chunk)
    except TreegraftError as error:
        yield event(error_object(error))
        return
    if includes_usage:
        yield event({**answer.usage_chunk(), "treegraft": answer.extras()})
    yield DONE
