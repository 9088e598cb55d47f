"""The drafter card: where a drafter comes from, how it was trained, what it was measured at. Knows no model."""

from pathlib import Path
from typing import ClassVar

import msgspec

from treegraft import records
from treegraft.errors import RecordError, TrainingError
from treegraft.records import Record

CARD, README = "card.json", "README.md"


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """tau of one method on one set of prompts. method: chain or treeN; prompts counted after loops are left out."""

    method: str
    temperature: float
    category: str
    tau: float
    num_prompts: int
    num_loops: int
    tau_with_loops: float


class DrafterCard(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """origin: prose, one sentence a line. corpus_hashes: sha256 of each shard. measured: on what was measured only."""

    KIND: ClassVar[str] = "drafter-card"
    VERSION: ClassVar[int] = 1
    target: str
    block_size: int
    num_layers: int
    taps: tuple[int, ...]
    head: str
    num_parameters: int
    corpus_written_tokens: int
    corpus_reply_tokens: int
    corpus_hashes: tuple[str, ...]
    training_steps: int
    training_seconds: float
    training_device: str
    initial: str
    optimiser: str
    origin: tuple[str, ...] = ()
    prompts_hash: str = ""
    weights: str = "int8"
    measured: tuple[Measured, ...] = ()


def card_text(card: DrafterCard) -> str:
    """README.md of a drafter folder."""
    rows = [
        ("target", card.target),
        ("layers, taps", f"{card.num_layers}; after target layers {', '.join(map(str, card.taps))} (counted from 0)"),
        ("block", str(card.block_size)),
        ("conditional head", card.head),
        ("parameters", f"{card.num_parameters / 1e6:.2f} M"),
        ("embedding, LM head", "the target's"),
        (
            "trained on",
            f"{card.corpus_written_tokens / 1e6:.1f} M tokens that the target wrote, "
            f"{card.corpus_reply_tokens / 1e6:.1f} M of them learnt",
        ),
        ("training", f"{card.training_steps} steps in {card.training_seconds:.0f} s on {card.training_device}"),
        ("start, optimiser", f"{card.initial}, {card.optimiser}"),
    ]
    lines = [f"# Drafter for {card.target}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in rows]
    lines += ["", *card.origin] if card.origin else []
    if card.measured:
        lines += [
            "",
            f"tau (tokens committed per target pass) of these weights ({card.weights}), by the engine, on prompts that",
            f"chose nothing (set {card.prompts_hash[:12]}); repetition loops excluded, in brackets with them:",
            "",
            "| T | method | prompts | tau | loops |",
            "|---|---|---|---|---|",
        ]
        for m in card.measured:
            if m.category == "all":
                lines.append(
                    f"| {m.temperature:g} | {m.method} | {m.num_prompts} | {m.tau:.2f} ({m.tau_with_loops:.2f}) "
                    f"| {m.num_loops} |"
                )
    return "\n".join(lines) + "\n"


def write_card(card: DrafterCard, folder: Path) -> None:
    """card.json, and README.md with the same facts. Raises TrainingError when they cannot be written."""
    try:
        (folder / CARD).write_text(records.to_json(card), encoding="utf-8")
        (folder / README).write_text(card_text(card), encoding="utf-8")
    except OSError as error:
        raise TrainingError(f"the card cannot be written to {folder}: {error.strerror}") from error


def read_card(folder: Path) -> DrafterCard:
    """Raises TrainingError for a folder without a card and for one that does not read."""
    try:
        return records.from_json(DrafterCard, (folder / CARD).read_bytes())
    except OSError as error:
        raise TrainingError(f"{folder / CARD} cannot be read: {error.strerror}") from error
    except RecordError as error:
        raise TrainingError(f"{folder / CARD}: {error}") from error
