"""Tiny shared libraries and Python extensions, compiled by the system's gcc and cached by what they are made of.

Knows the compiler's command line; does not know wheels or environments. A cached file is never handed out for
writing: `Native` carries its bytes.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Native:
    """A compiled file. `link_name`: how the linker is to know it (its SONAME or file name)."""

    link_name: str
    data: bytes
    cached: Path


@dataclass(frozen=True)
class Link:
    """How a file is linked.

    needs: libraries of ours it names as NEEDED, in order. rpath: `old_rpath` chooses DT_RPATH over DT_RUNPATH.
    version_script: text of a linker version script. flags: further linker flags.
    """

    soname: str | None = None
    needs: Sequence[Native] = ()
    rpath: str | None = None
    old_rpath: bool = False
    version_script: str | None = None
    cplusplus: bool = False
    flags: tuple[str, ...] = ()


@dataclass
class Compiler:
    """`cache` is kept between runs; objects are keyed by a hash of source, flags and the libraries linked."""

    cache: Path
    includes: Mapping[str, str] = field(default_factory=dict)  # "3.11" -> folder of Python.h

    def library(self, source: str, link: Link) -> Native:
        """A shared library; undefined symbols are allowed, as in wheels."""
        return self._compile(source, link, (), link.soname or "lib.so")

    def extension(self, module: str, source: str, link: Link, include: str, defines: Sequence[str] = ()) -> Native:
        """An extension module whose init function is for `module` (last part of the dotted name)."""
        flags = (f"-I{include}", f"-DMODULE={module}", *defines)
        return self._compile(EXTENSION_HEAD + source + EXTENSION_TAIL, link, flags, f"{module}.so")

    def _compile(self, source: str, link: Link, flags: Sequence[str], link_name: str) -> Native:
        key = hashlib.sha256(
            json.dumps(
                [
                    source, link.soname, [hashlib.sha256(n.data).hexdigest() for n in link.needs], link.rpath,
                    link.old_rpath, link.version_script, link.cplusplus, link.flags, list(flags), link_name,
                ]
            ).encode()
        ).hexdigest()  # fmt: skip
        folder = self.cache / key[:2] / key
        target = folder / link_name
        if not target.exists():
            self.cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.cache) as work:
                _run_compiler(Path(work), source, link, flags, Path(work) / "out" / link_name)
                folder.parent.mkdir(exist_ok=True)
                try:
                    os.rename(Path(work) / "out", folder)
                except OSError:  # somebody else was first
                    assert target.exists()
        return Native(link_name, target.read_bytes(), target)


def _run_compiler(work: Path, source: str, link: Link, flags: Sequence[str], output: Path) -> None:
    output.parent.mkdir()
    name = work / ("source.cc" if link.cplusplus else "source.c")
    name.write_text(source)
    command = ["g++" if link.cplusplus else "gcc", "-shared", "-fPIC", "-O0", "-w", "-s", "-pipe", *flags]
    command += ["-o", str(output), str(name), "-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed"]
    if link.soname:
        command.append(f"-Wl,-soname,{link.soname}")
    if link.rpath:
        tags = "--disable-new-dtags" if link.old_rpath else "--enable-new-dtags"
        command.append(f"-Wl,{tags},-rpath,{link.rpath}")
    if link.version_script:
        (work / "versions.map").write_text(link.version_script)
        command.append(f"-Wl,--version-script,{work / 'versions.map'}")
    for number, native in enumerate(link.needs):
        folder = work / f"need{number}"
        folder.mkdir()
        shutil.copyfile(native.cached, folder / native.link_name)
        command.append(str(folder / native.link_name))
    command += link.flags
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{source}\n{done.stderr}"


EXTENSION_HEAD = """
#include <Python.h>
#ifdef __cplusplus
#define C_FUNCTION extern "C"
#else
#define C_FUNCTION
#endif
#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)
#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)
"""

EXTENSION_TAIL = """
static struct PyModuleDef module_definition = {PyModuleDef_HEAD_INIT, TEXT(MODULE), 0, -1, 0, 0, 0, 0, 0};
PyMODINIT_FUNC PASTE(PyInit_, MODULE)(void) { return PyModule_Create(&module_definition); }
"""


# ---- damage: what a compiler does not make


def with_machine(data: bytes, machine: int) -> bytes:
    """The ELF with another e_machine (183 aarch64, 62 x86-64)."""
    return data[:18] + machine.to_bytes(2, "little") + data[20:]


def with_elf_class(data: bytes, elf_class: int) -> bytes:
    """The ELF with another EI_CLASS byte (1: 32 bit, 2: 64 bit)."""
    return data[:4] + bytes([elf_class]) + data[5:]


def truncated(data: bytes, keep: float) -> bytes:
    return data[: int(len(data) * keep)]
