"""Synthetic device code: ELF sections that say for which GPU architectures a file has code, without any code.

Knows the headers of NVIDIA's fat binaries as nvcc writes them (little endian; container: magic, version, header size,
payload size; entry: kind, version, header size, payload size, architecture at 28, flags at 40). Payloads are zeros,
so nothing here can run on a GPU.
"""

import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from worlds.needs import require_program

MAGIC = 0xBA55ED50
PTX, CUBIN = 1, 2
SPECIFIC, FAMILY = 1 << 20, 1 << 21


def fat_binary(codes: Sequence[str]) -> bytes:
    """One container with an entry for each code: "sm_86", "sm_90a", "sm_100f", "compute_80"."""
    entries = b"".join(_entry(code) for code in codes)
    return struct.pack("<IHHQ", MAGIC, 1, 16, len(entries)) + entries


def _entry(code: str) -> bytes:
    prefix, _, arch = code.partition("_")
    flags = {"a": SPECIFIC, "f": FAMILY}.get(arch[-1], 0)
    kind = {"sm": CUBIN, "compute": PTX}[prefix]
    payload = b"\0" * 32
    header = bytearray(64)
    struct.pack_into("<HHIQ", header, 0, kind, 0x101, len(header), len(payload))
    struct.pack_into("<I", header, 28, int(arch.rstrip("af")))
    struct.pack_into("<Q", header, 40, 0x11 | flags)
    return bytes(header) + payload


def with_gpu_code(library: bytes, codes: Sequence[str]) -> bytes:
    """The ELF file with a section .nv_fatbin added by objcopy."""
    objcopy = require_program("objcopy")
    with tempfile.TemporaryDirectory() as folder:
        plain, section, result = (Path(folder) / name for name in ("plain.so", "section", "result.so"))
        plain.write_bytes(library)
        section.write_bytes(fat_binary(codes))
        words = ["--add-section", f".nv_fatbin={section}", "--set-section-flags", ".nv_fatbin=readonly,data"]
        words += ["--set-section-alignment", ".nv_fatbin=8"]
        subprocess.run([objcopy, *words, str(plain), str(result)], check=True)
        return result.read_bytes()
