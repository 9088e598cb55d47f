"""One file's native facts as a plain dict, shaped like inventory.NativeFile. Knows no owner and no package."""

from __future__ import annotations

import re
from typing import Any, Dict, List

from .elf import (
    DT_BIND_NOW,
    DT_FLAGS,
    DT_FLAGS_1,
    DT_NEEDED,
    DT_RPATH,
    DT_RUNPATH,
    DT_SONAME,
    DT_SYMBOLIC,
    DT_TEXTREL,
    PT_INTERP,
    PT_LOAD,
    TYPES,
    ElfFile,
    ElfProblem,
    Section,
    string_at,
)
from .fatbin import read_gpu_code
from .symbols import read_symbols, read_versions

_SUFFIX = re.compile(r"(\.(?:abi3t?|cpython-\d+[a-z]*-[A-Za-z0-9_.-]+?|cp\d+-[A-Za-z0-9_.-]+?|pypy[^/]*?)\.so)$")


def read_native(fd: int, size: int, path: str) -> Dict[str, Any]:
    """Facts of an open ELF file; a damaged one gives what could be read, `partial` and the `problem`."""
    facts: Dict[str, Any] = {"path": path}
    problems: List[str] = []
    try:
        elf = ElfFile(fd, size)
        facts.update(
            machine=elf.machine,
            elf_class=elf.bits,
            elf_type=TYPES.get(elf.type, "type-%d" % elf.type),
            little_endian=elf.order == "<",
        )
    except ElfProblem as problem:
        return dict(facts, partial=True, problem=str(problem))
    sections: List[Section] = []
    try:
        sections = elf.read_sections()
    except ElfProblem as problem:
        problems.append(str(problem))
    for step in (_read_gpu, _read_dynamic):
        try:
            step(elf, sections, facts)
        except ElfProblem as problem:
            problems.append(str(problem))
    _name_extension(path, facts)
    if problems:
        facts.update(partial=True, problem="; ".join(problems))
    return facts


def _read_gpu(elf: ElfFile, sections: List[Section], facts: Dict[str, Any]) -> None:
    facts["gpu_code"] = read_gpu_code(elf, sections)


def _read_dynamic(elf: ElfFile, sections: List[Section], facts: Dict[str, Any]) -> None:
    tags = elf.read_dynamic()
    for segment in elf.read_segments():
        if segment.type == PT_INTERP and segment.file_size <= 4096:
            facts["interpreter"] = string_at(elf.read(segment.offset, segment.file_size, "interpreter"), 0)
    if not tags:
        return
    facts["flags"] = _flags(tags)
    strings = elf.read_strings(tags)
    facts["needed"] = [string_at(strings, at) for at in tags.get(DT_NEEDED, [])]
    if DT_SONAME in tags:
        facts["soname"] = string_at(strings, tags[DT_SONAME][0])
    for key, tag in (("rpath", DT_RPATH), ("runpath", DT_RUNPATH)):
        if tag in tags:
            facts[key] = [part for part in string_at(strings, tags[tag][0]).split(":") if part]
    versions = read_versions(elf, tags, strings)
    facts.update(
        version_needs=versions.needs,
        weak_version_needs=versions.weak_needs,
        version_definitions=versions.definitions,
    )
    symbols = read_symbols(elf, tags, sections, strings, versions)
    facts.update(symbols._asdict())
    for segment in elf.read_segments():
        if segment.type == PT_LOAD and segment.offset + segment.file_size > elf.size:
            raise ElfProblem("truncated: a loaded segment ends after the file's %d bytes" % elf.size)


def _flags(tags: Dict[int, List[int]]) -> List[str]:
    flags, flags_1 = tags.get(DT_FLAGS, [0])[0], tags.get(DT_FLAGS_1, [0])[0]
    named = {
        "SYMBOLIC": flags & 2 or DT_SYMBOLIC in tags,
        "TEXTREL": flags & 4 or DT_TEXTREL in tags,
        "NOW": flags & 8 or flags_1 & 1 or DT_BIND_NOW in tags,
        "NODELETE": flags_1 & 8,
        "NODEFLIB": flags_1 & 0x800,
        "PIE": flags_1 & 0x08000000,
    }
    return [name for name, is_set in named.items() if is_set]


def _name_extension(path: str, facts: Dict[str, Any]) -> None:
    """A Python extension module is told by its suffix, or by its PyInit_ function when the suffix is plain .so."""
    match = _SUFFIX.search(path)
    if match:
        facts["extension_suffix"] = match.group(1)
        facts["is_abi3"] = match.group(1).startswith(".abi3")
    elif path.endswith(".so"):
        module = path.rsplit("/", 1)[-1][:-3]
        wanted = {"PyInit_" + module, "PyInitU_" + module}
        if any(name.split("@", 1)[0] in wanted for name in facts.get("exports", [])):
            facts["extension_suffix"] = ".so"
