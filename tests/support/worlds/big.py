"""A large environment for measuring a probe: many files of many sizes, a share of them native, all owned by dists.

Knows only sizes and counts; what a probe does with it is not its business. Contents are cheap to make and do not
repeat, so that neither compression nor deduplication helps a reader.
"""

import base64
import hashlib
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from worlds.compiling import Compiler, Link
from worlds.venvs import Python, Venv, quick_venv
from worlds.wheels import record_hash

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class BigSize:
    """num_native of the num_files files are ELF files that share `native_share` of the bytes."""

    total_bytes: int = 5 << 30
    num_files: int = 40_000
    num_dists: int = 200
    num_native: int = 400
    native_share: float = 0.9


SMALL = BigSize(total_bytes=4 << 20, num_files=400, num_dists=8, num_native=12, native_share=0.7)


def big_venv(prefix: Path, python: Python, compiler: Compiler, size: BigSize = SMALL, seed: int = 0) -> Venv:
    """Build it; the same arguments give the same bytes. One that is complete already is left as it is."""
    venv = Venv(prefix, python.minor)
    marker = prefix / "big-venv.json"
    wanted = json.dumps([size.__dict__, seed])
    if marker.exists() and marker.read_text() == wanted:
        return venv
    quick_venv(prefix, python)
    rng = random.Random(seed)
    natives = [compiler.library(_source(n), Link(soname=f"libbig{n}.so")).data for n in range(8)]
    per_dist = size.num_files // size.num_dists
    native_bytes = int(size.total_bytes * size.native_share)
    text_bytes = (size.total_bytes - native_bytes) // max(1, size.num_files - size.num_native)
    native_left = _shares(rng, native_bytes, size.num_native)
    for number in range(size.num_dists):
        name = f"big{number:03d}"
        rows: list[str] = []
        count = per_dist + (size.num_files % size.num_dists if number == 0 else 0)
        num_native = size.num_native // size.num_dists + (number < size.num_native % size.num_dists)
        info = f"{name}-1.0.dist-info"
        for index in range(count - 4):
            if index < num_native:
                path, length, head = f"{name}/lib/lib{index}.so", next(native_left), natives[rng.randrange(8)]
            else:
                folder = f"part{index // 100}/" if index >= 100 else ""
                length = max(1, int(text_bytes * rng.uniform(0.1, 1.9)))
                path, head = f"{name}/{folder}module{index}.py", b""
            rows.append(_write(venv.site_packages / path, path, head, length, f"{seed}/{path}"))
        for path, text in (
            (f"{name}/__init__.py", ""),
            (f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"),
            (f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: toy\nRoot-Is-Purelib: false\nTag: py3-none-any\n"),
        ):
            target = venv.site_packages / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            rows.append(f"{path},sha256={record_hash(text.encode())},{len(text)}")
        (venv.site_packages / info / "RECORD").write_text("\n".join([*rows, f"{info}/RECORD,,", ""]))
    marker.write_text(wanted)
    return venv


def _write(target: Path, path: str, head: bytes, length: int, seed: str) -> str:
    """Write `head`, then bytes from the seed up to `length`; its RECORD line."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with target.open("wb") as stream:
        for chunk in _chunks(head, length, seed):
            digest.update(chunk)
            stream.write(chunk)
    encoded = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
    return f"{path},sha256={encoded},{os.path.getsize(target)}"


def _chunks(head: bytes, length: int, seed: str) -> Iterator[bytes]:
    yield head
    left = length - len(head)
    if left <= 0:
        return
    if not head:  # something that reads as Python
        line = f"value = {hashlib.sha256(seed.encode()).hexdigest()!r}\n".encode()
        yield (line * (left // len(line) + 1))[:left]
        return
    block = random.Random(seed).randbytes(min(CHUNK_BYTES, left))
    number = 0
    while left > 0:
        piece = number.to_bytes(8, "little") + block[8 : min(left, CHUNK_BYTES)]
        yield piece[:left]
        left -= len(piece[:left])
        number += 1


def _shares(rng: random.Random, total: int, count: int) -> Iterator[int]:
    """Sizes that sum to about `total`: a few large ones, many small ones, as in real environments."""
    weights = [rng.paretovariate(1.1) for _ in range(count)]
    for weight in weights:
        yield int(total * weight / sum(weights))


def _source(number: int) -> str:
    return "".join(f"int big_{number}_{i}(int x) {{ return x + {i}; }}\n" for i in range(200))
