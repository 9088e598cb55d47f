"""Shards of training rows on disk and the manifest that lists them with their hashes. Knows no model.

A shard is one safetensors file:  tokens int32 [R, T]   kinds uint8 [R, T]   prompt_hash int64 [R]   split uint8 [R]
A token's kind is 0 where nothing is to be learnt (prompts, template, loops), else 1 + the index of its reply's
temperature. A shard appears under its name only when it is complete.
"""

import errno
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from treegraft import records
from treegraft.errors import RecordError, TrainingError
from treegraft.records import Record

MANIFEST = "manifest.json"
SPLITS = ("train", "validation", "report")
HELD_PER_1000 = 10  # of each held split


class ShardEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    sha256: str
    num_rows: int
    num_written: int
    num_reply_tokens: int


class CorpusManifest(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a corpus folder holds. `recipe_hash`: of everything that decides its contents; `temperatures`: by kind - 1;
    num_written: tokens that the target sampled, before any filter."""

    KIND: ClassVar[str] = "training-corpus"
    VERSION: ClassVar[int] = 1
    target: str
    recipe_hash: str
    temperatures: tuple[float, ...]
    row_tokens: int
    vocab_size: int
    shards: tuple[ShardEntry, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Rows:
    """Tensors of one shard or of several; shapes in the module's docstring."""

    tokens: Tensor
    kinds: Tensor
    prompt_hash: Tensor
    split: Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    def pick(self, rows: Tensor) -> "Rows":
        return Rows(self.tokens[rows], self.kinds[rows], self.prompt_hash[rows], self.split[rows])


def split_of(prompt_hash: int) -> int:
    """Index into SPLITS, by the prompt alone: one prompt's rows never lie in two splits."""
    place = prompt_hash % 1000
    return 1 if place < HELD_PER_1000 else 2 if place < 2 * HELD_PER_1000 else 0


def read_manifest(folder: Path) -> CorpusManifest | None:
    """The folder's manifest, None when it has none. Raises TrainingError for one that does not read."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        return records.from_json(CorpusManifest, path.read_bytes())
    except RecordError as error:
        raise TrainingError(f"{path}: {error}") from error


def write_manifest(folder: Path, manifest: CorpusManifest) -> None:
    _replace(folder / MANIFEST, lambda path: path.write_text(records.to_json(manifest), encoding="utf-8"))


def write_shard(folder: Path, name: str, rows: Rows, num_written: int) -> ShardEntry:
    """Write one shard whole or not at all. Raises TrainingError when the disk is full or not writable."""
    tensors = {
        "tokens": rows.tokens.to(torch.int32).contiguous(),
        "kinds": rows.kinds.to(torch.uint8).contiguous(),
        "prompt_hash": rows.prompt_hash.contiguous(),
        "split": rows.split.to(torch.uint8).contiguous(),
    }
    _replace(folder / name, lambda path: save_file(tensors, path))
    return ShardEntry(
        name=name,
        sha256=_sha256(folder / name),
        num_rows=len(rows),
        num_written=num_written,
        num_reply_tokens=int((rows.kinds > 0).sum()),
    )


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Call write(temporary path), then rename it to path; nothing is left behind on failure."""
    temporary = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        is_full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
        reason = "the disk is full" if is_full else str(error)
        raise TrainingError(
            f"{path} cannot be written: {reason}; what was written before is kept, run again to go on"
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_rows(folder: Path, manifest: CorpusManifest, split: str, check_hashes: bool = True) -> Rows:
    """All rows of one split of a corpus with shards. Raises TrainingError for shards that are missing or changed, and
    for prompts that lie in two splits."""
    parts: list[Rows] = []
    split_hashes: list[set[int]] = [set() for _ in SPLITS]
    for entry in manifest.shards:
        path = folder / entry.name
        if not path.is_file() or (check_hashes and _sha256(path) != entry.sha256):
            state = "differs from its hash in the manifest" if path.is_file() else "is missing"
            raise TrainingError(f"shard {path} {state}; delete the corpus folder and make it again")
        tensors = load_file(path)
        rows = Rows(tensors["tokens"], tensors["kinds"], tensors["prompt_hash"], tensors["split"])
        for index, hashes in enumerate(split_hashes):
            hashes.update(rows.prompt_hash[rows.split == index].tolist())
        parts.append(rows.pick(torch.nonzero(rows.split == SPLITS.index(split))[:, 0]))
    if any(split_hashes[i] & split_hashes[j] for i in range(3) for j in range(i)):
        raise TrainingError(f"{folder} has prompts in two splits; delete the corpus folder and make it again")
    return Rows(
        torch.cat([p.tokens for p in parts]),
        torch.cat([p.kinds for p in parts]),
        torch.cat([p.prompt_hash for p in parts]),
        torch.cat([p.split for p in parts]),
    )
