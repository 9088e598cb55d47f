"""What goes into the engine and what comes out: Request, StepOutput, Completion. Knows no model and no torch.

Every type here is frozen; StepOutput is what crosses to the server process, Completion is what Python callers get.
"""

import math
import operator
import secrets
from collections.abc import Iterable
from numbers import Real
from typing import Any

import msgspec

from treegraft.errors import ContextTooLongError, UsageError

# Every token of a request is looked for in every stop string: both are bounded.
MAX_STOPS = 64
MAX_STOP_CHARACTERS = 512
_END_OF_INT32 = 2**31


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to sample one completion.

    temperature 0 is argmax (ties to the lowest id). seed None: a random one is drawn and reported.
    top_k 0, top_p 1 and min_p 0 switch those filters off. stop: strings; the text ends before the first one found,
    token_ids end with the token that completed it (one string may stand for a tuple of one; at most MAX_STOPS of at
    most MAX_STOP_CHARACTERS). stop_token_ids: ids that end the text like an end-of-text token.
    choice: index of this completion among those of one request; part of the noise key.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    choice: int = 0

    def __post_init__(self) -> None:
        """Raises UsageError that names the field; lists become tuples, and numbers of NumPy's plain ones."""
        for name in ("max_tokens", "top_k", "choice"):
            self._set(name, _whole(name, getattr(self, name)))
        for name in ("temperature", "top_p", "min_p"):
            self._set(name, _number(name, getattr(self, name)))
        if self.seed is not None:
            self._set("seed", _whole("seed", self.seed))
        self._set("stop", _stops(self.stop))
        self._set("stop_token_ids", tuple(_whole("stop_token_ids", i) for i in _items("stop_token_ids", self)))
        self._set("ignore_eos", _flag("ignore_eos", self.ignore_eos))
        checks = (
            ("max_tokens", 1 <= self.max_tokens < _END_OF_INT32, "at least 1 (and below 2**31)"),
            ("temperature", 0.0 <= self.temperature < math.inf, "finite and at least 0"),
            ("top_k", 0 <= self.top_k < _END_OF_INT32, "at least 0 (0: off; below 2**31)"),
            ("top_p", 0.0 < self.top_p <= 1.0, "in (0, 1]"),
            ("min_p", 0.0 <= self.min_p <= 1.0, "in [0, 1]"),
            ("seed", self.seed is None or 0 <= self.seed < 2**64, "in [0, 2**64)"),
            ("stop_token_ids", all(0 <= i < _END_OF_INT32 for i in self.stop_token_ids), "token ids, at least 0"),
            ("choice", 0 <= self.choice < 2**32, "in [0, 2**32)"),
        )
        for name, is_good, expected in checks:
            if not is_good:
                raise UsageError(f"{name} is {_shown(getattr(self, name))}; expected {expected}")

    def _set(self, name: str, value: Any) -> None:
        msgspec.structs.force_setattr(self, name, value)

    def with_seed(self) -> "SamplingParams":
        """The same parameters with a seed that can be stated: the given one, or a random 53-bit one
        (53 bits survive JSON readers that hold numbers as doubles)."""
        return self if self.seed is not None else msgspec.structs.replace(self, seed=secrets.randbits(53))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _whole(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise UsageError(f"{name} is {_shown(value)}; expected a whole number") from None


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UsageError(f"{name} is {_shown(value)}; expected a number")
    try:
        return float(value)
    except OverflowError:
        return -math.inf if value < 0 else math.inf


def _flag(name: str, value: Any) -> bool:
    if value not in (True, False) or isinstance(value, (int, float)) is not isinstance(value, bool):
        raise UsageError(f"{name} is {_shown(value)}; expected True or False")
    return bool(value)


def _items(name: str, params: SamplingParams) -> Iterable[Any]:
    value = getattr(params, name)
    if not isinstance(value, (tuple, list, set, frozenset)):
        raise UsageError(f"{name} is {_shown(value)}; expected a tuple of token ids")
    return value


def _stops(value: Any) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else value
    if not isinstance(stops, (tuple, list)) or not all(isinstance(stop, str) for stop in stops):
        raise UsageError(f"stop is {_shown(value)}; expected a string or a tuple of strings")
    if "" in stops:
        raise UsageError(f"stop is {_shown(value)}; expected no empty string")
    if len(stops) > MAX_STOPS:
        raise UsageError(f"stop holds {len(stops)} strings; at most {MAX_STOPS} are taken")
    longest = max(map(len, stops), default=0)
    if longest > MAX_STOP_CHARACTERS:
        raise UsageError(f"stop holds a string of {longest} characters; at most {MAX_STOP_CHARACTERS} are taken")
    return tuple(stops)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt to complete. `prompt_token_ids` is not empty; `params.seed` is set (see with_seed)."""

    id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams


def check_context(num_prompt_tokens: int, max_tokens: int, max_context: int) -> None:
    """Raises ContextTooLongError when prompt and answer do not fit in max_context tokens."""
    if num_prompt_tokens + max_tokens > max_context:
        raise ContextTooLongError(
            f"prompt of {num_prompt_tokens} tokens + max_tokens {max_tokens} exceeds the context of "
            f"{max_context} tokens; shorten the prompt or lower max_tokens"
        )


class StepOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine step committed for one request.

    token_ids: new tokens, in order. text: new text that no later token can change (all of it once finished).
    finish_reason: None while running, then "stop" (end-of-text, stop id or stop string) or "length"; "abort" after
    Engine.abort; "error" with `error` set when the request cannot go on.
    accept_length: tokens committed by this step's target pass (0 for the token from prefill).
    cached_tokens: prompt tokens whose K/V came from the prefix cache. seed: the one used.
    """

    request_id: str
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str | None
    accept_length: int
    num_prompt_tokens: int
    cached_tokens: int
    seed: int
    error: str | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A finished completion.

    accept_lengths: one entry a round, the tokens that round's target pass committed; the token from prefill is in
    none of them. text is empty when the model has no tokenizer.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    accept_lengths: tuple[int, ...]
    cached_tokens: int
    seed: int
    num_prompt_tokens: int

    @property
    def tau(self) -> float:
        """Mean acceptance length: tokens committed per target pass, prefill's token excluded (nan without a round)."""
        return sum(self.accept_lengths) / len(self.accept_lengths) if self.accept_lengths else math.nan
