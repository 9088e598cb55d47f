"""The routes: OpenAI's completions, chat completions and models, and /health. Knows no process and no socket.

A handler parses, submits, and either collects the answer or streams it; a client that goes away takes its requests out
of the engine. Every error leaves as the OpenAI error object.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from treegraft.engine.config import EngineInfo
from treegraft.engine.request import Request as EngineRequest
from treegraft.engine.request import SamplingParams, check_context
from treegraft.errors import ServerError, TreegraftError
from treegraft.logs import get_logger
from treegraft.models.tokenizer import Tokenizer
from treegraft.server.answers import ID_PREFIX, Answer, AnswerHead, Kind
from treegraft.server.engine_client import EngineClient, Submission
from treegraft.server.failures import RequestError, error_object, status_of
from treegraft.server.prompts import chat_token_ids, completion_token_ids
from treegraft.server.protocol import (
    DEFAULT_COMPLETION_TOKENS,
    MAX_PROMPTS,
    Body,
    ChatBody,
    CompletionBody,
    chat_max_tokens,
    parse,
    sampling_params,
)
from treegraft.server.stream import event, events

log = get_logger(__name__)

MAX_BODY_BYTES = 16 * 2**20
MAX_GROUP_TOKENS = 2**22  # prompt tokens of a call, counted for each choice: what goes to the engine as one frame
BODY_SECONDS = 60.0  # for the next piece of a body; who sends none holds a connection for nothing
CLIENT_CLOSED_REQUEST = 499  # nobody reads it
T = TypeVar("T")


@dataclass(frozen=True)
class Front:
    """What the HTTP side knows of the model once the engine is ready."""

    info: EngineInfo
    tokenizer: Tokenizer | None


class Json(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


class EventStream(StreamingResponse):
    """Streams a submission's events; when it ends, however it ends, nothing of the submission runs on."""

    media_type = "text/event-stream"

    def __init__(self, submission: Submission, content: AsyncIterator[bytes]) -> None:
        super().__init__(content, headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._submission = submission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._submission:
            await super().__call__(scope, receive, send)


class Service:
    """The handlers. `front` is None until the engine is ready."""

    def __init__(self, client: EngineClient, served_model_name: str) -> None:
        self.front: Front | None = None
        self._client = client
        self._model = served_model_name

    async def health(self, _: Request) -> Response:
        """200 with the engine's load, 503 while it is loading or when it is gone."""
        if self._client.failure is not None:
            return Json({"status": "failed", "error": str(self._client.failure)}, 503)
        status = self._client.status
        if self.front is None or status is None:
            return Json({"status": "starting"}, 503)
        return Json({"status": "ok", "model": self._model, "method": self.front.info.method, **_fields(status)})

    async def models(self, _: Request) -> Response:
        return Json({"object": "list", "data": [self._model_object()]})

    async def model(self, request: Request) -> Response:
        self._check_model(request.path_params["name"])
        return Json(self._model_object())

    async def chat_completions(self, request: Request) -> Response:
        body = parse(ChatBody, await _read(request))
        self._check_model(body.model)
        front = self._ready_front()
        limit = chat_max_tokens(body)
        prompt = await chat_token_ids(front.tokenizer, body, self._model)
        # A prompt that fills the context leaves no room for one token; the engine then says so.
        max_tokens = limit if limit is not None else max(1, front.info.max_context - len(prompt))
        return await self._answer(request, body, "chat", [prompt], sampling_params(body, max_tokens))

    async def completions(self, request: Request) -> Response:
        body = parse(CompletionBody, await _read(request))
        self._check_model(body.model)
        prompts = await completion_token_ids(self._ready_front().tokenizer, body, self._model)
        params = sampling_params(body, body.max_tokens or DEFAULT_COMPLETION_TOKENS)
        return await self._answer(request, body, "completion", prompts, params)

    async def _answer(
        self, request: Request, body: Body, kind: Kind, prompts: list[tuple[int, ...]], params: SamplingParams
    ) -> Response:
        num_choices = body.num_choices
        if len(prompts) * num_choices > MAX_PROMPTS:
            raise RequestError(
                f"{len(prompts)} prompts x n {num_choices} are more than {MAX_PROMPTS} choices", param="n"
            )
        front = self._ready_front()
        # Before a long prompt is copied for each choice and sent: the engine would say the same.
        check_context(max(map(len, prompts)), params.max_tokens, front.info.max_context)
        num_tokens = sum(map(len, prompts)) * num_choices
        if num_tokens > MAX_GROUP_TOKENS:
            raise RequestError(
                f"{num_tokens} prompt tokens over all choices are more than {MAX_GROUP_TOKENS}", param="n"
            )
        assert params.seed is not None
        answer_id = ID_PREFIX[kind] + secrets.token_hex(12)
        has_text = front.tokenizer is not None
        head = AnswerHead(answer_id, kind, self._model, front.info.method, params.seed, has_text)
        answer = Answer(head, len(prompts), num_choices)
        submission = self._client.submit(answer_id, _engine_requests(answer_id, prompts, num_choices, params))
        if not body.stream:
            with submission:
                await _unless_disconnected(request, _collect(submission, answer))
            return Json(answer.whole())
        try:
            await _unless_disconnected(request, submission.accepted())
        except BaseException:
            submission.close()
            raise
        return EventStream(submission, _guarded(events(submission, answer, body.includes_usage)))

    def _ready_front(self) -> Front:
        if self._client.failure is not None:
            raise self._client.failure
        if self.front is None:
            raise ServerError("the model is still loading; try again when /health answers 200")
        return self.front

    def _check_model(self, name: str | None) -> None:
        if name is not None and name != self._model:
            raise RequestError(
                f"model {name!r} is not served here; this server has {self._model!r}",
                param="model",
                code="model_not_found",
                status=404,
            )

    def _model_object(self) -> dict[str, Any]:
        limits = {} if self.front is None else {"max_model_len": self.front.info.max_context}
        return {"id": self._model, "object": "model", "created": 0, "owned_by": "treegraft", **limits}


def make_app(service: Service) -> Starlette:
    """The ASGI application."""
    routes = [
        Route("/health", _handler(service.health), methods=["GET"]),
        Route("/v1/models", _handler(service.models), methods=["GET"]),
        Route("/v1/models/{name:path}", _handler(service.model), methods=["GET"]),
        Route("/v1/chat/completions", _handler(service.chat_completions), methods=["POST"]),
        Route("/v1/completions", _handler(service.completions), methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_exception})
    app.router.redirect_slashes = False  # a redirect would go wherever the Host header says, and has no error object
    return app


def _handler(handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """`handle` with every error turned into its answer."""

    async def answer(request: Request) -> Response:
        try:
            return await handle(request)
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        except TreegraftError as error:
            return Json(error_object(error), status_of(error))
        except Exception as error:  # one request's failure must not end the server, nor leave without an error object
            log.exception("a handler broke")
            return Json(error_object(_internal(error)), 500)

    return answer


async def _guarded(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """`stream`, ending with an error object when it breaks."""
    try:
        async for piece in stream:
            yield piece
    except Exception as error:  # as in _handler; the status line is already out
        log.exception("a stream broke")
        yield event(error_object(_internal(error)))


def _internal(error: Exception) -> TreegraftError:
    return TreegraftError(f"internal error: {type(error).__name__}")


async def _http_exception(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, as Starlette reports them."""
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path}"
    reason = {404: "no such path", 405: "method not allowed"}.get(error.status_code, error.detail)
    failure = RequestError(f"{what}: {reason}", status=error.status_code)
    return Json(error_object(failure), error.status_code, headers=error.headers)


async def _read(request: Request, patience_seconds: float = BODY_SECONDS) -> bytes:
    """The body. Raises RequestError when it is larger than MAX_BODY_BYTES, without reading the rest, or when its next
    piece does not come."""
    body = bytearray()
    try:
        async with asyncio.timeout(patience_seconds) as limit:
            async for piece in request.stream():
                body += piece
                limit.reschedule(asyncio.get_running_loop().time() + patience_seconds)
                if len(body) > MAX_BODY_BYTES:
                    raise RequestError(
                        f"the body is larger than {MAX_BODY_BYTES} bytes", code="body_too_large", status=413
                    )
    except TimeoutError as error:
        raise RequestError(f"no more of the body came for {patience_seconds:.0f} s", status=408) from error
    return bytes(body)


async def _collect(submission: Submission, answer: Answer) -> None:
    await submission.accepted()
    async for index, output in submission.outputs():
        answer.take(index, output)


async def _unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. Raises ClientDisconnect, with `work` cancelled, when the client leaves first."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.create_task(work), asyncio.create_task(disconnected())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        working.cancel()
        leaving.cancel()


def _engine_requests(
    group: str, prompts: list[tuple[int, ...]], num_choices: int, params: SamplingParams
) -> tuple[EngineRequest, ...]:
    """One request a choice. Noise is keyed by the choice's index among its prompt's, so that a prompt gets the same
    texts alone and in a list."""
    pairs = [(prompt, choice) for prompt in prompts for choice in range(num_choices)]
    return tuple(
        EngineRequest(
            id=f"{group}/{index}",
            prompt_token_ids=prompt,
            params=msgspec.structs.replace(params, choice=choice),
        )
        for index, (prompt, choice) in enumerate(pairs)
    )


def _fields(status: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(status)
