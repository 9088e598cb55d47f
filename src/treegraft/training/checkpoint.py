"""A run's state on disk: everything needed to go on exactly, whole or not at all. Knows no network.

A checkpoint is `state.safetensors` (master weights and moments) and `state.json`, in a folder that replaces the one
before it by renaming.
"""

import shutil
from pathlib import Path
from typing import ClassVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from treegraft import records
from treegraft.errors import RecordError, TrainingError
from treegraft.records import Record

FOLDER, WEIGHTS, STATE = "checkpoint", "state.safetensors", "state.json"


class RunState(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """run_hash: of the configuration and the corpus; seconds: training time so far; batch: next batch's number."""

    KIND: ClassVar[str] = "training-state"
    VERSION: ClassVar[int] = 1
    run_hash: str
    step: int
    batch: int
    seconds: float


def save(run_folder: Path, tensors: dict[str, Tensor], state: RunState) -> None:
    """Replace the run's checkpoint. Raises TrainingError when it cannot be written; the old one stays then."""
    new, current, old = (run_folder / name for name in (FOLDER + ".new", FOLDER, FOLDER + ".old"))
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, new / WEIGHTS)
        (new / STATE).write_text(records.to_json(state), encoding="utf-8")
        shutil.rmtree(old, ignore_errors=True)
        if current.exists():
            current.rename(old)
        new.rename(current)
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(new, ignore_errors=True)
        raise TrainingError(f"checkpoint {current} cannot be written: {error}; the one before it is kept") from error


def load(run_folder: Path, run_hash: str) -> tuple[dict[str, Tensor], RunState] | None:
    """The run's checkpoint, None when it has none. Raises TrainingError for one of another run or one that is
    damaged."""
    folder = run_folder / FOLDER
    if not folder.is_dir() and (run_folder / (FOLDER + ".old")).is_dir():
        folder = run_folder / (FOLDER + ".old")  # stopped between the two renames
    if not folder.is_dir():
        return None
    try:
        state = records.from_json(RunState, (folder / STATE).read_bytes())
        if state.run_hash != run_hash:
            raise TrainingError(
                f"{folder} belongs to another configuration or corpus (hash {state.run_hash[:12]}, this run "
                f"{run_hash[:12]}); use a new run folder, or the configuration it was started with"
            )
        return load_file(folder / WEIGHTS), state
    except (OSError, SafetensorError, RecordError) as error:
        raise TrainingError(f"checkpoint {folder} does not read: {error}; delete it to start again") from error


def read_weights(file: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint's file. Raises TrainingError when it does not read."""
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"checkpoint {file} does not read: {error}") from error
