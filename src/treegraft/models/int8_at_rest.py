"""Drafter folders with matrices as int8 and one scale a row: half the size of bf16 in the package, dequantised at load.

Knows the file layout only; weights.py multiplies the scales in. A folder keeps its published layout, plus one key in
config.json and one tensor `NAME_scale` [rows] float32 for each int8 matrix NAME.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from treegraft.errors import CheckpointError
from treegraft.models.checkpoint import check_dtypes, read_folder
from treegraft.models.config_json import INT8_KEY, INT8_VALUE
from treegraft.models.json_fields import read_json
from treegraft.models.weights import SCALE_SUFFIX, folder_source

STEPS = 127


@dataclass(frozen=True)
class QuantisationReport:
    """max_relative_error: largest |w - w'| over the largest |w| of its row, over all matrices (at most 0.5 / 127 plus
    rounding). num_bytes: the weights file's size."""

    num_matrices: int
    max_relative_error: float
    num_bytes: int


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(int8 [rows, columns], float32 scales [rows]): weight ~ int8 * scale, the row's largest at 127."""
    values = weight.float()
    largest = values.abs().amax(dim=1)
    scales = torch.where(largest > 0, largest / STEPS, torch.ones_like(largest))
    return (values / scales[:, None]).round().to(torch.int8), scales


def quantise_folder(source: Path, destination: Path) -> QuantisationReport:
    """Write `source` (a drafter folder in the published layout) to `destination` with int8 matrices.

    Vectors stay as they are. Raises CheckpointError when the source is at rest in int8 already or does not read.
    """
    document = read_json(source / "config.json")
    if INT8_KEY in document:
        raise CheckpointError(f"{source} is int8 at rest already; quantise the folder that it was made from")
    entries = read_folder(source)
    check_dtypes(entries)
    tensors: dict[str, Tensor] = {}
    worst, num_matrices = 0.0, 0
    as_stored = folder_source(entries, None, torch.device("cpu"))
    for name in entries:
        weight = as_stored(name)
        if weight.ndim != 2:
            tensors[name] = weight
            continue
        quantised, scales = quantise_rows(weight)
        tensors[name], tensors[name + SCALE_SUFFIX] = quantised, scales
        error = (quantised.float() * scales[:, None] - weight.float()).abs().amax(dim=1) / (scales * STEPS)
        worst, num_matrices = max(worst, float(error.max())), num_matrices + 1
    destination.mkdir(parents=True, exist_ok=True)
    file = destination / "model.safetensors"
    save_file(tensors, file, metadata={"format": "pt"})
    document[INT8_KEY] = INT8_VALUE
    (destination / "config.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return QuantisationReport(num_matrices, worst, file.stat().st_size)
