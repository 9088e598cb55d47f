"""`train data`: openings -> the target writes -> filters -> shards, until the time or the number of shards is reached.

A shard's openings and noise come from (seed, shard number) alone, so an interrupted corpus goes on exactly where it
stopped. Knows no drafter.
"""

import hashlib
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from treegraft.errors import TrainingError
from treegraft.logs import get_logger
from treegraft.models.target import TargetModel
from treegraft.models.tokenizer import Tokenizer
from treegraft.training.config import TrainConfig
from treegraft.training.corpus import prompts as prompt_files
from treegraft.training.corpus.conversation import Turns, read_turns
from treegraft.training.corpus.generate import ASSISTANT, USER, Generator, Opening, Written
from treegraft.training.corpus.loops import loop_mask
from treegraft.training.corpus.prompts import PromptFilter, prompt_hash
from treegraft.training.corpus.shards import (
    SPLITS,
    CorpusManifest,
    Rows,
    read_manifest,
    read_rows,
    split_of,
    write_manifest,
    write_shard,
)
from treegraft.training.corpus.starters import VERBS

log = get_logger(__name__)

Report = Callable[[CorpusManifest], None]


@dataclass(frozen=True)
class Sources:
    """Token ids of prompts from files (shuffled) and of starters."""

    prompts: list[list[int]]
    starters: list[list[int]]


def make_corpus(
    config: TrainConfig,
    folder: Path,
    target: TargetModel,
    tokenizer: Tokenizer,
    held_out: Iterable[str],
    report: Report,
) -> CorpusManifest:
    """Write shards to `folder`, or go on with those there. `held_out`: prompts that must stay out; report: called after
    each shard. Raises TrainingError for a corpus of another recipe, a full disk, prompts that do not read."""
    data = config.data
    turns = read_turns(tokenizer)
    if len(turns.prefix) + len(turns.to_assistant) + data.min_reply_tokens >= data.row_tokens:
        raise TrainingError(
            f"data.row_tokens is {data.row_tokens}; the template alone takes {len(turns.prefix)} tokens"
        )
    sources = read_sources(config, tokenizer, held_out)
    manifest = read_manifest(folder) or CorpusManifest(
        target=config.target,
        recipe_hash=recipe_hash(config, sources, turns),
        temperatures=data.temperatures,
        row_tokens=data.row_tokens,
        vocab_size=target.config.vocab_size,
    )
    if manifest.recipe_hash != recipe_hash(config, sources, turns):
        raise TrainingError(f"{folder} was made by another recipe (target, data section or prompts); use a new folder")
    generator = Generator(target, turns, data.rows_per_shard, data.row_tokens, data.user_min_p)
    seen = seen_prompts(folder, manifest)
    started, before = time.monotonic(), manifest.seconds
    for number in range(len(manifest.shards), data.max_shards):
        if 0 < data.seconds <= manifest.seconds:
            break
        openings = make_openings(config, sources, turns, number)
        written = generator.run(openings, shard_seed(config, number))
        rows = select_rows(written, [data.temperatures.index(o.temperature) + 1 for o in openings], config, turns, seen)
        entry = write_shard(folder, f"shard-{number:05d}.safetensors", rows, written.num_sampled)
        log.info("shard %d: %d of %d rows kept", number, len(rows), len(openings))
        manifest = msgspec.structs.replace(
            manifest, shards=(*manifest.shards, entry), seconds=before + time.monotonic() - started
        )
        write_manifest(folder, manifest)
        report(manifest)
    return manifest


def seen_prompts(folder: Path, manifest: CorpusManifest) -> set[int]:
    """Hashes of the prompts that the shards so far answer at temperature 0."""
    if 0.0 not in manifest.temperatures or not manifest.shards:
        return set()
    greedy = 1 + manifest.temperatures.index(0.0)
    parts = [read_rows(folder, manifest, split) for split in SPLITS]
    return {value for rows in parts for value in rows.prompt_hash[(rows.kinds == greedy).any(1)].tolist()}


def read_sources(config: TrainConfig, tokenizer: Tokenizer, held_out: Iterable[str]) -> Sources:
    """Prompts of all files after filters, as token ids, in a random order that depends on the seed."""
    paths = [Path(name).expanduser() for name in config.data.prompt_files]
    packaged = prompt_files.sharegpt_file() if config.data.use_sharegpt_package else None
    paths += [packaged] if packaged is not None else []
    keep = PromptFilter(held_out)
    texts = [text.strip() for path in paths for text in prompt_files.read_prompts(path) if keep.keep(text.strip())]
    log.info("%d prompts from %d files; dropped: %s", len(texts), len(paths), keep.dropped or "none")
    random.Random(config.data.seed).shuffle(texts)
    encoded = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    return Sources(
        prompts=[ids for ids in encoded if len(ids) <= config.data.max_prompt_tokens],
        starters=[tokenizer.encode(text, add_special_tokens=False) for text in VERBS],
    )


def recipe_hash(config: TrainConfig, sources: Sources, turns: Turns) -> str:
    """sha256 over what decides a corpus' rows, how many of them apart."""
    data = msgspec.structs.replace(config.data, seconds=0.0, max_shards=0, prompt_files=())
    digest = hashlib.sha256(msgspec.json.encode([config.target, data, turns.prefix, turns.to_assistant]))
    for ids in (*sources.prompts, *sources.starters):
        digest.update(prompt_hash(ids).to_bytes(8, "little"))
    return digest.hexdigest()


def shard_seed(config: TrainConfig, number: int) -> int:
    """Noise key of a shard: far apart, since the step counter is added to it."""
    return (config.data.seed * 1_000_003 + number) << 32


def make_openings(config: TrainConfig, sources: Sources, turns: Turns, number: int) -> list[Opening]:
    """One opening a row. File prompts are taken in order, shard after shard, and from the start again when they end."""
    data = config.data
    draw = random.Random(f"{data.seed}/{number}")
    num_prompts = int(data.share_prompts * data.rows_per_shard) if sources.prompts else 0
    num_starters = int(data.share_starters * data.rows_per_shard)
    openings = []
    for row in range(data.rows_per_shard):
        temperature = draw.choices(data.temperatures, data.temperature_shares)[0]
        if row < num_prompts:
            ids = sources.prompts[(number * num_prompts + row) % len(sources.prompts)]
            room = data.row_tokens - data.min_reply_tokens - len(turns.prefix) - len(turns.to_assistant)
            openings.append(Opening(tuple(turns.prompt(ids[:room])), ASSISTANT, temperature))
        elif row < num_prompts + num_starters:
            ids = [*turns.prefix, *draw.choice(sources.starters)]
            openings.append(Opening(tuple(ids[: data.row_tokens - 1]), USER, temperature))
        else:
            openings.append(Opening(turns.prefix, USER, temperature))
    return openings


def select_rows(written: Written, kinds: list[int], config: TrainConfig, turns: Turns, seen: set[int]) -> Rows:
    """Rows worth training on: enough reply tokens outside of loops, no prompt answered twice at temperature 0.

    kinds: of each row (see shards); `seen`: prompts that were answered so, added to.
    """
    data = config.data
    row_kinds = torch.tensor(kinds, dtype=torch.uint8, device=written.tokens.device)
    is_learnt = written.is_reply & ~loop_mask(written.tokens)
    token_kinds = torch.where(is_learnt, row_kinds[:, None], 0).cpu()
    tokens = written.tokens.to(torch.int32).cpu()
    hashes = [prompt_hash(first_prompt(row, turns)) for row in tokens.tolist()]
    is_kept = (token_kinds > 0).sum(1) >= data.min_reply_tokens
    for row, (value, kind) in enumerate(zip(hashes, kinds, strict=True)):
        if is_kept[row] and data.temperatures[kind - 1] == 0:
            is_kept[row] = value not in seen
            seen.add(value)
    split = torch.tensor([split_of(value) for value in hashes], dtype=torch.uint8)
    return Rows(tokens, token_kinds, torch.tensor(hashes, dtype=torch.int64), split).pick(is_kept)


def first_prompt(row: list[int], turns: Turns) -> list[int]:
    """Ids of a row's first user turn."""
    ids = row[len(turns.prefix) :]
    return ids[: ids.index(turns.end_token)] if turns.end_token in ids else ids
