"""OpenAI request bodies: bytes -> checked ChatBody or CompletionBody -> SamplingParams. Knows no model and
no tokenizer.

Whatever is wrong raises a RequestError that names the field. Absent and null mean the same, as in OpenAI's
API.
"""

import re
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from treegraft.engine.request import SamplingParams
from treegraft.errors import UsageError
from treegraft.server.failures import RequestError
from treegraft.server.fields import drop_unserved

MAX_CHOICES = 128
MAX_PROMPTS = 1024
MAX_STOP_TOKEN_IDS = 4096
DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions; chat answers may fill the context

TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
Count = Annotated[int, Meta(ge=1, lt=2**31)]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # padding against traffic analysis; never sent


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What both endpoints take. top_k, min_p, ignore_eos and stop_token_ids are extensions."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    top_k: Annotated[int, Meta(ge=-1, lt=2**31)] | None = None
    min_p: float | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=MAX_STOP_TOKEN_IDS)] | None = None

    @property
    def num_choices(self) -> int:
        return self.n or 1

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    refusal: None = None
    audio: None = None
    annotations: list[Any] | None = None
    tool_calls: None = None
    function_call: None = None


class ChatBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Count | None = None


class CompletionBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    prompt: str | list[str | TokenId | list[TokenId]]


BodyT = TypeVar("BodyT", bound=Body)

_PATH = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")


def parse(body_type: type[BodyT], data: bytes) -> BodyT:
    """Decode and check one body. Raises RequestError."""
    try:
        document = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise RequestError(f"the body is not JSON: {error}", code="invalid_json") from error
    except RecursionError as error:
        raise RequestError("the body is nested too deeply", code="invalid_json") from error
    if not isinstance(document, dict):
        raise RequestError(f"the body must be a JSON object, not a {type(document).__name__}", code="invalid_json")
    try:
        body = msgspec.convert(drop_unserved(document), body_type)
    except msgspec.ValidationError as error:
        raise _field_error(str(error)) from error
    if body.stream_options is not None and not body.stream:
        raise RequestError("stream_options is only allowed with stream: true", param="stream_options")
    return body


def _field_error(message: str) -> RequestError:
    """msgspec's message, with the field it speaks of as `param`."""
    at = _PATH.search(message)
    path = at[1] if at else ""
    what = message[: at.start()] if at else message
    if unknown := _UNKNOWN.search(what):
        param = f"{path}.{unknown[1]}" if path else unknown[1]
        return RequestError(f"unknown field {param}", param=param, code="unknown_parameter")
    if missing := _MISSING.search(what):
        param = f"{path}.{missing[1]}" if path else missing[1]
        return RequestError(f"{param} is missing", param=param, code="missing_required_parameter")
    return RequestError(f"{path or 'the body'}: {what[:1].lower()}{what[1:]}", param=path or None, code="invalid_type")


def sampling_params(body: Body, max_tokens: int) -> SamplingParams:
    """The body's sampling, with a seed. Raises RequestError that names the field."""
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    given: dict[str, Any] = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "min_p": body.min_p,
        "top_k": 0 if body.top_k == -1 else body.top_k,  # -1 is "off" in other servers
        "seed": body.seed,
        "ignore_eos": body.ignore_eos,
    }
    set_fields = {"temperature": 1.0, **{name: value for name, value in given.items() if value is not None}}
    try:
        params = SamplingParams(
            max_tokens=max_tokens, stop=stop, stop_token_ids=tuple(body.stop_token_ids or ()), **set_fields
        )
    except UsageError as error:
        raise RequestError(str(error), param=str(error).partition(" ")[0], code="invalid_value") from error
    return params.with_seed()


def chat_max_tokens(body: ChatBody) -> int | None:
    """The limit under either of its names; None: up to the context. Raises RequestError when they differ."""
    if body.max_tokens is not None and body.max_completion_tokens not in (None, body.max_tokens):
        raise RequestError(
            f"max_tokens {body.max_tokens} and max_completion_tokens {body.max_completion_tokens} differ",
            param="max_completion_tokens",
        )
    return body.max_completion_tokens or body.max_tokens


def chat_messages(body: ChatBody) -> list[dict[str, str]]:
    """Messages with plain string content, as chat templates take them. Raises RequestError for roles and
    content that are not text."""
    messages = []
    for index, message in enumerate(body.messages):
        at = f"messages[{index}]"
        # "developer" is the newer name of "system"; templates know the older one.
        role = "system" if message.role == "developer" else message.role
        if role not in ("system", "user", "assistant"):
            raise RequestError(
                f"{at}.role is {message.role!r}; supported are system, developer, user and assistant",
                param=f"{at}.role",
                code="unsupported_value",
            )
        text = {"role": role, "content": _text_content(message.content, f"{at}.content")}
        messages.append(text if message.name is None else {**text, "name": message.name})
    return messages


def _text_content(content: str | list[dict[str, Any]] | None, at: str) -> str:
    if content is None:
        raise RequestError(f"{at} is missing", param=at, code="missing_required_parameter")
    if isinstance(content, str):
        return content
    texts = []
    for index, part in enumerate(content):
        text = part.get("text")
        if part.get("type") != "text" or not isinstance(text, str):
            raise RequestError(
                f"{at}[{index}] is of type {part.get('type')!r}; only text parts are supported",
                param=f"{at}[{index}]",
                code="unsupported_value",
            )
        texts.append(text)
    return "".join(texts)


def completion_prompts(body: CompletionBody) -> list[str | list[int]]:
    """The prompts of a body, each a text or token ids. Raises RequestError for an empty or mixed list."""
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    texts = [p for p in prompt if isinstance(p, str)]
    ids = [p for p in prompt if isinstance(p, int)]
    id_lists = [p for p in prompt if isinstance(p, list)]
    if not prompt or len(prompt) not in (len(texts), len(ids), len(id_lists)):
        raise RequestError(
            "prompt must be a string, strings, token ids or lists of token ids, and not empty",
            param="prompt",
            code="invalid_value",
        )
    if ids:
        return [ids]
    if len(prompt) > MAX_PROMPTS:
        raise RequestError(f"prompt holds {len(prompt)} prompts; at most {MAX_PROMPTS} are taken", param="prompt")
    return [*texts, *id_lists]
