"""The engine: requests in, step outputs out. Owns models, pools, scheduler and round; knows no HTTP and no chat.

A step is: admit, prefill at most `prefill_chunk` prompt tokens, one round for everybody who is prefilled.
"""

from collections.abc import Callable

import torch

from treegraft.engine.canary import check_models
from treegraft.engine.config import EngineConfig, EngineInfo
from treegraft.engine.inputs import pack_rows, prefill_rows
from treegraft.engine.load import LoadedEngine, load
from treegraft.engine.request import Request, StepOutput, check_context
from treegraft.engine.round import Round, RoundTrace
from treegraft.engine.runner import Runner
from treegraft.engine.sampler import RowKey, Sampler
from treegraft.engine.scheduler import Scheduler
from treegraft.engine.sequence import Sequence
from treegraft.errors import UsageError
from treegraft.logs import get_logger

log = get_logger(__name__)


class Engine:
    """Raises ModelError, DrafterError, CheckpointError, UsageError when it cannot be built as asked.

    `trace`, when set, is called with every round's RoundTrace.
    """

    def __init__(self, config: EngineConfig) -> None:
        loaded: LoadedEngine = load(config)
        self.info: EngineInfo = loaded.info
        self.tokenizer = loaded.tokenizer
        self.trace: Callable[[RoundTrace], None] | None = None
        for decision in self.info.decisions:
            log.info("%s", decision)
        self._is_closed = False
        self._prefill_chunk = config.prefill_chunk
        self._stop_ids = frozenset(loaded.stop_ids)
        self._runner = Runner(loaded.target, loaded.drafter, self.info.num_slots)
        check_models(self._runner, self.info.model, self.info.drafter)
        self._sampler = Sampler(self.info.vocab_size, self._runner.device)
        self._scheduler = Scheduler(self.info.num_slots, config.max_running, loaded.plan.rows_per_round)
        self._round = Round(self._runner, self._sampler, self._scheduler, loaded.plan)

    @property
    def num_running(self) -> int:
        return len(self._scheduler.running)

    @property
    def num_waiting(self) -> int:
        return len(self._scheduler.waiting)

    @property
    def num_available_slots(self) -> int:
        """Slots that are free or hold only cached prefixes."""
        return self._scheduler.num_available

    @property
    def num_preemptions(self) -> int:
        return self._scheduler.num_preemptions

    def add(self, request: Request) -> None:
        """Queue a request. Raises UsageError (ids out of the vocabulary, stop strings without a tokenizer, an id that
        is in use, a closed engine) or ContextTooLongError, and then holds nothing of it."""
        params, ids = request.params, request.prompt_token_ids
        if self._is_closed:
            raise UsageError("the engine is closed; build a new one")
        if request.id in self._scheduler.request_ids:
            raise UsageError(f"request id {request.id!r} is in use; wait for its end, or choose another")
        if not ids:
            raise UsageError("the prompt is empty; expected at least one token")
        bad = next((i for i in ids if not 0 <= i < self.info.vocab_size), None)
        if bad is not None:
            raise UsageError(f"prompt token id {bad} is outside the vocabulary of {self.info.vocab_size}")
        check_context(len(ids), params.max_tokens, self.info.max_context)
        if params.stop and self.tokenizer is None:
            raise UsageError("stop strings need a tokenizer, and this model has none; use stop_token_ids")
        stop_ids = frozenset(params.stop_token_ids)
        if not params.ignore_eos:
            stop_ids |= self._stop_ids
        stream = self.tokenizer.stream() if self.tokenizer is not None else None
        request = Request(id=request.id, prompt_token_ids=tuple(ids), params=params.with_seed())
        self._scheduler.add(Sequence(request, stop_ids, stream))

    def abort(self, request_id: str) -> None:
        """Drop a request and free what it holds; an unknown id is no error (it may just have finished)."""
        sequence = self._scheduler.abort(request_id)
        if sequence is not None:
            self._sampler.forget(sequence)

    def drop_cache(self) -> int:
        """Forget all cached prefixes that nobody uses, so that the next prefill is a cold one; tokens forgotten."""
        slots = self._scheduler.cache.evict(self._scheduler.cache.num_evictable)
        self._scheduler.allocator.free(slots)
        return len(slots)

    def has_work(self) -> bool:
        return bool(self._scheduler.running or self._scheduler.waiting)

    def step(self) -> list[StepOutput]:
        """Admit, prefill a chunk, run a round; what was committed, in no particular order.

        When it is broken off (KeyboardInterrupt, a fault), all requests and cached prefixes are dropped: slots handed
        out in mid-step have no owner that could give them back. The engine can then be used again.
        """
        try:
            return self._step()
        except BaseException:
            for sequence in self._scheduler.drop_all():
                self._sampler.forget(sequence)
            raise

    @torch.inference_mode()
    def _step(self) -> list[StepOutput]:
        self._scheduler.admit()
        outputs = self._prefill()
        ready = [s for s in self._scheduler.running if s.is_prefilled]
        for commit in self._round.run(ready) if ready else []:
            if self.trace is not None:
                self.trace(commit.trace)
            outputs.append(self._output(commit.sequence, commit.token_ids, commit.text, len(commit.token_ids)))
        if not self.has_work():
            self._scheduler.check_idle()
        return outputs

    def close(self) -> None:
        """Release the models and drop what is running; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._scheduler.drop_all()
        del self._runner, self._round

    def _prefill(self) -> list[StepOutput]:
        outputs = []
        budget = self._prefill_chunk
        for sequence in list(self._scheduler.running):
            if budget == 0:
                break
            if sequence not in self._scheduler.running:
                continue
            if not sequence.is_prefilled:
                self._scheduler.match_again(sequence)
            if sequence.is_prefilled:
                continue
            start = sequence.num_computed
            count = min(budget, sequence.prefill_end - start)
            slots = self._scheduler.take(sequence, count)
            if slots is None:
                continue
            budget -= count
            rows = prefill_rows(sequence.tokens[start : start + count], slots, sequence.slots[:start])
            token_ids, inputs = pack_rows([rows], self._runner.device)
            output = self._runner.forward(token_ids, inputs)
            if output.tapped is not None:
                self._runner.write_context(output.tapped[0], start + rows.offsets, slots)
            sequence.add_slots(slots)
            if sequence.num_computed < sequence.prefill_end:
                continue
            self._scheduler.share(sequence)
            if sequence.num_generated == 0:
                key = RowKey(sequence, sequence.num_prompt_tokens)
                chosen = self._sampler.choose(self._runner.logits(output.hidden[0, -1:]), [key])
                token_ids_kept, text = sequence.commit(chosen)
                outputs.append(self._output(sequence, token_ids_kept, text, 0))
        return outputs

    def _output(self, sequence: Sequence, token_ids: list[int], text: str, accept_length: int) -> StepOutput:
        if sequence.finish_reason is not None:
            self._scheduler.finish(sequence)
            self._sampler.forget(sequence)
        assert sequence.cached_tokens is not None
        return StepOutput(
            request_id=sequence.request.id,
            token_ids=tuple(token_ids),
            text=text,
            finish_reason=sequence.finish_reason,
            accept_length=accept_length,
            num_prompt_tokens=sequence.num_prompt_tokens,
            cached_tokens=sequence.cached_tokens,
            seed=sequence.seed,
        )
