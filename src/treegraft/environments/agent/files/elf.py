"""Read what the dynamic loader would see in an ELF file: a file of any width and byte order, whole or damaged.

Knows no Python and no GPU. Every offset comes from the file and is checked against its size; sizes are bounded, so a
hostile file costs bounded time and memory and ends in `ElfProblem`, never in another exception.
Sources: the System V ABI (generic part) and the Linux Standard Base chapter on symbol versioning.
"""

from __future__ import annotations

import os
import struct
from typing import Any, Dict, List, NamedTuple, Tuple

MAX_TABLE_BYTES = 512 << 20
MAX_HEADERS = 100_000

MACHINES = {
    2: "sparc", 3: "i386", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64",
    190: "cuda", 224: "amdgpu", 243: "riscv", 258: "loongarch",
}  # fmt: skip
TYPES = {1: "relocatable", 2: "executable", 3: "shared", 4: "core"}
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
SHT_DYNSYM, SHT_NOBITS = 11, 8
DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_SONAME, DT_RPATH = (
    1,
    4,
    5,
    6,
    10,
    11,
    14,
    15,
)
DT_SYMBOLIC, DT_TEXTREL, DT_BIND_NOW, DT_RUNPATH, DT_FLAGS = 16, 22, 24, 29, 30
DT_GNU_HASH, DT_VERSYM, DT_FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFB
DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF


class ElfProblem(Exception):
    """The file is not what its headers say; the message says where."""


class Segment(NamedTuple):
    type: int
    offset: int
    address: int
    file_size: int


class Section(NamedTuple):
    name: str
    type: int
    offset: int
    address: int
    size: int


class ElfFile:
    """Headers, segments, sections and the dynamic table of an open file. Raises ElfProblem."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        ident = self.read(0, 16, "identification")
        if ident[:4] != b"\x7fELF" or ident[4] not in (1, 2) or ident[5] not in (1, 2):
            raise ElfProblem("not an ELF file: identification %s" % ident[:6].hex())
        self.bits = 32 if ident[4] == 1 else 64
        self.order = "<" if ident[5] == 1 else ">"
        layout = self.order + ("HHIIIIIHHHHHH" if self.bits == 32 else "HHIQQQIHHHHHH")
        fields = self.unpack(layout, 16, "header")
        self.type, self.machine_number = fields[0], fields[1]
        self.program_offset, self.section_offset, self.flags = fields[4:7]
        self._counts = fields[8:13]  # phentsize, phnum, shentsize, shnum, shstrndx
        self._segments: List[Segment] = []
        self._strings = b""

    @property
    def machine(self) -> str:
        return MACHINES.get(self.machine_number, "machine-%d" % self.machine_number)

    def read(self, offset: int, size: int, what: str) -> bytes:
        """Exactly `size` bytes at `offset`; raises ElfProblem when the file has fewer."""
        if size > MAX_TABLE_BYTES:
            raise ElfProblem("%s claims %d bytes, more than is read" % (what, size))
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ElfProblem("truncated: %s lies at %d+%d of %d bytes" % (what, offset, size, self.size))
        parts = []
        while size > 0:
            part = os.pread(self.fd, size, offset)
            if not part:
                raise ElfProblem("file became shorter while %s was read" % what)
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def unpack(self, layout: str, offset: int, what: str) -> Tuple[Any, ...]:
        return struct.unpack(layout, self.read(offset, struct.calcsize(layout), what))

    def read_segments(self) -> List[Segment]:
        entry_size, count = self._counts[0], self._counts[1]
        layout = self.order + ("IIIIIIII" if self.bits == 32 else "IIQQQQQQ")
        if count and entry_size < struct.calcsize(layout):
            raise ElfProblem("program header entries of %d bytes" % entry_size)
        table = self.read(self.program_offset, entry_size * count, "program headers") if count else b""
        self._segments = []
        for index in range(count):
            f = struct.unpack_from(layout, table, index * entry_size)
            if self.bits == 32:
                self._segments.append(Segment(f[0], f[1], f[2], f[4]))
            else:
                self._segments.append(Segment(f[0], f[2], f[3], f[5]))
        return self._segments

    def read_sections(self) -> List[Section]:
        """Sections with names; [] for a file stripped of its section headers."""
        entry_size, count, names_index = self._counts[2], self._counts[3], self._counts[4]
        if self.section_offset == 0:
            return []
        layout = self.order + ("IIIIIIIIII" if self.bits == 32 else "IIQQQQIIQQ")
        if entry_size < struct.calcsize(layout):
            raise ElfProblem("section header entries of %d bytes" % entry_size)
        first = self.unpack(layout, self.section_offset, "section header 0")
        count = count or first[5]  # more than 65,280 sections: the count is in the first one
        names_index = first[6] if names_index == 0xFFFF else names_index
        if count > MAX_HEADERS:
            raise ElfProblem("%d section headers, more than are read" % count)
        table = self.read(self.section_offset, entry_size * count, "section headers")
        rows = [struct.unpack_from(layout, table, index * entry_size) for index in range(count)]
        names = b""
        if names_index < count and rows[names_index][1] != SHT_NOBITS:
            names = self.read(rows[names_index][4], rows[names_index][5], "section names")
        return [Section(string_at(names, r[0]), r[1], r[4], r[3], r[5]) for r in rows]

    def offset_of(self, address: int, what: str) -> int:
        """File offset of a virtual address, through the loaded segments."""
        for segment in self._segments:
            if segment.type == PT_LOAD and segment.address <= address < segment.address + segment.file_size:
                return address - segment.address + segment.offset
        raise ElfProblem("%s at address %#x lies in no loaded segment" % (what, address))

    def read_dynamic(self) -> Dict[int, List[int]]:
        """Tag -> values in order; {} for a file without a dynamic segment. Reads the segments first."""
        segments = self.read_segments()
        tags: Dict[int, List[int]] = {}
        for segment in segments:
            if segment.type != PT_DYNAMIC:
                continue
            layout = self.order + ("iI" if self.bits == 32 else "qQ")
            step = struct.calcsize(layout)
            if segment.file_size // step > MAX_HEADERS:
                raise ElfProblem("dynamic segment of %d bytes, more than is read" % segment.file_size)
            data = self.read(segment.offset, segment.file_size // step * step, "dynamic segment")
            for tag, value in struct.iter_unpack(layout, data):
                if tag == 0:
                    break
                tags.setdefault(tag, []).append(value)
            break
        return tags

    def read_strings(self, tags: Dict[int, List[int]]) -> bytes:
        """The dynamic string table."""
        if DT_STRTAB not in tags:
            return b""
        offset = self.offset_of(tags[DT_STRTAB][0], "string table")
        return self.read(offset, tags.get(DT_STRSZ, [0])[0], "string table")


def string_at(table: bytes, offset: int) -> str:
    """The zero-terminated string at `offset`; "" outside the table, at most 64 KiB."""
    if offset >= len(table):
        return ""
    end = table.find(b"\0", offset, offset + 65536)
    return table[offset : end if end >= 0 else offset + 65536].decode("utf-8", "backslashreplace")
