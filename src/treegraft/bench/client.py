"""An OpenAI-compatible server as an arm: streamed chat completions over HTTP, standard library only.

Knows the wire, not the server: ours, SGLang and vLLM answer alike. Tokens come from `usage` (asked for with
stream_options.include_usage), never from counting chunks; a server that reports none is refused.
"""

import hashlib
import http.client
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from treegraft.bench.alternate import Arm
from treegraft.bench.record import Answer
from treegraft.bench.workloads import Prompt
from treegraft.errors import ServerError, UsageError
from treegraft.speculation.statistics import is_loop

TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class ServerSampling:
    """What is asked of every server; seed is sent only where temperature > 0 makes it mean something."""

    max_tokens: int
    temperature: float
    seed: int


def server_arm(name: str, url: str, sampling: ServerSampling, concurrency: int) -> Arm:
    """An arm that keeps up to `concurrency` requests in flight. Raises UsageError for a URL that is none, ServerError
    when nobody answers there."""
    address = urlsplit(url if "//" in url else f"http://{url}")
    if address.scheme not in ("http", "https") or not address.hostname:
        raise UsageError(f"server URL is {url!r}; expected something like http://127.0.0.1:30000")
    model = served_model(address)
    config = {"url": url, "model": model, "concurrency": concurrency}

    def ask(prompts: Sequence[Prompt]) -> list[Answer]:
        if concurrency == 1:
            return [ask_one(address, model, prompt, sampling) for prompt in prompts]
        with ThreadPoolExecutor(concurrency) as pool:
            return list(pool.map(lambda prompt: ask_one(address, model, prompt, sampling), prompts))

    return Arm(name, config, ask)


def served_model(address: SplitResult) -> str:
    """The first model of /v1/models. Raises ServerError."""
    with _response(address, "GET", "/v1/models", None) as response:
        document = _parse(address, response.read())
    models = document.get("data")
    if not isinstance(models, list) or not models:
        raise ServerError(f"{address.geturl()}/v1/models names no model")
    return str(models[0]["id"])


def ask_one(address: SplitResult, model: str, prompt: Prompt, sampling: ServerSampling) -> Answer:
    """One streamed chat completion. Raises ServerError for an HTTP error, an error object, or a stream that ends
    without finish_reason or usage."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt.text}],
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if sampling.temperature > 0:
        body["seed"] = sampling.seed
    pieces: list[str] = []
    usage: dict[str, Any] = {}
    extras: dict[str, Any] = {}
    finish_reason, first_at = None, None
    started = time.perf_counter()
    with _response(address, "POST", "/v1/chat/completions", body) as response:
        for event in events(response):
            chunk = _parse(address, event)
            if "error" in chunk:
                raise ServerError(f"{address.geturl()} on {prompt.id}: {chunk['error']}")
            usage = chunk.get("usage") or usage
            extras = chunk.get("treegraft") or extras
            for choice in chunk.get("choices", []):
                pieces.append(choice.get("delta", {}).get("content") or "")
                finish_reason = choice.get("finish_reason") or finish_reason
            if first_at is None and any(pieces):
                first_at = time.perf_counter()
    ended = time.perf_counter()
    if finish_reason is None or "completion_tokens" not in usage:
        missing = "finish_reason" if finish_reason is None else "usage"
        raise ServerError(f"{address.geturl()} ended the stream on {prompt.id} without {missing}")
    text = "".join(pieces)
    return Answer(
        prompt_id=prompt.id,
        prompt_tokens=int(usage["prompt_tokens"]),
        completion_tokens=int(usage["completion_tokens"]),
        cached_tokens=int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0),
        finish_reason=str(finish_reason),
        accept_lengths=tuple((extras.get("accept_lengths") or [()])[0]),
        first_token_seconds=(first_at or ended) - started,
        seconds=ended - started,
        is_loop=is_loop(_word_ids(text)),
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
    )


def events(lines: Iterator[bytes] | http.client.HTTPResponse) -> Iterator[bytes]:
    """The `data:` payloads of a server-sent event stream, up to [DONE]; comments and other fields are passed over."""
    for line in lines:
        field, _, value = line.rstrip(b"\r\n").partition(b":")
        if field != b"data":
            continue
        payload = value.removeprefix(b" ")
        if payload == b"[DONE]":
            return
        yield payload


def _word_ids(text: str) -> list[int]:
    """Words as numbers: a server sends text only, and a loop in tokens is one in words."""
    known: dict[str, int] = {}
    return [known.setdefault(word, len(known)) for word in text.split()]


def _response(address: SplitResult, method: str, path: str, body: Any) -> http.client.HTTPResponse:
    assert address.hostname is not None
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.hostname, address.port, timeout=TIMEOUT_SECONDS)
    base = address.path.rstrip("/").removesuffix("/v1")
    # "Connection: close" lets the response own the socket, so that closing it closes all.
    headers = {"Content-Type": "application/json", "Connection": "close"}
    try:
        connection.request(method, base + path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise ServerError(f"no answer from {address.geturl()}{path}: {error}; is the server up?") from error
    if response.status != 200:
        with response:
            detail = response.read(2000).decode(errors="replace")
        raise ServerError(f"{address.geturl()}{path} answered HTTP {response.status}: {detail}")
    return response


def _parse(address: SplitResult, data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise ServerError(f"{address.geturl()} sent something that is not JSON: {data[:80]!r}") from error
    if not isinstance(document, dict):
        raise ServerError(f"{address.geturl()} sent a JSON {type(document).__name__}; expected an object")
    return document
