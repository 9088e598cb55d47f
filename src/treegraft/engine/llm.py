"""The Python API: an engine in this process, prompts in, completions out. Knows no HTTP and no chat template."""

import itertools
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from numbers import Integral
from types import TracebackType
from typing import Any

from treegraft.engine.config import EngineConfig, Method
from treegraft.engine.engine import Engine
from treegraft.engine.request import Completion, Request, SamplingParams, StepOutput
from treegraft.errors import UsageError


class LLM:
    """A target model with draft-tree speculation.

    model: "smollm2-135m", a Hugging Face folder or hub id, or a .gguf file. drafter: "auto" (the packaged one where
    there is one), a folder, or None (no speculation). budget: nodes a round. Raises TreegraftError's children when
    it cannot be built: each message says what was expected.
    """

    def __init__(
        self,
        model: str,
        drafter: str | None = "auto",
        method: Method = "auto",
        budget: int | None = None,
        device: str = "auto",
        dtype: str = "auto",
        max_context: int | None = None,
    ) -> None:
        self._ids = itertools.count()
        self.engine = Engine(
            EngineConfig(
                model=model,
                drafter=drafter,
                method=method,
                budget=budget,
                device=device,
                dtype=dtype,
                max_context=max_context,
            )
        )

    def generate(
        self,
        prompts: str | Seq[int] | Seq[str] | Seq[Seq[int]],
        params: SamplingParams | Seq[SamplingParams] | None = None,
    ) -> list[Completion]:
        """Complete every prompt (a text, token ids, or a list of either), batched; one Completion each, in order.

        Token ids may stand in lists, tuples, NumPy arrays or tensors. `params`: one for all, or one a prompt. Raises
        UsageError or ContextTooLongError before anything runs.
        """
        batch = [self._token_ids(prompt) for prompt in _as_batch(prompts)]
        each = _params_for(params, len(batch))
        ids = [f"llm-{next(self._ids)}" for _ in batch]
        requests = [
            Request(id=i, prompt_token_ids=prompt, params=p.with_seed())
            for i, prompt, p in zip(ids, batch, each, strict=True)
        ]
        try:
            for request in requests:
                self.engine.add(request)
            outputs: dict[str, list[StepOutput]] = {request.id: [] for request in requests}
            while self.engine.has_work():
                for output in self.engine.step():
                    if output.request_id in outputs:  # the engine may have requests of others
                        outputs[output.request_id].append(output)
        except BaseException:
            for request in requests:
                self.engine.abort(request.id)
            raise
        return [_completion(outputs[request.id]) for request in requests]

    def close(self) -> None:
        """Release the models; a second call does nothing, and generate raises UsageError from then on."""
        self.engine.close()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _token_ids(self, prompt: str | Seq[int]) -> tuple[int, ...]:
        if not isinstance(prompt, str):
            return tuple(_token_id(i) for i in _items(prompt, "a prompt"))
        if self.engine.tokenizer is None:
            raise UsageError("the prompt is text, and this model has no tokenizer; pass token ids")
        return tuple(self.engine.tokenizer.encode(prompt))


def _as_batch(prompts: Any) -> list[str | Seq[int]]:
    if isinstance(prompts, str):
        return [prompts]
    items = _items(prompts, "prompts")
    if items and all(isinstance(item, Integral) for item in items):
        return [items]
    return items


def _items(value: Any, what: str) -> list[Any]:
    """The list that `value` stands for: arrays and tensors give their plain numbers. No sets (they have no order), no
    mappings and no bytes (their items are no token ids)."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (str, bytes, bytearray, dict, set, frozenset)) or not isinstance(value, Iterable):
        raise UsageError(f"{what} is of type {type(value).__name__}; expected text, token ids, or a list of either")
    return list(value)


def _token_id(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise UsageError(f"a prompt holds {str(value)[:40]!r} ({type(value).__name__}); expected token ids")
    return int(value)


def _params_for(params: SamplingParams | Seq[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if not isinstance(params, (list, tuple)) or not all(isinstance(each, SamplingParams) for each in params):
        raise UsageError(f"params is of type {type(params).__name__}; expected SamplingParams or a list of them")
    if len(params) != count:
        raise UsageError(f"{len(params)} sampling parameters for {count} prompts; expected one, or one a prompt")
    return list(params)


def _completion(outputs: Seq[StepOutput]) -> Completion:
    last = outputs[-1]
    assert last.finish_reason is not None
    return Completion(
        text="".join(output.text for output in outputs),
        token_ids=tuple(i for output in outputs for i in output.token_ids),
        finish_reason=last.finish_reason,
        accept_lengths=tuple(output.accept_length for output in outputs if output.accept_length > 0),
        cached_tokens=last.cached_tokens,
        seed=last.seed,
        num_prompt_tokens=last.num_prompt_tokens,
    )
