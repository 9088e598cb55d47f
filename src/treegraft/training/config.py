"""The configuration of a drafter's training, read from TOML: data, drafter, run. Knows no torch.

Every key has a default but `target`; unknown keys are refused by name. Two hashes say what may go on from what: of the
data's recipe (a corpus) and of everything (a run).
"""

import math
import tomllib
from pathlib import Path

import msgspec

from treegraft.errors import UsageError


class DataConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `train data` writes. seconds: stop after so long (0: no limit), or at max_shards. Rows of a shard open with
    a file's prompt (share_prompts), a starter (share_starters), or the template's empty user turn (the rest)."""

    prompt_files: tuple[str, ...] = ()
    use_sharegpt_package: bool = True
    share_prompts: float = 0.35
    share_starters: float = 0.35
    temperatures: tuple[float, ...] = (0.0, 0.7, 1.0)
    temperature_shares: tuple[float, ...] = (0.65, 0.15, 0.2)
    user_min_p: float = 0.02
    row_tokens: int = 512
    rows_per_shard: int = 4096
    max_prompt_tokens: int = 256
    min_reply_tokens: int = 48
    max_shards: int = 64
    seconds: float = 110.0
    seed: int = 1


class DrafterShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The drafter to make. taps: target layers counted from 0, () for four spread evenly; mask_token_id -1: chosen.
    head_width 0: no conditional head. initial: "target" copies the target's last layers, "random", or a folder."""

    block_size: int = 16
    num_layers: int = 5
    taps: tuple[int, ...] = ()
    mask_token_id: int = -1
    head_width: int = 256
    initial: str = "target"


class RunConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How it is trained. The schedule ends at `steps`, or after `minutes` of training (the other one 0).

    passes: optimiser steps on one batch of rows (one pass of the target): the first at random anchors, each further one
    where the drafts of the one before it ended. decay: depth d is learnt with weight exp(-(d - 1) / decay).
    conditional_share: of the rows below depth 1 that teach the head. optimiser: muon or adamw. distil: which tokens are
    learnt as the target's distribution rather than as themselves: "sampled" (drawn at T > 0), "all" or "none".
    tree_nodes: rows below paths too improbable for a tree of so many nodes count less; 0: all alike. head_only: the
    drafter stays as `drafter.initial` has it, the head alone is trained.
    """

    steps: int = 0
    minutes: float = 9.0
    rows: int = 32
    anchors: int = 64
    passes: int = 2
    optimiser: str = "muon"
    learning_rate: float = 0.02
    adam_learning_rate: float = 1.5e-3
    weight_decay: float = 0.0
    warmup: float = 0.03
    decay: float = 7.0
    conditional_share: float = 0.5
    distil: str = "sampled"
    tree_nodes: int = 0
    head_only: bool = False
    clip: float = 1.0
    checkpoint_minutes: float = 2.0
    validate_rows: int = 64
    compile: bool = True
    seed: int = 1


class TrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """target, dtype and device as for the engine; dtype and device "auto": bfloat16 on CUDA, else float32 on CPU."""

    target: str
    device: str = "auto"
    dtype: str = "auto"
    data: DataConfig = DataConfig()
    drafter: DrafterShape = DrafterShape()
    run: RunConfig = RunConfig()

    def __post_init__(self) -> None:
        data, drafter, run = self.data, self.drafter, self.run
        shares = sum(data.temperature_shares)
        checks = (
            ("data.temperature_shares", len(data.temperature_shares) == len(data.temperatures), "one a temperature"),
            ("data.temperature_shares", abs(shares - 1) < 1e-6, "shares that add up to 1"),
            ("data.share_prompts", min(data.share_prompts, data.share_starters) >= 0, "at least 0"),
            ("data.share_starters", data.share_prompts + data.share_starters <= 1, "at most 1 with share_prompts"),
            ("data.temperatures", all(0 <= t < math.inf for t in data.temperatures), "numbers from 0 up"),
            ("data.temperature_shares", min(data.temperature_shares, default=0) >= 0, "shares from 0 up"),
            ("data.rows_per_shard", data.rows_per_shard >= 1, "at least 1"),
            ("data.max_shards", data.max_shards >= 1, "at least 1"),
            ("data.row_tokens", data.row_tokens >= 2, "at least 2"),
            ("data.min_reply_tokens", data.min_reply_tokens >= 1, "at least 1"),
            ("data.user_min_p", 0 < data.user_min_p <= 1, "in (0, 1]"),
            ("drafter.block_size", drafter.block_size >= 2, "at least 2"),
            ("drafter.num_layers", drafter.num_layers >= 1, "at least 1"),
            ("drafter.head_width", drafter.head_width >= 0, "at least 0"),
            ("run.rows", run.rows >= 1, "at least 1"),
            ("run.anchors", run.anchors >= 1, "at least 1"),
            ("run.steps", (run.steps > 0) != (run.minutes > 0), "exactly one of steps and minutes above 0"),
            ("run.optimiser", run.optimiser in ("muon", "adamw"), "muon or adamw"),
            ("run.passes", run.passes >= 1, "at least 1"),
            ("run.conditional_share", 0 <= run.conditional_share <= 1, "in [0, 1]"),
            ("run.decay", run.decay > 0, "above 0"),
            ("run.warmup", 0 <= run.warmup < 1, "in [0, 1)"),
            ("run.distil", run.distil in ("none", "sampled", "all"), "none, sampled or all"),
            ("run.tree_nodes", run.tree_nodes >= 0, "at least 0"),
            ("run.head_only", not run.head_only or drafter.head_width > 0, "false where drafter.head_width is 0"),
            ("run.validate_rows", run.validate_rows >= 0, "at least 0"),
        )
        for name, is_good, expected in checks:
            if not is_good:
                section, key = name.split(".")
                raise UsageError(f"{name} is {getattr(getattr(self, section), key)!r}; expected {expected}")


def read_config(path: Path) -> TrainConfig:
    """TrainConfig of a TOML file. Raises UsageError that names the file and the key."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    try:
        return msgspec.convert(document, TrainConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}") from error
