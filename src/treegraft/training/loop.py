"""The training loop: batches, steps, measurements, checkpoints, exact resume. Knows no corpus making and no export.

Everything random comes from (seed, batch number), so a run that goes on from a checkpoint does what it would have done.
The clock of a run with `minutes` starts after each process' first batch: compiling is not training.
"""

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from treegraft.errors import TrainingError
from treegraft.logs import get_logger
from treegraft.models.config import DrafterConfig
from treegraft.models.target import TargetModel
from treegraft.training import checkpoint, validate
from treegraft.training.block_attention import dense_mask, fits_tiles, tile_mask
from treegraft.training.build import build_network, build_optimiser
from treegraft.training.card import DrafterCard
from treegraft.training.checkpoint import RunState
from treegraft.training.config import TrainConfig
from treegraft.training.corpus.shards import CorpusManifest, Rows, read_manifest, read_rows
from treegraft.training.features import TapReader
from treegraft.training.loss import (
    Learning,
    LossParts,
    Teacher,
    block_loss,
    make_blocks,
    next_anchors,
    num_learnt_rows,
    random_anchors,
)
from treegraft.training.parallel import Group
from treegraft.training.report import forget_after
from treegraft.training.validate import Drafts, Reply

log = get_logger(__name__)

MEASURE_STEPS = 20
ALONE = Group()
METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Corpus:
    """What a run learns from: training rows and validation rows with the manifest they come from."""

    manifest: CorpusManifest
    train: Rows
    validation: Rows
    end_token: int


def read_corpus(folder: Path, target: TargetModel, end_token: int) -> Corpus:
    """A corpus folder for a target. Raises TrainingError for a folder without one, one of another vocabulary, and what
    read_rows raises."""
    manifest = read_manifest(folder)
    if manifest is None or not manifest.shards:
        raise TrainingError(f"{folder} holds no corpus; make one with treegraft train data")
    if manifest.vocab_size != target.config.vocab_size:
        raise TrainingError(
            f"{folder} was written by {manifest.target} with {manifest.vocab_size} tokens; this target has "
            f"{target.config.vocab_size}: make a corpus with the target itself"
        )
    train = read_rows(folder, manifest, "train")
    return Corpus(manifest, train, read_rows(folder, manifest, "validation", check_hashes=False), end_token)


def run_hash(config: TrainConfig, manifest: CorpusManifest, num_processes: int = 1) -> str:
    """sha256 of what a run's checkpoints depend on."""
    parts = [num_processes, config.target, config.drafter, config.run, [shard.sha256 for shard in manifest.shards]]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


class Trainer:
    """One run in one folder. `train` may be called again after it was told to stop early.

    group: processes that share the run, each with run.rows rows a batch of its own and the same weights.
    """

    def __init__(
        self,
        config: TrainConfig,
        drafter: DrafterConfig,
        target: TargetModel,
        corpus: Corpus,
        folder: Path,
        group: Group = ALONE,
    ) -> None:
        self._config, self._target, self._corpus, self._folder = config, target, corpus, folder
        self._group = group
        self._hash = run_hash(config, corpus.manifest, group.size)
        device, run = target.device, config.run
        is_compiled = run.compile and device.type == "cuda"
        self._reader = TapReader(target, drafter.target_layer_ids, corpus.manifest.row_tokens, is_compiled)
        self._plain_reader = TapReader(target, drafter.target_layer_ids, corpus.manifest.row_tokens, False)
        self.network = build_network(config, drafter, target)
        self.optimiser = build_optimiser(config, self.network)
        self._is_tiled = is_compiled and fits_tiles(drafter.block_size, run.anchors, corpus.manifest.row_tokens)
        if is_compiled:
            for layer in self.network.layers:
                layer.compile(dynamic=False)
        if len(corpus.train) < run.rows * group.size:
            raise TrainingError(
                f"the corpus has {len(corpus.train)} training rows with replies; run.rows asks for {run.rows}; make a "
                "larger corpus with treegraft train data"
            )
        self._tokens = corpus.train.tokens.to(device)
        self._kinds = corpus.train.kinds.to(device)
        num_learnt = num_learnt_rows(run.rows * run.anchors, drafter.block_size, run.decay)
        share = 1.0 if run.head_only else run.conditional_share
        self._learning = Learning(num_learnt, share, run.tree_nodes)
        temperatures = corpus.manifest.temperatures
        self._greedy_kind = 1 + temperatures.index(0.0) if 0.0 in temperatures else 0
        self._replies = {
            t: validate.whole_replies(corpus.validation, 1 + kind, corpus.end_token, run.validate_rows)
            for kind, t in enumerate(temperatures)
            if t in (0.0, 1.0)
        }
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)
        self.batch, self.seconds = 0, 0.0
        self._resume()

    @property
    def block_tokens_per_step(self) -> int:
        run = self._config.run
        return self._group.size * run.rows * run.anchors * self.network.config.block_size

    def _resume(self) -> None:
        loaded = checkpoint.load(self._folder, self._hash)
        if loaded is None:
            return
        tensors, state = loaded
        self.optimiser.load(tensors, state.step)
        self.batch, self.seconds = state.batch, state.seconds
        if self._group.is_first:
            forget_after(self._folder / METRICS, state.step)
        log.info("going on from step %d (%.0f s of training)", state.step, state.seconds)

    def save(self) -> None:
        if not self._group.is_first:
            return
        state = RunState(run_hash=self._hash, step=self.optimiser.num_steps, batch=self.batch, seconds=self.seconds)
        checkpoint.save(self._folder, self.optimiser.tensors(), state)

    def card(self) -> DrafterCard:
        """What the run so far is, nothing measured."""
        config, drafter, manifest = self._config, self.network.config, self._corpus.manifest
        device = self._target.device
        head = drafter.head
        return DrafterCard(
            target=config.target,
            block_size=drafter.block_size,
            num_layers=drafter.num_layers,
            taps=drafter.target_layer_ids,
            head="none" if head is None else ", ".join([head.kind, *(f"{name} {size}" for name, size in head.sizes)]),
            num_parameters=sum(p.numel() for p in self.network.parameters()),
            corpus_written_tokens=sum(shard.num_written for shard in manifest.shards),
            corpus_reply_tokens=sum(shard.num_reply_tokens for shard in manifest.shards),
            corpus_hashes=tuple(shard.sha256 for shard in manifest.shards),
            training_steps=self.optimiser.num_steps,
            training_seconds=round(self.seconds, 1),
            training_device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            initial=config.drafter.initial,
            optimiser=config.run.optimiser,
        )

    def progress(self) -> float:
        """Share of the schedule that is done, 0 to 1."""
        run = self._config.run
        done = self.optimiser.num_steps / run.steps if run.steps else self.seconds / (60 * run.minutes)
        return min(done, 1.0)

    def train(self, stop_after_s: float | None = None) -> bool:
        """Train to the end of the schedule, or for stop_after_s seconds of this process; a checkpoint is written in
        either case. True when the schedule is done. Raises TrainingError for a loss that is not finite: the weights
        from before that step are saved."""
        run = self._config.run
        started = last_save = self._group.agree(time.monotonic(), self._target.device)
        clock: float | None = None
        sums: dict[str, Any] = {}
        while self.progress() < 1.0:
            self._run_batch(sums)
            is_measured = self.optimiser.num_steps % MEASURE_STEPS < run.passes
            if not (is_measured or clock is None or self.progress() >= 1.0):
                continue
            self._check_finite()  # waits for the device
            now = self._group.agree(time.monotonic(), self._target.device)
            if clock is not None:
                self.seconds += now - clock
                self._measure(sums, now - clock)
                sums = {}
            clock = now
            if now - last_save > 60 * run.checkpoint_minutes:
                self.save()
                last_save = now
            if stop_after_s is not None and now - started > stop_after_s:
                break
        self.save()
        return self.progress() >= 1.0

    def _check_finite(self) -> None:
        bad = self.optimiser.bad_step()
        if bad is None:
            return
        batch = bad // self._config.run.passes
        self.optimiser.num_steps, self.batch = bad, batch
        self.save()
        raise TrainingError(
            f"the gradient stopped being finite at step {bad} (batch {batch}, rows {self._batch_rows(batch)[:4]} ...); "
            f"the weights from before that step are in {self._folder / checkpoint.FOLDER}; lower run.learning_rate"
        )

    def _batch_rows(self, batch: int) -> list[int]:
        """This process' rows of a batch; an epoch is dealt out to all of them."""
        run = self._config.run
        per_epoch = len(self._corpus.train) // (run.rows * self._group.size)
        epoch, place = divmod(batch, per_epoch)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(run.seed * 1_000_003 + epoch)
            self._epoch, self._order = epoch, torch.randperm(len(self._corpus.train), generator=generator)
        first = (place * self._group.size + self._group.rank) * run.rows
        rows: list[int] = self._order[first : first + run.rows].tolist()
        return rows

    def _run_batch(self, sums: dict[str, Any]) -> None:
        """`passes` optimiser steps on one batch of rows."""
        run, device, b = self._config.run, self._target.device, self.network.config.block_size
        rows = torch.tensor(self._batch_rows(self.batch), device=device)
        tokens, kinds = self._tokens[rows].long(), self._kinds[rows]
        key = self.batch * self._group.size + self._group.rank
        generator = torch.Generator(device).manual_seed((run.seed << 40) + key)
        tapped, teacher = self._read(tokens, kinds)
        anchors = random_anchors(kinds, run.anchors, generator)
        for _ in range(run.passes):
            if self.progress() >= 1.0 and run.steps:
                break
            blocks = make_blocks(tokens, kinds, anchors, b, run.decay, generator)
            mask = (tile_mask if self._is_tiled else dense_mask)(anchors, b, tokens.shape[1])
            hidden = self.network(tapped, blocks.tokens[:, :, 0], anchors, self._target, mask)
            parts = block_loss(self.network, self._target, hidden, blocks, teacher, self._learning, generator)
            self.network.zero_grad(set_to_none=True)
            parts.total.backward()  # type: ignore[no-untyped-call]
            self._group.average(p.grad for p in self.network.parameters() if p.grad is not None)
            norm = self.optimiser.step(self._rate_factor())
            _add(sums, parts, norm)
            anchors = next_anchors(blocks, parts.run, kinds, generator)
        self.batch += 1

    def _read(self, tokens: Tensor, kinds: Tensor) -> tuple[Tensor, Teacher | None]:
        """What the target says about a batch's rows: (tapped states, what is to be distilled)."""
        distil = self._config.run.distil
        if distil == "none":
            return self._reader.read(tokens), None
        tapped, final = self._reader.read_all(tokens)
        is_soft = kinds > 0 if distil == "all" else (kinds > 0) & (kinds != self._greedy_kind)
        return tapped, Teacher(final, is_soft)

    def _rate_factor(self) -> float:
        """Linear warm-up, then linear to 0."""
        warmup, done = self._config.run.warmup, self.progress()
        return min(done / warmup if warmup else 1.0, (1 - done) / (1 - warmup)) if self.progress() > 0 else 1e-3

    def _measure(self, sums: dict[str, Any], seconds: float) -> None:
        counts = sums["counts"].clamp(min=1)
        loss, hits = (sums["losses"] / counts).tolist(), (sums["hits"] / counts).tolist()
        record = {
            "step": self.optimiser.num_steps,
            "seconds": round(self.seconds, 2),
            "loss": float(sums["total"]) / sums["steps"],
            "gradient_norm": float(sums["norm"]) / sums["steps"],
            "block_tokens_per_s": round(sums["steps"] * self.block_tokens_per_step / seconds),
            "loss_marginal": loss[0],
            "loss_conditional": loss[1],
            "hits_marginal": hits[0],
            "hits_conditional": hits[1],
        }
        self._write(record)

    def _write(self, record: dict[str, Any]) -> None:
        if not self._group.is_first:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / METRICS).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(record) + "\n")
        except OSError as error:
            raise TrainingError(f"{self._folder / METRICS} cannot be written: {error.strerror}") from error

    def validate(
        self, budgets: tuple[int, ...] = (), num_candidates: int = 0, max_replies: int | None = None
    ) -> dict[str, float]:
        """tau on held-out replies at T = 0 and T = 1 (at most so many of each), of the chain and of trees; names at
        T = 1 end in "_t1". Written to the metrics too."""
        found: dict[str, float] = {}
        for temperature, all_replies in self._replies.items():
            replies = all_replies[:max_replies]
            if not replies:
                log.warning("no held-out reply at T = %g to validate on; make a larger corpus", temperature)
                continue
            drafts = self.drafts(replies, num_candidates, temperature)
            suffix = "_t1" if temperature else ""
            for by_head in (False, True) if self.network.has_head else (False,):
                way = ("_head" if by_head else "") + suffix
                found[f"chain{way}"] = validate.chain_tau(drafts, replies, by_head)
                for budget in budgets:
                    rows = self._corpus.validation
                    found[f"tree{budget}{way}"] = validate.tree_tau(drafts, rows, replies, budget, by_head)
        if found:
            self._write({"step": self.optimiser.num_steps, "seconds": round(self.seconds, 2), "tau": found})
        return found

    def held_out(self, temperature: float) -> list[Reply]:
        """Replies to validate on; temperature 0 or 1."""
        return self._replies.get(temperature, [])

    def drafts(self, replies: list[Reply], num_candidates: int, temperature: float) -> Drafts:
        """What the network would draft at every place of held-out replies."""
        reader, rows = self._plain_reader, self._corpus.validation
        return validate.draft_everywhere(self.network, self._target, reader, rows, replies, num_candidates, temperature)


def _add(sums: dict[str, Any], parts: LossParts, norm: Tensor) -> None:
    values = {
        "total": parts.total.detach(),
        "losses": parts.losses,
        "hits": parts.hits,
        "counts": parts.counts,
        "norm": norm,
        "steps": 1,
    }
    for name, value in values.items():
        sums[name] = sums[name] + value if name in sums else value
