"""Step outputs to OpenAI response objects, whole and in chunks. Knows no HTTP, no engine process and no sampling.

The own field `treegraft` stands on a whole answer, or on a stream's last chunk:

    method, seed         what decoded it; the seed gives the same answer again
    rounds, tau          target passes over all choices, tokens each committed on average (null without a round)
    accept_lengths       one list a choice, one entry a round
    cached_tokens        prompt tokens whose K/V came from the prefix cache
    token_ids            one list a choice, only where the model has no tokenizer (text is then empty)
"""

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from treegraft.engine.request import StepOutput

Kind = Literal["chat", "completion"]
ID_PREFIX: dict[Kind, str] = {"chat": "chatcmpl-", "completion": "cmpl-"}
OBJECT: dict[Kind, str] = {"chat": "chat.completion", "completion": "text_completion"}
CHUNK_OBJECT: dict[Kind, str] = {"chat": "chat.completion.chunk", "completion": "text_completion"}


@dataclass
class Choice:
    """What one choice has become so far."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    accept_lengths: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    num_prompt_tokens: int = 0
    cached_tokens: int = 0
    is_started: bool = False

    def take(self, output: StepOutput) -> None:
        self.texts.append(output.text)
        self.token_ids += output.token_ids
        if output.accept_length:
            self.accept_lengths.append(output.accept_length)
        self.finish_reason = output.finish_reason
        self.num_prompt_tokens = output.num_prompt_tokens
        self.cached_tokens = output.cached_tokens


@dataclass(frozen=True)
class AnswerHead:
    """What is known of an answer before its first token."""

    id: str
    kind: Kind
    model: str
    method: str
    seed: int
    has_text: bool


class Answer:
    """One HTTP call's answer in the making; the choices of a prompt stand together."""

    def __init__(self, head: AnswerHead, num_prompts: int, choices_per_prompt: int) -> None:
        self._head = head
        self._created = int(time.time())
        self._choices = [Choice() for _ in range(num_prompts * choices_per_prompt)]
        self._choices_per_prompt = choices_per_prompt

    def take(self, index: int, output: StepOutput) -> None:
        self._choices[index].take(output)

    def whole(self) -> dict[str, Any]:
        """The answer once every choice has finished."""
        choices = [self._whole_choice(index, choice) for index, choice in enumerate(self._choices)]
        return {**self._envelope(OBJECT), "choices": choices, "usage": self.usage(), "treegraft": self.extras()}

    def chunks(self, index: int, output: StepOutput) -> list[dict[str, Any]]:
        """The stream's chunks for an output that was taken: role first, then text, then the finish reason."""
        choice = self._choices[index]
        chunks = []
        if not choice.is_started and self._head.kind == "chat":
            chunks.append(self._chunk(index, {"delta": {"role": "assistant", "content": ""}}))
        choice.is_started = True
        ids = {} if self._head.has_text else {"token_ids": list(output.token_ids)}
        if output.text or ids:
            chunks.append(self._chunk(index, {**self._piece(output.text), **ids}))
        if output.finish_reason is not None:
            piece = {"delta": {}} if self._head.kind == "chat" else self._piece("")
            chunks.append(self._chunk(index, piece, output.finish_reason))
        return chunks

    def usage_chunk(self) -> dict[str, Any]:
        """The chunk without choices that stream_options.include_usage asks for."""
        return {**self._envelope(CHUNK_OBJECT), "choices": [], "usage": self.usage()}

    def usage(self) -> dict[str, Any]:
        """Tokens, not chunks; a prompt counts once however many choices it has."""
        firsts = self._choices[:: self._choices_per_prompt]
        num_prompt = sum(choice.num_prompt_tokens for choice in firsts)
        num_generated = sum(len(choice.token_ids) for choice in self._choices)
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_generated,
            "total_tokens": num_prompt + num_generated,
            "prompt_tokens_details": {"cached_tokens": self._cached_tokens()},
        }

    def extras(self) -> dict[str, Any]:
        """The field `treegraft`; see the module."""
        accept_lengths = [choice.accept_lengths for choice in self._choices]
        num_rounds = sum(map(len, accept_lengths))
        extras = {
            "method": self._head.method,
            "seed": self._head.seed,
            "rounds": num_rounds,
            "tau": sum(map(sum, accept_lengths)) / num_rounds if num_rounds else None,
            "accept_lengths": accept_lengths,
            "cached_tokens": self._cached_tokens(),
        }
        return extras if self._head.has_text else {**extras, "token_ids": [c.token_ids for c in self._choices]}

    def _cached_tokens(self) -> int:
        return sum(choice.cached_tokens for choice in self._choices[:: self._choices_per_prompt])

    def _envelope(self, objects: dict[Kind, str]) -> dict[str, Any]:
        return {
            "id": self._head.id,
            "object": objects[self._head.kind],
            "created": self._created,
            "model": self._head.model,
        }

    def _whole_choice(self, index: int, choice: Choice) -> dict[str, Any]:
        text = "".join(choice.texts)
        content: dict[str, Any] = {"text": text}
        if self._head.kind == "chat":
            content = {"message": {"role": "assistant", "content": text, "refusal": None}}
        return {"index": index, **content, "logprobs": None, "finish_reason": choice.finish_reason}

    def _piece(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text}} if self._head.kind == "chat" else {"text": text}

    def _chunk(self, index: int, piece: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": index, **piece, "logprobs": None, "finish_reason": finish_reason}
        return {**self._envelope(CHUNK_OBJECT), "choices": [choice]}
