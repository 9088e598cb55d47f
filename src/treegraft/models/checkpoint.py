"""What lies in a folder of safetensors: names, dtypes and shapes from the headers, never a tensor's data.

Knows no model and no torch; weights.py reads the data. Pickled weights are refused by name, always: loading them
runs code.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from treegraft.errors import CheckpointError, UnsupportedModelError
from treegraft.models.json_fields import read_json

PICKLED_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I8": 1}
SERVED_DTYPES = tuple(DTYPE_BYTES)
MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies. `dtype` as safetensors spells it (F32, BF16, I8, ...)."""

    file: Path
    dtype: str
    shape: tuple[int, ...]


def read_header(file: Path) -> dict[str, TensorEntry]:
    """Tensors of one safetensors file (8 bytes length, JSON header, data). Raises CheckpointError when the file is
    cut short or is no safetensors file."""
    try:
        with file.open("rb") as stream:
            start = stream.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else MAX_HEADER_BYTES + 1
            if length > MAX_HEADER_BYTES:
                raise CheckpointError(f"{file} is no safetensors file (header of {length} bytes)")
            header = json.loads(stream.read(length))
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} is no safetensors file, or is cut short inside its header") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{file} is no safetensors file (its header is a JSON {type(header).__name__})")
    header.pop("__metadata__", None)
    spans = []
    for name, entry in header.items():
        if not _is_entry(entry):
            raise CheckpointError(f"{file}: the header's entry for tensor {name[:80]!r} is malformed; fetch it again")
        spans.append(tuple(entry["data_offsets"]))
    # Tensors lie one after the other, without holes and without sharing a byte.
    end = 0
    for start, stop in sorted(spans):
        if start != end:
            raise CheckpointError(f"{file}: its tensors overlap or leave holes at byte {start} of the data")
        end = stop
    end += 8 + length
    if file.stat().st_size != end:
        raise CheckpointError(f"{file} has {file.stat().st_size} bytes; its header promises {end}; fetch it again")
    return {name: TensorEntry(file, e["dtype"], tuple(e["shape"])) for name, e in header.items()}


def _is_entry(entry: Any) -> bool:
    """A dtype, a shape, and offsets that span as many bytes (for dtypes that are served)."""
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        return False
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        return False
    width = DTYPE_BYTES.get(entry["dtype"])
    return width is None or math.prod(shape) * width == offsets[1] - offsets[0]


def _are_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)


def read_folder(folder: Path) -> dict[str, TensorEntry]:
    """All tensors of a folder: `model.safetensors`, the shards of its index, or the only *.safetensors there.

    Raises CheckpointError for pickled weights without safetensors, missing shards, and an index that does not agree
    with its shards.
    """
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        return read_header(folder / "model.safetensors")
    if index.is_file():
        return _read_shards(folder, index)
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return read_header(found[0])
    if found:
        raise CheckpointError(f"{folder} has {len(found)} safetensors files but no {index.name}")
    pickled = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLED_SUFFIXES)
    if pickled:
        raise CheckpointError(
            f"{folder} has pickled weights only ({', '.join(pickled[:3])}); pickles can run code and are refused; "
            "convert them to safetensors"
        )
    raise CheckpointError(f"{folder} has no weights; expected model.safetensors or model.safetensors.index.json")


def _read_shards(folder: Path, index: Path) -> dict[str, TensorEntry]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        raise CheckpointError(f"{index} has no weight_map of tensor names to file names")
    entries: dict[str, TensorEntry] = {}
    for name in sorted(set(weight_map.values())):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{index} names the shard {name!r}; expected a *.safetensors file in the same folder")
        if not (folder / name).is_file():
            raise CheckpointError(f"{index} names {name}, which is not in {folder}; fetch the model again")
        entries.update(read_header(folder / name))
    if set(entries) != set(weight_map):
        odd = sorted(set(entries) ^ set(weight_map))
        raise CheckpointError(f"{index} and its shards disagree on {len(odd)} tensor(s): {', '.join(odd[:4])}")
    return entries


def check_tensors(
    found: Mapping[str, tuple[int, ...]],
    expected: Mapping[str, tuple[int, ...]],
    where: str,
    padded: tuple[str, ...] = (),
    ignored: tuple[str, ...] = (),
) -> None:
    """Names and shapes must agree exactly. `padded`: tensors that may have more rows than expected (vocabularies).
    `ignored`: name endings of tensors that may lie there and mean nothing.

    Raises CheckpointError that names missing, extra and misshapen tensors.
    """
    missing = sorted(set(expected) - set(found))
    extra = sorted(n for n in set(found) - set(expected) if not n.endswith(ignored or ("\\0",)))
    faults = []
    if missing:
        faults.append(f"missing tensor(s) {_some(missing)}")
    if extra:
        faults.append(f"extra tensor(s) {_some(extra)}")
    for name in sorted(set(expected) & set(found)):
        have, want = found[name], expected[name]
        fits = have == want or (name in padded and have[1:] == want[1:] and have[0] > want[0])
        if not fits:
            faults.append(f"{name} has shape {list(have)}, expected {list(want)}")
    if faults:
        raise CheckpointError(f"{where}: {'; '.join(faults[:6])}" + ("; ..." if len(faults) > 6 else ""))


def check_dtypes(entries: Mapping[str, TensorEntry]) -> None:
    """Raises UnsupportedModelError for tensors in a dtype that is not served (quantised or packed weights)."""
    odd = sorted(name for name, entry in entries.items() if entry.dtype not in SERVED_DTYPES)
    if odd:
        entry = entries[odd[0]]
        raise UnsupportedModelError(
            f"{entry.file}: tensor {odd[0]} has dtype {entry.dtype}; supported: {', '.join(SERVED_DTYPES)}"
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
