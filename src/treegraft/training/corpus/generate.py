"""Conversations that the target writes by itself, thousands at a time. Knows turns and temperatures; no file.

All rows stand at the same position; a row's fixed tokens (template pieces, a given prompt) are fed, everything else
is sampled. When a turn ends, the pieces that open the other side's turn follow, so that no row ever idles. A row that
loops is made to end its turn. One step is one captured CUDA graph; without CUDA the same step runs as it is.

Shape suffixes: B rows, T positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from treegraft.errors import UnsupportedModelError
from treegraft.kernels import decode_step as step
from treegraft.models.target import TargetModel
from treegraft.training.corpus.conversation import Turns
from treegraft.training.corpus.loops import WINDOW, is_looping

LOOP_CHECK_STEPS = 32
USER, ASSISTANT = 0, 1
NO_MIN_P = 1e-30


@dataclass(frozen=True)
class Opening:
    """How a row begins: ids that are fed, who speaks after them, and the reply's temperature."""

    ids: tuple[int, ...]
    speaker: int
    temperature: float


@dataclass(frozen=True)
class Written:
    """tokens int64 [B, T]; is_reply bool [B, T]: tokens that the target wrote as the assistant, its end token
    included; num_sampled: tokens that were not given."""

    tokens: Tensor
    is_reply: Tensor
    num_sampled: int


class Generator:
    """Buffers and graph for num_rows conversations of num_positions tokens."""

    def __init__(self, target: TargetModel, turns: Turns, num_rows: int, num_positions: int, user_min_p: float) -> None:
        config = target.config
        if any(window is not None and window < num_positions for window in config.layer_windows):
            raise UnsupportedModelError("targets with sliding windows shorter than a row cannot write training data")
        self._target, self._turns, self._user_min_p = target, turns, user_min_p
        device, B, T = target.device, num_rows, num_positions
        size = (config.num_layers, B, config.num_kv_heads, T, config.head_dim)
        self._keys = torch.zeros(size, dtype=target.dtype, device=device)
        self._values = torch.zeros_like(self._keys)
        self._table = step.rope_table(target.rope.frequencies, target.rope.factor, T)
        self._tokens = torch.zeros((B, T), dtype=torch.int64, device=device)
        self._forced = torch.zeros((B, T), dtype=torch.int64, device=device)
        self._is_reply = torch.zeros((B, T), dtype=torch.bool, device=device)
        self._speaker, self._header_place = (torch.zeros(B, dtype=torch.int64, device=device) for _ in range(2))
        self._temperature = torch.zeros(B, dtype=torch.float32, device=device)
        self._must_end = torch.zeros(B, dtype=torch.bool, device=device)
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        self._key = torch.zeros(2, dtype=torch.int64, device=device)
        # Row 0: what opens the user's turn after a reply; row 1: what opens the reply. The end token is said already.
        headers = (turns.to_user[1:], turns.to_assistant[1:])
        self._header_length = torch.tensor([len(h) for h in headers], device=device)
        width = max(1, *(len(h) for h in headers))
        padded = [list(h) + [0] * (width - len(h)) for h in headers]
        self._headers = torch.tensor(padded, dtype=torch.int64, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def run(self, openings: Sequence[Opening], seed: int) -> Written:
        """One batch; openings: one a row, none longer than T - 1. The same seed gives the same texts."""
        B, T = self._tokens.shape
        assert len(openings) == B
        forced = torch.full((B, T), -1, dtype=torch.int64)
        for row, opening in enumerate(openings):
            forced[row, : len(opening.ids)] = torch.tensor(opening.ids, dtype=torch.int64)
        self._forced.copy_(forced)
        self._speaker.copy_(torch.tensor([o.speaker for o in openings]))
        self._temperature.copy_(torch.tensor([o.temperature for o in openings]))
        self._tokens[:, 0] = self._forced[:, 0]
        self._is_reply.zero_()
        self._must_end.zero_()
        self._header_place.copy_(self._header_length[self._speaker])
        self._position.zero_()
        self._key.copy_(torch.tensor([seed, 0]))
        with torch.inference_mode():
            self._run_steps(T)
        return Written(self._tokens.clone(), self._is_reply.clone(), int((forced < 0).sum()))

    def _run_steps(self, num_positions: int) -> None:
        first = 0
        if self._target.device.type == "cuda" and self._graph is None:
            first = self._capture()
        for position in range(first, num_positions - 1):
            if self._graph is not None:
                self._graph.replay()
            else:
                self._step()
            if position % LOOP_CHECK_STEPS == 0 and position >= WINDOW:
                self._must_end |= is_looping(self._tokens[:, position - WINDOW : position + 1]) & (
                    self._speaker == ASSISTANT
                )

    def _capture(self) -> int:
        """Capture the step as a graph; returns how many positions were done on the way (capturing runs nothing)."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._step()
        return 2

    def _step(self) -> None:
        """Feed the token at `position`, choose the one after it, advance."""
        hidden = self._forward(self._tokens.index_select(1, self._position)[:, 0])
        logits = F.linear(hidden, self._target.head.weight)
        is_user = self._speaker == USER
        temperature = torch.where(is_user, 1.0, self._temperature)
        min_p = torch.where(is_user, self._user_min_p, NO_MIN_P)
        chosen = step.sample(logits, temperature, min_p, self._key)
        chosen = torch.where(self._must_end, self._turns.end_token, chosen)
        after = self._position + 1
        forced = self._forced.index_select(1, after)[:, 0]
        is_forced = forced >= 0
        in_header = self._header_place < self._header_length[self._speaker]
        header = self._headers[self._speaker, self._header_place.clamp(max=self._headers.shape[1] - 1)]
        token = torch.where(is_forced, forced, torch.where(in_header, header, chosen))
        is_free = ~is_forced & ~in_header
        is_reply = is_free & (self._speaker == ASSISTANT) & ~self._must_end
        has_ended = is_free & (token == self._turns.end_token)
        self._tokens.index_copy_(1, after, token[:, None])
        self._is_reply.index_copy_(1, after, is_reply[:, None])
        self._must_end &= ~has_ended
        place = self._header_place + (in_header & ~is_forced)
        self._header_place.copy_(torch.where(has_ended, 0, place))
        self._speaker.copy_(torch.where(has_ended, 1 - self._speaker, self._speaker))
        self._position += 1
        self._key[1] += 1

    def _forward(self, token_ids: Tensor) -> Tensor:
        """hidden [B, E] after the final norm; writes the cache at `position`."""
        target, config = self._target, self._target.config
        eps, heads = config.rms_norm_eps, config.num_heads
        stream = target.embed(token_ids)
        delta: Tensor | None = None
        for i, layer in enumerate(target.layers):
            cache = (self._keys[i], self._values[i])
            normed = step.add_rms_norm(stream, delta, layer.input_norm, eps)
            qkv = layer.qkv(normed)
            step.rope_store(qkv, layer.qk_norm, self._table, self._position, cache, heads, eps)
            delta = layer.output(step.attend_cached(qkv, self._position, cache, heads))
            normed = step.add_rms_norm(stream, delta, layer.mlp_norm, eps)
            delta = layer.down(step.silu_mul(layer.gate_up(normed)))
        return step.add_rms_norm(stream, delta, target.final_norm, eps)
