"""Binds the port, starts the engine process and serves HTTP until a signal, or until the engine is gone.

Knows no route and no request. The port comes first: nobody waits for a model to learn that the port is taken.
"""

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

import uvicorn

from treegraft.engine.config import EngineConfig, EngineInfo
from treegraft.errors import ServerError, UsageError
from treegraft.logs import get_logger
from treegraft.models import registry
from treegraft.models.tokenizer import Tokenizer
from treegraft.records import Record
from treegraft.server.app import Front, Service, make_app
from treegraft.server.engine_client import EngineClient

log = get_logger(__name__)
T = TypeVar("T")

GRACE_SECONDS = 5.0  # for running requests after a stop signal
LINGER_SECONDS = 2.0  # after the engine's death, for error objects and /health to be seen
UNREAD_SECONDS = 10  # for clients that do not read what they asked for


class ServerStart(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A server that has become ready."""

    KIND: ClassVar[str] = "server-start"
    VERSION: ClassVar[int] = 1

    url: str
    served_model_name: str
    process_id: int
    engine_process_id: int
    engine: EngineInfo


def serve(
    config: EngineConfig,
    host: str = "127.0.0.1",
    port: int = 30000,
    served_model_name: str | None = None,
    announce: Callable[[ServerStart], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. `announce` is called once requests are answered; port 0 takes a free one.

    Raises UsageError for an unknown host, ServerError for a port that cannot be had or an engine process that died,
    and whatever the engine could not be built with.
    """
    with listen(host, port) as listener:
        asyncio.run(_Run(config, listener, served_model_name or config.model, announce).run())


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. It listens at once: a bound socket alone would not keep a second server out."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError, OverflowError) as error:
        raise UsageError(f"host {host!r} port {port} is no address to listen on: {error}") from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ServerError(f"port {port} on {host} is in use; stop what listens there or pass --port") from error
        raise ServerError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    return listener


class _Run:
    """One server's life."""

    def __init__(
        self,
        config: EngineConfig,
        listener: socket.socket,
        model: str,
        announce: Callable[[ServerStart], None] | None,
    ) -> None:
        self._config = config
        self._listener = listener
        self._model = model
        self._announce = announce
        self._stop_asked = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            # uvicorn sets handlers of its own while it serves; these are called as well, and cover the rest.
            loop.add_signal_handler(number, self._stop_asked.set)
        client = await EngineClient.start(self._config)
        service = Service(client, self._model)
        server = uvicorn.Server(
            uvicorn.Config(
                make_app(service),
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=UNREAD_SECONDS,
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[self._listener]))
        try:
            started = await self._unless_stopped(self._open(client, service))
            if started is not None:
                log.info("ready: %s serves %s", started.url, self._model)
                if self._announce is not None:
                    self._announce(started)
                gone = await self._unless_stopped(client.ended())
                if gone is not None:
                    await self._unless_stopped(asyncio.sleep(LINGER_SECONDS))
                    raise gone
        finally:
            server.should_exit = True
            loop.call_later(GRACE_SECONDS, client.fail_all, ServerError("the server is stopping"))
            await serving
            await client.stop()

    async def _open(self, client: EngineClient, service: Service) -> ServerStart:
        """Wait for the engine and let requests in. Raises what the engine could not be built with."""
        info = await client.ready()
        tokenizer = await asyncio.to_thread(_load_tokenizer, self._config.model)
        service.front = Front(info, tokenizer)
        return ServerStart(
            url=_url(self._listener),
            served_model_name=self._model,
            process_id=os.getpid(),
            engine_process_id=client.process_id,
            engine=info,
        )

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`, or None when a stop signal comes first."""
        working, stopping = asyncio.create_task(work), asyncio.create_task(self._stop_asked.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            working.cancel()
            stopping.cancel()


def _load_tokenizer(model: str) -> Tokenizer | None:
    return registry.load_tokenizer(registry.resolve(model))


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
