"""Dynamic symbols and their versions, as the loader matches them.

Knows the tables, not which library would satisfy a symbol.

    versym[i]    0 local, 1 global (no version), n: entry n of verneed (undefined) or verdef (defined); bit 15: hidden
    verneed      library file -> versions it must define; flag 2: needed by weak references only
    verdef       versions this file defines; flag 1: the file's own name, not a version
"""

from __future__ import annotations

import array
import struct
import sys
from typing import Dict, List, NamedTuple, Tuple

from .elf import (
    DT_GNU_HASH,
    DT_HASH,
    DT_SYMTAB,
    DT_VERDEF,
    DT_VERDEFNUM,
    DT_VERNEED,
    DT_VERNEEDNUM,
    DT_VERSYM,
    SHT_DYNSYM,
    ElfFile,
    ElfProblem,
    Section,
    string_at,
)

MAX_SYMBOLS = 4_000_000
MAX_NAME_BYTES = 256 << 20
MAX_VERSIONS = 32768
STB_GLOBAL, STB_WEAK, STB_GNU_UNIQUE = 1, 2, 10
STT_SECTION, STT_FILE, STT_TLS = 3, 4, 6
SHN_ABS = 0xFFF1
Tags = Dict[int, List[int]]


class Versions(NamedTuple):
    needs: Dict[str, List[str]]
    weak_needs: Dict[str, List[str]]
    definitions: List[str]
    needed_names: Dict[int, str]  # versym index -> version
    defined_names: Dict[int, str]


class Symbols(NamedTuple):
    imports: List[str]
    weak_imports: List[str]
    exports: List[str]
    weak_exports: List[str]


def read_versions(elf: ElfFile, tags: Tags, strings: bytes) -> Versions:
    versions = Versions({}, {}, [], {}, {})
    if DT_VERNEED in tags:
        _read_needs(elf, tags, strings, versions)
    if DT_VERDEF in tags:
        _read_definitions(elf, tags, strings, versions)
    return versions


def _read_needs(elf: ElfFile, tags: Tags, strings: bytes, versions: Versions) -> None:
    offset = elf.offset_of(tags[DT_VERNEED][0], "version needs")
    budget = MAX_VERSIONS
    for _ in range(min(tags.get(DT_VERNEEDNUM, [0])[0], MAX_VERSIONS)):
        _, count, file_name, first, step = elf.unpack(elf.order + "HHIII", offset, "version need")
        library = string_at(strings, file_name)
        inner = offset + first
        for _ in range(count):
            budget -= 1
            if budget < 0:
                raise ElfProblem("more than %d needed versions" % MAX_VERSIONS)
            _, flags, index, name_offset, inner_step = elf.unpack(elf.order + "IHHII", inner, "needed version")
            name = string_at(strings, name_offset)
            (versions.weak_needs if flags & 2 else versions.needs).setdefault(library, []).append(name)
            versions.needed_names[index & 0x7FFF] = name
            if inner_step == 0:
                break
            inner += inner_step
        if step == 0:
            break
        offset += step


def _read_definitions(elf: ElfFile, tags: Tags, strings: bytes, versions: Versions) -> None:
    offset = elf.offset_of(tags[DT_VERDEF][0], "version definitions")
    for _ in range(min(tags.get(DT_VERDEFNUM, [0])[0], MAX_VERSIONS)):
        _, flags, index, _, _, first, step = elf.unpack(elf.order + "HHHHIII", offset, "version definition")
        name_offset, _ = elf.unpack(elf.order + "II", offset + first, "version name")
        name = string_at(strings, name_offset)
        if not flags & 1:
            versions.definitions.append(name)
            versions.defined_names[index & 0x7FFF] = name
        if step == 0:
            break
        offset += step


def _count_symbols(elf: ElfFile, tags: Tags, sections: List[Section], entry_bytes: int) -> int:
    """Number of dynamic symbols. The loader never needs it, so it stands nowhere plainly: the section header says
    it; else the old hash table's chain count; else the last chain of the GNU hash table ends at the last symbol."""
    for section in sections:
        if section.type == SHT_DYNSYM and section.address == tags[DT_SYMTAB][0]:
            return section.size // entry_bytes
    if DT_HASH in tags:
        return int(elf.unpack(elf.order + "II", elf.offset_of(tags[DT_HASH][0], "hash table"), "hash table")[1])
    if DT_GNU_HASH not in tags:
        return 0
    offset = elf.offset_of(tags[DT_GNU_HASH][0], "GNU hash table")
    num_buckets, first, bloom_words, _ = elf.unpack(elf.order + "IIII", offset, "GNU hash table")
    buckets_at = offset + 16 + bloom_words * (elf.bits // 8)
    buckets = elf.read(buckets_at, 4 * num_buckets, "GNU hash buckets")
    last = max((bucket for (bucket,) in struct.iter_unpack(elf.order + "I", buckets)), default=0)
    if last < first:
        return int(first)
    chain_at = buckets_at + 4 * num_buckets
    while last < MAX_SYMBOLS:
        (value,) = elf.unpack(elf.order + "I", chain_at + 4 * (last - first), "GNU hash chain")
        last += 1
        if value & 1:
            break
    return int(last)


def _read_versym(elf: ElfFile, tags: Tags, count: int) -> "array.array[int]":
    indices = array.array("H")
    if DT_VERSYM in tags:
        offset = elf.offset_of(tags[DT_VERSYM][0], "symbol versions")
        indices.frombytes(elf.read(offset, 2 * count, "symbol versions"))
        if (elf.order == "<") != (sys.byteorder == "little"):
            indices.byteswap()
    return indices


def read_symbols(elf: ElfFile, tags: Tags, sections: List[Section], strings: bytes, versions: Versions) -> Symbols:
    """Names with versions, each list sorted and free of repeats. Raises ElfProblem."""
    if DT_SYMTAB not in tags:
        return Symbols([], [], [], [])
    layout = elf.order + ("IIIBBH" if elf.bits == 32 else "IBBHQQ")
    entry_bytes = struct.calcsize(layout)
    count = _count_symbols(elf, tags, sections, entry_bytes)
    if count > MAX_SYMBOLS:
        raise ElfProblem("%d dynamic symbols, more than are read" % count)
    table = elf.read(elf.offset_of(tags[DT_SYMTAB][0], "symbol table"), entry_bytes * count, "symbol table")
    versym = _read_versym(elf, tags, count)
    rows = struct.iter_unpack(layout, table)
    if elf.bits == 32:
        rows = ((n, i, o, x, v, s) for n, v, s, i, o, x in rows)
    return _sort_symbols(rows, versym, strings, versions)


def _sort_symbols(rows: "object", versym: "array.array[int]", strings: bytes, versions: Versions) -> Symbols:
    imports: List[str] = []
    weak_imports: List[str] = []
    exports: List[str] = []
    weak_exports: List[str] = []
    needed, defined = versions.needed_names, versions.defined_names
    find, num_versym, budget = strings.find, len(versym), MAX_NAME_BYTES
    for index, (name_at, info, other, section, value, _size) in enumerate(rows):  # type: ignore[var-annotated,arg-type]
        bind = info >> 4
        if bind not in (STB_GLOBAL, STB_WEAK, STB_GNU_UNIQUE):
            continue
        end = find(b"\0", name_at)
        raw = strings[name_at : end if end >= 0 else len(strings)]
        budget -= len(raw)
        if budget < 0:
            raise ElfProblem("symbol names of more than %d bytes" % MAX_NAME_BYTES)
        name = raw.decode("utf-8", "backslashreplace")
        if not name:
            continue
        mark = versym[index] if index < num_versym else 1
        number = mark & 0x7FFF
        if section == 0:
            version = needed.get(number, "")
            (weak_imports if bind == STB_WEAK else imports).append(name + "@" + version if version else name)
            continue
        kind = info & 15
        if other & 3 in (1, 2) or kind in (STT_SECTION, STT_FILE) or (number == 0 and num_versym):
            continue  # hidden, or local to the file
        if value == 0 and section != SHN_ABS and kind != STT_TLS:
            continue  # the loader takes such a definition for none
        version = defined.get(number, "")
        if section == SHN_ABS and name == version:
            continue  # the version's own marker
        if version:
            name += ("@" if mark & 0x8000 else "@@") + version
        (weak_exports if bind == STB_WEAK else exports).append(name)
    lists: Tuple[List[str], ...] = (imports, weak_imports, exports, weak_exports)
    return Symbols(*(sorted(set(names)) for names in lists))
