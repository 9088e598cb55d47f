"""Our reader of fat binaries against what cuobjdump said of files that nvcc made (real outputs, recorded)."""

import os
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from treegraft.environments.agent.files.native import read_native

FOLDER = Path(__file__).parents[4] / "machines" / "fatbins"
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".so", ".o"))


def native(path: Path) -> dict[str, Any]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_native(fd, os.path.getsize(path), str(path))
    finally:
        os.close(fd)


def said_by_cuobjdump(text: str) -> list[tuple[str, str]]:
    kinds = {"elf": "cubin", "ptx": "ptx"}
    found = re.findall(r"Fatbin (elf|ptx) code:\narch = sm_(\S+)", text)
    return sorted((kinds[kind], ("sm_" if kind == "elf" else "compute_") + arch) for kind, arch in found)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_agrees_with_cuobjdump(path: Path) -> None:
    facts = native(path)
    expected = said_by_cuobjdump(path.with_name(path.name + ".cuobjdump.txt").read_text())
    assert expected
    assert sorted((code["kind"], code["arch"]) for code in facts["gpu_code"]) == expected
    assert not facts.get("partial")


def test_entries_are_counted(tmp_path: Path) -> None:
    """Padding between containers is passed over; two containers of the same code count twice."""
    data = (FOLDER / "sm_86_only.so").read_bytes()
    at = data.index(struct.pack("<I", 0xBA55ED50))
    (size,) = struct.unpack_from("<Q", data, at + 8)
    container = data[at : at + 16 + size]
    section = container + b"\0" * 24 + container
    path = tmp_path / "twice.o"
    path.write_bytes(elf_with_section(b".nv_fatbin", section))
    assert native(path)["gpu_code"] == [{"kind": "cubin", "arch": "sm_86", "count": 2}]


@pytest.mark.parametrize("cut", [10, 40, 90, 400])
def test_damaged_container_is_a_problem(tmp_path: Path, cut: int) -> None:
    data = (FOLDER / "sm_86_only.so").read_bytes()
    at = data.index(struct.pack("<I", 0xBA55ED50))
    path = tmp_path / "cut.o"
    path.write_bytes(elf_with_section(b".nv_fatbin", data[at : at + cut]))
    facts = native(path)
    assert facts.get("gpu_code", []) == []
    assert facts.get("partial", False) is (cut >= 16)


def test_section_without_any_container_costs_little(tmp_path: Path) -> None:
    path = tmp_path / "noise.o"
    path.write_bytes(elf_with_section(b".nv_fatbin", b"\x50" * (3 << 20)))
    assert native(path)["gpu_code"] == []


def elf_with_section(name: bytes, data: bytes) -> bytes:
    """A relocatable 64-bit file with one section and the names."""
    names = b"\0" + name + b"\0.shstrtab\0"
    names_at = 64 + len(data)
    table_at = names_at + len(names)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, table_at, 0, 64, 0, 0, 64, 3, 2)
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 64, len(data), 0, 0, 8, 0)
    sections += struct.pack("<IIQQQQIIQQ", 2 + len(name), 3, 0, 0, names_at, len(names), 0, 0, 1, 0)
    return header + data + names + sections
