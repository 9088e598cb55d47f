"""No file, however damaged, makes the ELF reader raise, hang or answer something that is no fact."""

import os
from pathlib import Path
from typing import Any

import pytest
from elf_oracle import ToyElf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treegraft.environments.agent.files.native import read_native

FATBINS = Path(__file__).parents[2] / "machines" / "fatbins"
SOURCES = {
    "64 little": ToyElf(64, "<").build(),
    "32 big": ToyElf(32, ">").build(),
    "64 without sections": ToyElf(64, "<", sections=False, gnu_hash=True).build(),
    "gpu code": (FATBINS / "hopper_and_ptx.so").read_bytes(),
}


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "x.so"


def native(path: Path, data: bytes) -> dict[str, Any]:
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_native(fd, len(data), "x.so")
    finally:
        os.close(fd)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    source=st.sampled_from(sorted(SOURCES)),
    edits=st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from([b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x80", b"\x01" * 8])),
        max_size=12,
    ),
    keep=st.floats(0, 1),
)
def test_damage_never_escapes(scratch: Path, source: str, edits: list[tuple[float, bytes]], keep: float) -> None:
    data = bytearray(SOURCES[source])
    for place, patch in edits:
        at = int(place * (len(data) - 9))
        data[at : at + len(patch)] = patch
    cut = bytes(data[: max(4, int(len(data) * keep))])
    facts = native(scratch, cut)
    assert facts["path"] == "x.so"
    assert bool(facts.get("partial")) == bool(facts.get("problem"))


def test_cut_anywhere_is_told(scratch: Path) -> None:
    """A file cut before its last table is never taken for a whole one."""
    data = SOURCES["64 little"]
    for length in range(16, len(data) - 70, 37):
        assert native(scratch, data[:length]).get("partial"), length
