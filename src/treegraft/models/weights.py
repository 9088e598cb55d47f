"""Tensor data of a folder, one tensor at a time, in the serving dtype on the serving device.

Knows names (checkpoint.py checked them) but no model. Never loads a pickle.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from treegraft.errors import CheckpointError
from treegraft.models.checkpoint import TensorEntry

SCALE_SUFFIX = "_scale"


def folder_source(
    entries: Mapping[str, TensorEntry], dtype: torch.dtype | None, device: torch.device
) -> Callable[[str], Tensor]:
    """A function name -> tensor in dtype (None: as stored) on device. Int8 matrices are multiplied by their row
    scales (see int8_at_rest).

    The function raises CheckpointError for NaN or infinite values, which no later check would show.
    """
    handles: dict[Path, Any] = {}

    def read(name: str) -> Tensor:
        file = entries[name].file
        try:
            if file not in handles:
                handles[file] = safe_open(file, framework="pt", device="cpu")
            tensor: Tensor = handles[file].get_tensor(name)
        except SafetensorError as error:
            raise CheckpointError(f"{file} is no readable safetensors file: {error}") from error
        return tensor

    def source(name: str) -> Tensor:
        tensor = read(name).to(device)
        if tensor.dtype == torch.int8:
            tensor = tensor.float() * read(name + SCALE_SUFFIX).to(device)[:, None].float()
        refuse_non_finite(tensor, name, entries[name].file)
        return tensor if dtype is None else tensor.to(dtype)

    return source


def refuse_non_finite(tensor: Tensor, name: str, file: Path) -> None:
    """Raises CheckpointError when the tensor has NaN or infinite values."""
    smallest, largest = torch.aminmax(tensor)  # one pass without a temporary; NaN wins over every number
    if not (math.isfinite(smallest) and math.isfinite(largest)):
        raise CheckpointError(f"{file}: tensor {name} has NaN or infinite values; the checkpoint is damaged")
