"""Our ELF reader against pyelftools, on what this machine has and on tiny files of every width and byte order."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import elf_oracle
import pytest
from elf_oracle import ToyElf
from worlds.needs import require_program

from treegraft.environments.agent.files.native import read_native

SITE = Path(sysconfig.get_path("platlib"))
MAX_BYTES = 3 << 20


def native(path: Path) -> dict[str, Any]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_native(fd, os.path.getsize(path), str(path))
    finally:
        os.close(fd)


def real_libraries() -> list[Path]:
    """A spread of real files: extension modules, vendored libraries, the system's."""
    found = sorted(p for p in SITE.glob("*/**/*.so*") if p.stat().st_size < MAX_BYTES)[::12]
    for folder in (Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib/aarch64-linux-gnu")):
        found += sorted(p for p in folder.glob("lib[a-m]*.so.*") if p.is_file() and p.stat().st_size < MAX_BYTES)[::16]
    return [path for path in found if path.open("rb").read(4) == b"\x7fELF"]


def assert_agrees(path: Path) -> None:
    ours, theirs = native(path), elf_oracle.read(path)
    assert not ours.get("partial"), ours
    for key, value in theirs.items():
        empty: Any = None if value is None else type(value)()
        assert ours.get(key, empty) == value, key


@pytest.mark.parametrize("path", real_libraries(), ids=str)
def test_agrees_with_pyelftools(path: Path) -> None:
    assert_agrees(path)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_width_and_byte_order(tmp_path: Path, bits: int, order: str) -> None:
    path = tmp_path / "libtoy.so"
    path.write_bytes(ToyElf(bits, order).build())
    assert_agrees(path)
    facts = native(path)
    assert facts["machine"] == ("ppc" if bits == 32 else "ppc64")
    assert facts["imports"] == ["wanted@NEED_1.0"]
    assert facts["exports"] == ["given"]
    assert facts["runpath"] == ["$ORIGIN/lib", "/opt/x"]
    assert facts["version_needs"] == {"libneeded.so.2": ["NEED_1.0"]}


@pytest.mark.parametrize("gnu_hash", [False, True])
@pytest.mark.parametrize("bits", [32, 64])
def test_symbols_are_counted_without_section_headers(tmp_path: Path, bits: int, gnu_hash: bool) -> None:
    path = tmp_path / "libtoy.so"
    path.write_bytes(ToyElf(bits, "<", sections=False, gnu_hash=gnu_hash).build())
    facts = native(path)
    assert (facts["imports"], facts["exports"]) == (["wanted@NEED_1.0"], ["given"])
    assert not facts.get("partial")


def test_versions_hidden_weak_and_default(tmp_path: Path) -> None:
    """Two versions of one name, a weak definition, a weak import, a hidden function."""
    gcc = require_program("gcc")
    (tmp_path / "a.c").write_text(
        '__asm__(".symver old,call@V1"); __asm__(".symver new,call@@V2");\n'
        "int old(void){return 1;} int new(void){return 2;}\n"
        "__attribute__((weak)) int soft(void){return 3;}\n"
        '__attribute__((visibility("hidden"))) int secret(void){return 4;}\n'
        "extern __attribute__((weak)) int maybe(void); extern int must(void);\n"
        "int use(void){return must() + (maybe ? maybe() : 0);}\n"
    )
    (tmp_path / "map").write_text("V1 { global: call; soft; use; local: *; };\nV2 { global: call; } V1;\n")
    command = [gcc, "-shared", "-fPIC", "-nostdlib", "-Wl,--version-script=map", "-Wl,-soname,liba.so.1"]
    subprocess.run([*command, "-o", "a.so", "a.c"], cwd=tmp_path, check=True)
    facts = native(tmp_path / "a.so")
    assert "call@@V2" in facts["exports"]
    assert "call@V1" in facts["exports"]
    assert facts["weak_exports"] == ["soft@@V1"]
    assert facts["imports"] == ["must"]
    assert facts["weak_imports"] == ["maybe"]
    assert facts["version_definitions"] == ["V1", "V2"]
    assert not any("secret" in name for name in facts["exports"])


def test_extension_modules_are_named_by_suffix_or_init_function(tmp_path: Path) -> None:
    source = next(p for p in SITE.glob("**/*.cpython-*.so") if p.stat().st_size < MAX_BYTES)
    facts = native(source)
    assert facts["extension_suffix"] == sysconfig.get_config_var("EXT_SUFFIX")
    module = source.name.split(".")[0]
    plain = tmp_path / f"{module}.so"
    shutil.copy(source, plain)
    assert native(plain)["extension_suffix"] == ".so"
    stable = tmp_path / f"{module}.abi3.so"
    shutil.copy(source, stable)
    assert (native(stable)["extension_suffix"], native(stable)["is_abi3"]) == (".abi3.so", True)


@pytest.mark.parametrize("keep", [0.02, 0.3, 0.7, 0.95])
def test_truncated_file_is_partial_and_says_where(tmp_path: Path, keep: float) -> None:
    source = next(p for p in SITE.glob("**/*.cpython-*.so") if p.stat().st_size > 20_000)
    data = source.read_bytes()
    path = tmp_path / source.name
    path.write_bytes(data[: int(len(data) * keep)])
    facts = native(path)
    assert facts["partial"] is True
    assert "truncated" in facts["problem"]


def test_what_is_no_elf_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(b"\x7fELF")
    assert native(path)["problem"] == "truncated: identification lies at 0+16 of 4 bytes"
    path.write_bytes(b"\x7fELF" + b"\x09" * 60)
    assert "not an ELF file" in native(path)["problem"]
