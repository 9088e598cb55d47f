"""What an engine is asked to be (EngineConfig) and what it became (EngineInfo). Reads no file, holds no tensor."""

from dataclasses import dataclass
from typing import Literal

import msgspec

from treegraft.errors import UsageError

Method = Literal["auto", "ar", "dflash", "ddtree"]
METHODS: tuple[Method, ...] = ("auto", "ar", "dflash", "ddtree")

# Nodes a round where the user names none. On CPUs a row costs real arithmetic; a GPU verifies 64 rows for the price
# of reading the weights once.
DEFAULT_BUDGET = {"cpu": 16, "cuda": 64}


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
        if self.method not in METHODS:
            raise UsageError(f"method is {self.method!r}; expected one of {', '.join(METHODS)}")
        minimums = (
            ("budget", self.budget, 0),
            ("max_context", self.max_context, 2),
            ("max_running", self.max_running, 1),
            ("num_slots", self.num_slots, 2),
            ("prefill_chunk", self.prefill_chunk, 1),
        )
        for name, value, minimum in minimums:
            if value is not None and value < minimum:
                raise UsageError(f"{name} is {value}; expected at least {minimum}")


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
