"""One request's state between steps: tokens, slots, text. Knows no tensor, no model and no other sequence.

    tokens   p p p p p p g g g g r          p prompt, g generated, r the root: the last committed token
    slots    c c c c s s s s s s .          c owned by the prefix cache (locked), s by this sequence
             0 <= num_cached <= num_computed <= len(tokens) <= limit

The root has no K/V until the next target pass computes it (after prefill and every round num_computed is
len(tokens) - 1). A preempted sequence keeps its tokens and text, and starts over with num_computed = 0.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from treegraft.engine.prefix_cache import CacheNode
from treegraft.engine.request import Request


class TextStream(Protocol):
    """What turns ids into text piece by piece; see models.tokenizer.TokenStream."""

    def push(self, ids: list[int]) -> str: ...
    def finish(self) -> str: ...


class StopStringFilter:
    """Holds back text that may still become a stop string. Knows characters only."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Text that can be given out, and whether a stop string was completed (then the rest is dropped)."""
        if not self._stops:
            return text, False
        held = self._held + text
        cuts = [at for at in (held.find(stop) for stop in self._stops) if at >= 0]
        if cuts:
            self._held = ""
            return held[: min(cuts)], True
        keep = max(self._num_prefix_characters(held, stop) for stop in self._stops)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep], False

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _num_prefix_characters(text: str, stop: str) -> int:
        """Length of the longest end of `text` that begins `stop`."""
        for length in range(min(len(text), len(stop) - 1), 0, -1):
            if text.endswith(stop[:length]):
                return length
        return 0


class Sequence:
    def __init__(self, request: Request, stop_ids: frozenset[int], stream: TextStream | None) -> None:
        assert request.params.seed is not None
        self.request = request
        self.params = request.params
        self.seed: int = request.params.seed
        self.tokens: list[int] = list(request.prompt_token_ids)
        self.num_prompt_tokens = len(self.tokens)
        self.limit = self.num_prompt_tokens + request.params.max_tokens
        self.slots = np.empty(self.limit, np.int64)
        self.num_cached = 0
        self.num_computed = 0
        self.cache_node: CacheNode | None = None
        self.cached_tokens: int | None = None  # when its first chunk began; preemption does not change it
        self.finish_reason: str | None = None
        self.is_beyond_drafter = False
        self._stop_ids = stop_ids
        self._stream = stream
        self._stop_strings = StopStringFilter(request.params.stop)

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - self.num_prompt_tokens

    @property
    def num_remaining(self) -> int:
        """Tokens that max_tokens still allows."""
        return self.limit - len(self.tokens)

    @property
    def prefill_end(self) -> int:
        """Tokens whose K/V must be there before a round: all of a fresh prompt (its last row samples the first
        token), all but the root afterwards."""
        return len(self.tokens) if self.num_generated == 0 else len(self.tokens) - 1

    @property
    def is_prefilled(self) -> bool:
        return self.num_generated > 0 and self.num_computed == self.prefill_end

    def add_slots(self, slots: NDArray[np.int64]) -> None:
        """K/V of the next len(slots) tokens now lies in these slots, which become this sequence's own."""
        self.slots[self.num_computed : self.num_computed + len(slots)] = slots
        self.num_computed += len(slots)
        self.check()

    def owned_slots(self) -> NDArray[np.int64]:
        """Slots that this sequence, not the prefix cache, must give back; int64 [num_computed - num_cached]."""
        return self.slots[self.num_cached : self.num_computed]

    def commit(self, token_ids: list[int]) -> tuple[list[int], str]:
        """Append tokens until a stop; sets finish_reason. Returns the ids kept and the text that is final.

        An end-of-text or stop id stays among the ids and out of the text; a stop string is cut from the text while
        the token that completed it stays among the ids.
        """
        kept: list[int] = []
        text: list[str] = []
        for token_id in token_ids:
            kept.append(token_id)
            self.tokens.append(token_id)
            if token_id in self._stop_ids:
                self.finish_reason = "stop"
                break
            if self._stream is not None:
                piece, is_stopped = self._stop_strings.push(self._stream.push([token_id]))
                text.append(piece)
                if is_stopped:
                    self.finish_reason = "stop"
                    return kept, "".join(text)
            if self.num_remaining == 0:
                self.finish_reason = "length"
                break
        if self.finish_reason is not None and self._stream is not None:
            piece, is_stopped = self._stop_strings.push(self._stream.finish())
            text.append(piece if is_stopped else piece + self._stop_strings.finish())
            if is_stopped:
                self.finish_reason = "stop"
        return kept, "".join(text)

    def check(self) -> None:
        assert 0 <= self.num_cached <= self.num_computed <= len(self.tokens) <= self.limit
