"""The engine process: `python -m treegraft.server.engine_process FD`. Reads commands, steps the engine,
sends outputs.

Knows no HTTP and no chat. Sleeps on its socket while the engine has nothing to do. The end of the stream,
which also comes when the parent dies, is the only signal to stop: SIGINT and SIGTERM are the parent's
business, since terminals and service managers send them to both processes.
"""

import ctypes
import gc
import signal
import socket
import sys

from treegraft import logs, settings
from treegraft.engine.engine import Engine
from treegraft.engine.request import StepOutput
from treegraft.errors import TreegraftError
from treegraft.logs import get_logger
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
    from_http,
)

log = get_logger(__name__)


class EngineLoop:
    """Serves one engine to one peer until the peer is gone."""

    def __init__(self, engine: Engine, frames: FrameSocket) -> None:
        self._engine = engine
        self._frames = frames
        self._sent_status: Status | None = None

    def run(self) -> None:
        """Returns at the end of the stream. Raises OSError when the peer vanished while we were sending, and
        whatever a broken engine raises."""
        self._report(())
        while True:
            bodies = self._frames.receive(wait=not self._engine.has_work())
            if bodies is None:
                return
            for body in bodies:
                self._obey(body)
            self._report(tuple(self._engine.step()) if self._engine.has_work() else ())

    def _report(self, outputs: tuple[StepOutput, ...]) -> None:
        status = Status(self._engine.num_running, self._engine.num_waiting, self._engine.num_available_slots)
        if outputs or status != self._sent_status:
            self._frames.send(Outputs(outputs, status))
            self._sent_status = status

    def _obey(self, body: bytes) -> None:
        command = from_http.decode(body)
        if isinstance(command, Add):
            self._add(command)
        elif isinstance(command, Abort):
            for request_id in command.request_ids:
                self._engine.abort(request_id)
        else:
            raise AssertionError(f"{type(command).__name__} after the start")

    def _add(self, command: Add) -> None:
        added: list[str] = []
        for request in command.requests:
            try:
                self._engine.add(request)
            except TreegraftError as error:
                for request_id in added:
                    self._engine.abort(request_id)
                self._frames.send(Rejected(command.group, type(error).__name__, str(error)))
                return
            added.append(request.id)
        self._frames.send(Accepted(command.group))


def serve(connection: socket.socket) -> int:
    """Read Start, build the engine, serve until the peer is gone; the process's exit code."""
    frames = FrameSocket(connection)
    first = frames.receive(wait=True)
    if first is None:
        return 0
    start = from_http.decode(first[0])
    assert isinstance(start, Start)
    assert len(first) == 1, "commands before Ready"
    try:
        engine = Engine(start.config)
        _give_back_memory()
        frames.send(Ready(engine.info))
        EngineLoop(engine, frames).run()
        engine.close()
    except (BrokenPipeError, ConnectionResetError):
        return 0  # the parent is gone, and what it wanted with it
    except TreegraftError as error:
        _send_last_words(frames, Failed(type(error).__name__, str(error)))
        return error.exit_code
    except Exception as error:  # the engine loop: whatever broke, the parent must be told before this process ends
        log.exception("the engine broke")
        _send_last_words(frames, Failed("ServerError", f"the engine broke: {type(error).__name__}: {error}"))
        return 1
    return 0


def _give_back_memory() -> None:
    """Return what loading has freed to the system: glibc keeps it otherwise (weights are dequantised and packed, which
    leaves 400 MB of a 135M model's load behind). Other C libraries lack the call."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        gc.collect()
        trim(0)


def _send_last_words(frames: FrameSocket, failed: Failed) -> None:
    try:
        frames.send(failed)
    except OSError:
        log.error("%s", failed.message)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logs.configure(settings.read("TREEGRAFT_LOG_LEVEL"))
    sys.exit(serve(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
