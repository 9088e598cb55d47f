"""What goes into the engine and what comes out: Request, StepOutput, Completion. Knows no model and no torch.

Every type here is frozen; StepOutput is what crosses to the server process, Completion is what Python callers get.
"""

import math
import secrets

import msgspec

from treegraft.errors import UsageError


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to sample one completion.

    temperature 0 is argmax (ties to the lowest id). seed None: a random one is drawn and reported.
    top_k 0, top_p 1 and min_p 0 switch those filters off. stop: strings; the text ends before the first one found,
    token_ids end with the token that completed it. stop_token_ids: ids that end the text like an end-of-text token.
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
        checks = (
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
            ("temperature", 0.0 <= self.temperature < math.inf, "finite and at least 0"),
            ("top_k", self.top_k >= 0, "at least 0 (0: off)"),
            ("top_p", 0.0 < self.top_p <= 1.0, "in (0, 1]"),
            ("min_p", 0.0 <= self.min_p <= 1.0, "in [0, 1]"),
            ("seed", self.seed is None or 0 <= self.seed < 2**64, "in [0, 2**64)"),
            ("stop", "" not in self.stop, "no empty string"),
            ("choice", 0 <= self.choice < 2**32, "in [0, 2**32)"),
        )
        for name, is_good, expected in checks:
            if not is_good:
                raise UsageError(f"{name} is {getattr(self, name)!r}; expected {expected}")

    def with_seed(self) -> "SamplingParams":
        """The same parameters with a seed that can be stated: the given one, or a random 53-bit one
        (53 bits survive JSON readers that hold numbers as doubles)."""
        return self if self.seed is not None else msgspec.structs.replace(self, seed=secrets.randbits(53))


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt to complete. `prompt_token_ids` is not empty; `params.seed` is set (see with_seed)."""

    id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams


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
