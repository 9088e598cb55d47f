"""Reads a GGUF file: metadata, where the tensors lie, and one tensor's values dequantised by the `gguf` package.

Own reader of the header, since the package's takes seconds for a vocabulary. Knows no model: names and values as they
stand in the file (layout: ggml's docs/gguf.md). No torch.
"""

import functools
import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treegraft.errors import CheckpointError, UnsupportedModelError

# Value types by number: struct code, or one of the two nested kinds.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class GGUFTensor:
    """Shape rows first (the file stores it reversed), ggml type number, place in the file in bytes."""

    shape: tuple[int, ...]
    ggml_type: int
    offset: int
    num_bytes: int


@dataclass(frozen=True)
class GGUFFile:
    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GGUFTensor]

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """One tensor as float32, dequantised."""
        import gguf

        tensor = self.tensors[name]
        mapped = np.memmap(self.path, dtype=np.uint8, mode="r", offset=tensor.offset, shape=(tensor.num_bytes,))
        raw = mapped.view(np.ndarray)  # each slice of a memmap costs more than the few bytes it holds
        quant = gguf.GGMLQuantizationType(tensor.ggml_type)
        plain = {gguf.GGMLQuantizationType.F32: np.float32, gguf.GGMLQuantizationType.F16: np.float16}
        if quant in plain:
            values = raw.view(plain[quant]).astype(np.float32)
        else:
            block_length, block_bytes = gguf.GGML_QUANT_SIZES[quant]
            rows = raw.reshape(*tensor.shape[:-1], tensor.shape[-1] // block_length * block_bytes)
            try:
                values = gguf.dequantize(rows, quant)
            except NotImplementedError as error:
                raise UnsupportedModelError(
                    f"{self.path}: tensor {name} is {quant.name}, which cannot be read"
                ) from error
        return values.reshape(tensor.shape)


class _Cursor:
    """Reads little-endian values one after the other."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self.buffer, self.at = buffer, 0

    def scalar(self, code: str) -> Any:
        value = struct.unpack_from("<" + code, self.buffer, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return value

    def string(self) -> str:
        length = self.scalar("Q")
        raw = self.buffer[self.at : self.at + length]
        if len(raw) != length:
            raise struct.error("string beyond the end")
        self.at += length
        return raw.decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            inner, count = self.scalar("I"), self.scalar("Q")
            if inner in SCALARS:
                values = struct.unpack_from(f"<{count}{SCALARS[inner]}", self.buffer, self.at)
                self.at += struct.calcsize(f"<{count}{SCALARS[inner]}")
                return list(values)
            return [self.value(inner) for _ in range(count)]
        return self.scalar(SCALARS[kind])


def read_gguf(path: Path) -> GGUFFile:
    """The header of a GGUF file (versions 2 and 3). The last few are remembered until their file changes.

    Raises CheckpointError for what is no GGUF file, is cut short or has a broken header.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    return _read(path, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=4)
def _read(path: Path, _changed_ns: int, size: int) -> GGUFFile:
    if size < 24:
        raise CheckpointError(f"{path} is no GGUF file ({size} bytes)")
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
        if buffer[:4] != b"GGUF":
            raise CheckpointError(f"{path} is no GGUF file (it starts with {buffer[:4]!r})")
        cursor = _Cursor(buffer)
        cursor.at = 4
        version = cursor.scalar("I")
        if version not in (2, 3):
            raise UnsupportedModelError(f"{path} is GGUF version {version}; versions 2 and 3 are supported")
        try:
            metadata, tensors = _header(cursor)
        except (struct.error, KeyError, OverflowError, MemoryError, RecursionError) as error:
            raise CheckpointError(f"{path} has a broken or truncated GGUF header; fetch it again") from error
    for name, tensor in tensors.items():
        if tensor.offset + tensor.num_bytes > size:
            raise CheckpointError(f"{path} is cut short: tensor {name} ends beyond its {size} bytes; fetch it again")
    return GGUFFile(path, metadata, tensors)


def _header(cursor: _Cursor) -> tuple[dict[str, Any], dict[str, GGUFTensor]]:
    import gguf

    num_tensors, num_keys = cursor.scalar("Q"), cursor.scalar("Q")
    metadata: dict[str, Any] = {}
    for _ in range(num_keys):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.scalar("I"))
    found: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(num_tensors):
        name = cursor.string()
        shape = tuple(reversed([cursor.scalar("Q") for _ in range(cursor.scalar("I"))]))
        found.append((name, shape, cursor.scalar("I"), cursor.scalar("Q")))
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1:
        raise struct.error(f"alignment {alignment!r}")
    start = -(-cursor.at // alignment) * alignment
    sizes = {int(quant): pair for quant, pair in gguf.GGML_QUANT_SIZES.items()}
    tensors = {}
    for name, shape, ggml_type, offset in found:
        block_length, block_bytes = sizes[ggml_type]
        count = math.prod(shape)
        tensors[name] = GGUFTensor(shape, ggml_type, start + offset, count // block_length * block_bytes)
    return metadata, tensors
