"""The prompts that benchmarks use, and groups of them. Knows no tokenizer and no arm.

The prompts lie in prompts.toml, written for this project: four categories, each split in `tune` (to choose budgets
and scales on) and `report` (what is reported).
"""

import hashlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal, get_args

from treegraft.errors import UsageError

Category = Literal["math", "code", "chat", "extraction"]
Split = Literal["tune", "report"]
# Fewer pairs say nothing (compare.MIN_UNITS); groups overlap where prompts do not suffice for so many.
WANTED_GROUPS = 10
CATEGORIES: tuple[Category, ...] = get_args(Category)


@dataclass(frozen=True)
class Prompt:
    id: str
    category: Category
    split: Split
    text: str


@dataclass(frozen=True)
class Unit:
    """What an arm is given at once, and what is paired between arms: one prompt, or a group asked together."""

    id: str
    category: str
    prompts: tuple[Prompt, ...]


def load_prompts(split: Split, categories: Sequence[str] = CATEGORIES, limit: int | None = None) -> list[Prompt]:
    """Prompts of a split, category by category in turn (math, code, chat, extraction, math ...), so that the first
    few stand for all. limit: at most so many a category. Raises UsageError for an unknown category."""
    unknown = set(categories) - set(CATEGORIES)
    if unknown:
        raise UsageError(f"unknown prompt category {sorted(unknown)[0]!r}; expected {', '.join(CATEGORIES)}")
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit}; expected at least one prompt a category")
    document = tomllib.loads(resources.files("treegraft.bench").joinpath("prompts.toml").read_text("utf-8"))
    prompts = [Prompt(row["id"], row["category"], row["split"], row["text"].strip()) for row in document["prompt"]]
    columns = [[p for p in prompts if p.split == split and p.category == name][:limit] for name in categories]
    longest = max((len(column) for column in columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def in_units(prompts: Sequence[Prompt], size: int) -> list[Unit]:
    """Groups of `size` prompts in order. Size 1: each prompt is its own unit. Where disjoint groups would be fewer than
    WANTED_GROUPS, groups start at evenly spaced prompts, run on from the last to the first, and overlap.

    Raises UsageError when there are fewer prompts than `size`."""
    if not 1 <= size <= len(prompts):
        raise UsageError(f"groups of {size} from {len(prompts)} prompts; expected 1 to {len(prompts)}")
    count = len(prompts) // size
    starts = [number * size for number in range(count)]
    if 1 < size < len(prompts) and count < WANTED_GROUPS:
        count = min(WANTED_GROUPS, len(prompts))
        starts = [number * len(prompts) // count for number in range(count)]
    groups = [tuple(prompts[(start + i) % len(prompts)] for i in range(size)) for start in starts]
    return [
        Unit("+".join(prompt.id for prompt in group), group[0].category if size == 1 else "mixed", group)
        for group in groups
    ]


def prompt_set_hash(prompts: Sequence[Prompt]) -> str:
    """sha256 (hex) over ids and texts in order: two records with the same one asked the same."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(f"{prompt.id}\0{prompt.text}\0".encode())
    return digest.hexdigest()
