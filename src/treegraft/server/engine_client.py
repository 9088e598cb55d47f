"""The HTTP process's end of the engine: starts the engine process, sends requests, hands each its outputs.

Knows no HTTP and no text. Everything runs on one event loop and nothing here blocks it. When the engine
process dies, every running request gets a ServerError, and so does every later one.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable

from treegraft import errors
from treegraft.engine.config import EngineConfig, EngineInfo
from treegraft.engine.request import Request, StepOutput
from treegraft.errors import ServerError, TreegraftError
from treegraft.logs import get_logger
from treegraft.server import frames
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

log = get_logger(__name__)

STOP_SECONDS = 5.0
STDERR = 2  # nothing of the engine process may end up in what the parent prints on stdout


class Submission:
    """The requests of one HTTP call on their way through the engine. Use as a context manager: leaving it
    aborts what still runs, whatever the reason."""

    def __init__(self, group: str, requests: tuple[Request, ...], abort: Callable[["Submission"], None]) -> None:
        self.group = group
        self.index_of = {request.id: index for index, request in enumerate(requests)}
        self.unfinished = set(self.index_of)
        self._abort = abort
        self._events: asyncio.Queue[StepOutput | TreegraftError | None] = asyncio.Queue()

    def __enter__(self) -> "Submission":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._abort(self)

    def put(self, event: StepOutput | TreegraftError | None) -> None:
        """None: accepted. An error ends all requests of the submission."""
        self._events.put_nowait(event)

    async def accepted(self) -> None:
        """Waits until the engine has taken the requests. Raises what it refused them with (UsageError,
        ContextTooLongError), or ServerError when it is gone."""
        event = await self._events.get()
        if isinstance(event, TreegraftError):
            self.unfinished.clear()
            raise event
        assert event is None

    async def outputs(self) -> AsyncIterator[tuple[int, StepOutput]]:
        """(index of the request, what a step committed for it) until all have finished. Raises ServerError
        when the engine is gone or a request cannot go on."""
        while self.unfinished:
            event = await self._events.get()
            assert event is not None
            if isinstance(event, TreegraftError):
                self.unfinished.clear()
                raise event
            if event.finish_reason is not None:
                self.unfinished.discard(event.request_id)
            if event.finish_reason in ("error", "abort"):
                raise ServerError(event.error or "the request was aborted by the server")
            yield self.index_of[event.request_id], event


class EngineClient:
    """`await EngineClient.start(config)`, `await ready()`, then `submit`. `info` and `status` are set
    once ready."""

    def __init__(self, process: subprocess.Popen[bytes], writer: asyncio.StreamWriter) -> None:
        self.info: EngineInfo | None = None
        self.status: Status | None = None
        self.failure: TreegraftError | None = None
        self.process_id = process.pid
        self._process = process
        self._writer = writer
        self._submissions: dict[str, Submission] = {}
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, config: EngineConfig) -> "EngineClient":
        """Start the engine process; it loads its model on its own time."""
        ours, theirs = socket.socketpair()
        # The script directory or "" goes to the front of sys.path under -m; leave it out unless we have it
        # ourselves.
        safe_path = [] if "" in sys.path or os.getcwd() in sys.path else ["-P"]
        command = [sys.executable, *safe_path, "-m", "treegraft.server.engine_process", str(theirs.fileno())]
        with theirs:
            # Its own process group: a terminal's Ctrl-C is for the HTTP process, which then ends this one.
            process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=STDERR, process_group=0
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        client = cls(process, writer)
        client._send(Start(config))
        client._reading = asyncio.create_task(client._read(reader))
        return client

    async def ready(self) -> EngineInfo:
        """Waits for the model. Raises what the engine could not be built with."""
        await self._ready.wait()
        if self.failure is not None:
            raise self.failure
        assert self.info is not None
        return self.info

    async def ended(self) -> TreegraftError:
        """Waits until the engine process is gone, and says why."""
        await self._ended.wait()
        assert self.failure is not None
        return self.failure

    def submit(self, group: str, requests: tuple[Request, ...]) -> Submission:
        """Send requests that are taken together or not at all. Raises ServerError when the engine is gone."""
        if self.failure is not None:
            raise self.failure
        submission = Submission(group, requests, self._abort)
        self._submissions[group] = submission
        self._send(Add(group, requests))
        return submission

    def fail_all(self, error: TreegraftError) -> None:
        """End every running request with `error`, and refuse later ones with it."""
        self.failure = self.failure or error
        for submission in self._submissions.values():
            submission.put(error)
        self._submissions.clear()

    async def stop(self) -> None:
        """End the engine process: ask, wait, then kill; one that is still loading does not listen and is killed.
        Running requests get a ServerError."""
        self.fail_all(ServerError("the server is stopping"))
        self._writer.close()
        if self.info is None:
            self._process.kill()
        try:
            await asyncio.wait_for(asyncio.to_thread(self._process.wait), STOP_SECONDS)
        except TimeoutError:
            log.warning("the engine process %d does not end; killing it", self.process_id)
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    def _send(self, message: Start | Add | Abort) -> None:
        if not self._writer.is_closing():
            self._writer.write(frames.encode(message))

    def _abort(self, submission: Submission) -> None:
        if self._submissions.pop(submission.group, None) is not None and submission.unfinished:
            self._send(Abort(tuple(sorted(submission.unfinished))))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                header = await reader.readexactly(frames.HEADER.size)
                self._take(from_engine.decode(await reader.readexactly(frames.body_length(header))))
        code = await asyncio.to_thread(self._process.wait)
        when = "before it was ready" if self.info is None else "while serving"
        self.fail_all(
            ServerError(f"the engine process {self.process_id} {_how_it_ended(code)} {when}; see the log above")
        )
        self._ready.set()
        self._ended.set()

    def _take(self, message: Ready | Failed | Accepted | Rejected | Outputs) -> None:
        if isinstance(message, Outputs):
            self.status = message.status
            for output in message.outputs:
                self._deliver(output)
        elif isinstance(message, Ready):
            self.info = message.info
            self._ready.set()
        elif isinstance(message, Failed):
            self.fail_all(_error_of(message.error, message.message))
        elif (submission := self._submissions.get(message.group)) is not None:
            submission.put(_error_of(message.error, message.message) if isinstance(message, Rejected) else None)

    def _deliver(self, output: StepOutput) -> None:
        # A request id is GROUP/INDEX; outputs of a submission that was just aborted may still be under way.
        submission = self._submissions.get(output.request_id.rpartition("/")[0])
        if submission is not None:
            submission.put(output)


def _error_of(name: str, message: str) -> TreegraftError:
    """The error that the engine process met; it sent the class by name."""
    error_type = getattr(errors, name, None)
    if isinstance(error_type, type) and issubclass(error_type, TreegraftError):
        return error_type(message)
    return TreegraftError(message)


def _how_it_ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
