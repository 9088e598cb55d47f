"""What an engine is asked to be (EngineConfig) and what it became (EngineInfo). Reads no file, holds no tensor."""

import operator
import os
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from treegraft.errors import UsageError

Method = Literal["auto", "ar", "dflash", "ddtree"]
METHODS: tuple[Method, ...] = ("auto", "ar", "dflash", "ddtree")

# Nodes a round where the user names none. On CPUs a row costs real arithmetic; a GPU verifies 64 rows for the price
# of reading the weights once.
DEFAULT_BUDGET = {"cpu": 8, "cuda": 64}
# A CPU that is busy with one sequence's rows computes several sequences' single rows in the same time: with more than
# so many, `auto` decodes without speculation (docs/log.md has the figures). A GPU's limit is not measured yet.
MAX_SPECULATING: dict[str, int | None] = {"cpu": 3, "cuda": None}
MAX_BUDGET = 4096  # every running sequence keeps slots for so many rows
MAX_COUNT = 2**31 - 1


@dataclass(frozen=True)
class EngineConfig:
    """A request for an engine; `auto` and None are resolved when it is built.

    budget: nodes a round (ddtree), or the chain's length (dflash; None: the whole block).
    max_context: tokens of prompt + answer (None: the model's own limit, at most 8192 on a CPU).
    max_running: sequences decoded together. num_slots: tokens of K/V kept in all, live and cached (None: chosen).
    prefill_chunk: prompt tokens computed a step.
    """

    model: str
    drafter: str | None = "auto"
    method: Method = "auto"
    budget: int | None = None
    device: str = "auto"
    dtype: str = "auto"
    max_context: int | None = None
    max_running: int = 16
    num_slots: int | None = None
    prefill_chunk: int = 512

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", _name("model", self.model))
        if self.drafter is not None:
            object.__setattr__(self, "drafter", _name("drafter", self.drafter))
        if self.method not in METHODS:
            raise UsageError(f"method is {self.method!r}; expected one of {', '.join(METHODS)}")
        limits = (
            ("budget", self.budget, 0, MAX_BUDGET),
            ("max_context", self.max_context, 2, MAX_COUNT),
            ("max_running", self.max_running, 1, MAX_COUNT),
            ("num_slots", self.num_slots, 2, MAX_COUNT),
            ("prefill_chunk", self.prefill_chunk, 1, MAX_COUNT),
        )
        for name, value, minimum, maximum in limits:
            if value is None and name in ("budget", "max_context", "num_slots"):
                continue
            count = _whole(name, value)
            if count < minimum:
                raise UsageError(f"{name} is {count}; expected at least {minimum}")
            if count > maximum:
                raise UsageError(f"{name} is {count}; expected at most {maximum}")
            object.__setattr__(self, name, count)


def _name(what: str, value: Any) -> str:
    name = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(name, str) or not name:
        raise UsageError(f"{what} is {value!r}; expected a name or a path")
    return name


def _whole(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise UsageError(f"{name} is {value!r}; expected a whole number") from None


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The engine as built. method is never "auto"; budget and block_size are None where the method has none;
    decisions: one line for each value that was chosen rather than given."""

    model: str
    drafter: str | None
    method: str
    budget: int | None
    block_size: int | None
    device: str
    dtype: str
    max_context: int
    vocab_size: int
    num_slots: int
    decisions: tuple[str, ...] = ()


def resolve_method(config: EngineConfig, has_drafter: bool, device_type: str, block_size: int) -> tuple[str, int]:
    """The method and its budget in nodes a round (0 for ar).

    Raises UsageError when a speculative method is asked for without a drafter.
    """
    if config.method in ("dflash", "ddtree") and not has_drafter:
        raise UsageError(
            f"method {config.method} needs a drafter, and none is given or known for {config.model}; pass --drafter"
        )
    method = config.method
    if method == "auto":
        method = "ddtree" if has_drafter else "ar"
    if method == "ar":
        return "ar", 0
    if method == "dflash":
        longest = block_size - 1
        return "dflash", longest if config.budget is None else min(config.budget, longest)
    return "ddtree", DEFAULT_BUDGET[device_type] if config.budget is None else config.budget
