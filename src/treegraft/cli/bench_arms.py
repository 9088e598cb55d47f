"""Engines in this process as benchmark arms. Knows the engine and the bench types; chooses and prints nothing."""

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from treegraft.bench.alternate import Arm
from treegraft.bench.record import Answer
from treegraft.bench.workloads import Prompt
from treegraft.errors import ModelError
from treegraft.speculation.statistics import is_loop

if TYPE_CHECKING:
    from treegraft.engine.config import EngineConfig
    from treegraft.engine.engine import Engine
    from treegraft.engine.request import SamplingParams, StepOutput


def engine_arm(
    name: str, config: "EngineConfig", params: "SamplingParams", concurrency: int = 1
) -> tuple[Arm, Callable[[], None]]:
    """An engine of its own as an arm, and what closes it. Its prefix cache is dropped before each unit: cold prefill.

    concurrency: requests in the engine at a time.
    """
    from treegraft.engine.engine import Engine

    engine = Engine(config)

    def ask(prompts: Sequence[Prompt]) -> list[Answer]:
        answers: list[Answer] = []
        for start in range(0, len(prompts), concurrency):
            answers += _ask_together(engine, prompts[start : start + concurrency], params)
        return answers

    def prepare() -> None:
        engine.drop_cache()

    shown = {**msgspec.to_builtins(engine.info), "concurrency": concurrency}
    return Arm(name, shown, ask, prepare), engine.close


def prompt_token_ids(engine: "Engine", prompt: Prompt) -> tuple[int, ...]:
    """Through the chat template where the model has one. Raises ModelError without a tokenizer."""
    tokenizer = engine.tokenizer
    if tokenizer is None:
        raise ModelError("this model has no tokenizer, and the benchmark's prompts are text")
    if not tokenizer.has_chat_template:
        return tuple(tokenizer.encode(prompt.text))
    text = tokenizer.apply_chat_template([{"role": "user", "content": prompt.text}])
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def _ask_together(engine: "Engine", prompts: Sequence[Prompt], params: "SamplingParams") -> list[Answer]:
    from treegraft.engine.request import Request

    started = time.perf_counter()
    for prompt in prompts:
        engine.add(Request(id=prompt.id, prompt_token_ids=prompt_token_ids(engine, prompt), params=params))
    outputs: dict[str, list[StepOutput]] = {prompt.id: [] for prompt in prompts}
    first_at: dict[str, float] = {}
    ended_at: dict[str, float] = {}
    while engine.has_work():
        for output in engine.step():
            now = time.perf_counter() - started
            outputs[output.request_id].append(output)
            first_at.setdefault(output.request_id, now)
            ended_at[output.request_id] = now
    return [_answer(p.id, outputs[p.id], first_at[p.id], ended_at[p.id]) for p in prompts]


def _answer(prompt_id: str, outputs: "Sequence[StepOutput]", first_seconds: float, seconds: float) -> Answer:
    last = outputs[-1]
    if last.error is not None:
        raise ModelError(f"prompt {prompt_id}: {last.error}")
    token_ids = [token for output in outputs for token in output.token_ids]
    return Answer(
        prompt_id=prompt_id,
        prompt_tokens=last.num_prompt_tokens,
        completion_tokens=len(token_ids),
        cached_tokens=last.cached_tokens,
        finish_reason=str(last.finish_reason),
        accept_lengths=tuple(output.accept_length for output in outputs if output.accept_length > 0),
        first_token_seconds=first_seconds,
        seconds=seconds,
        is_loop=is_loop(token_ids),
        content_hash=hashlib.sha256(repr(token_ids).encode()).hexdigest(),
    )
