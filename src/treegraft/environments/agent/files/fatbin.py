"""Which GPU architectures a file carries code for, from the headers of its fat binaries. Decompresses nothing.

    section .nv_fatbin / __nv_relfatbin = containers, aligned to 8:
      container  u32 magic BA55ED50, u16 version, u16 header bytes, u64 bytes of entries
      entry      u16 kind (1 PTX, 2 cubin), u16 version, u32 header bytes, u64 payload bytes (as stored), ...,
                 at 28 u32 architecture (86, 90, 120), at 40 u64 flags
      flags      bit 20: architecture-specific (sm_90a); bit 21: family-specific (sm_100f); 13, 15: compressed

The layout was worked out from nvcc's output and agrees with cuobjdump on the files of tests/machines/fatbins.
"""

from __future__ import annotations

import struct
from typing import Dict, Iterator, List, Tuple

from .elf import ElfFile, ElfProblem, Section

SECTION_NAMES = (".nv_fatbin", "__nv_relfatbin")
MAGIC = 0xBA55ED50
MAGIC_BYTES = struct.pack("<I", MAGIC)
KIND_PTX, KIND_CUBIN = 1, 2
FLAG_ARCH_SPECIFIC, FLAG_FAMILY = 1 << 20, 1 << 21
MAX_ENTRIES = 2_000_000
MAX_SCAN_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
EM_CUDA = 190


def read_gpu_code(elf: ElfFile, sections: List[Section]) -> List[Dict[str, object]]:
    """[{kind, arch, count}] sorted by kind and architecture. Raises ElfProblem."""
    counts: Dict[Tuple[str, str], int] = {}
    if elf.machine_number == EM_CUDA:
        counts[("cubin", "sm_%d" % _arch_of_cubin(elf.flags))] = 1
    for section in sections:
        if section.name in SECTION_NAMES:
            for entry in _entries(elf, section):
                counts[entry] = counts.get(entry, 0) + 1
                if sum(counts.values()) > MAX_ENTRIES:
                    raise ElfProblem("more than %d device code entries" % MAX_ENTRIES)
    rows = sorted(counts.items(), key=lambda row: (row[0][0], _number(row[0][1]), row[0][1]))
    return [{"kind": kind, "arch": arch, "count": count} for (kind, arch), count in rows]


def _number(arch: str) -> int:
    digits = "".join(c for c in arch if c.isdigit())
    return int(digits or 0)


def _arch_of_cubin(flags: int) -> int:
    """Bits 8-15 hold the architecture in files of CUDA 13 and later, bits 0-7 before."""
    return (flags >> 8) & 0xFF if flags & 0xFF < 20 else flags & 0xFF


def _entries(elf: ElfFile, section: Section) -> Iterator[Tuple[str, str]]:
    offset, end = section.offset, section.offset + section.size
    if end > elf.size:
        raise ElfProblem("truncated: section %s ends at %d of %d bytes" % (section.name, end, elf.size))
    scanned = 0
    while offset + 16 <= end:
        magic, _version, header, size = elf.unpack("<IHHQ", offset, "fat binary header")
        if magic != MAGIC or header < 16:
            found = _next_magic(elf, offset + 4, end)
            scanned += found - offset
            if scanned > MAX_SCAN_BYTES:
                raise ElfProblem("%s holds %d bytes that are no fat binary" % (section.name, scanned))
            offset = found
            continue
        stop = offset + header + size
        if stop > end:
            raise ElfProblem("fat binary at %d ends beyond its section" % offset)
        for entry in _container(elf, offset + header, stop):
            yield entry
        offset = (stop + 7) & ~7


def _container(elf: ElfFile, offset: int, stop: int) -> Iterator[Tuple[str, str]]:
    while offset + 48 <= stop:
        kind, _version, header, payload = elf.unpack("<HHIQ", offset, "device code header")
        (arch,) = elf.unpack("<I", offset + 28, "device code architecture")
        (flags,) = elf.unpack("<Q", offset + 40, "device code flags")
        if header < 48 or offset + header + payload > stop:
            raise ElfProblem("device code entry at %d has sizes %d+%d" % (offset, header, payload))
        suffix = "a" if flags & FLAG_ARCH_SPECIFIC else "f" if flags & FLAG_FAMILY else ""
        if kind == KIND_CUBIN:
            yield "cubin", "sm_%d%s" % (arch, suffix)
        elif kind == KIND_PTX:
            yield "ptx", "compute_%d%s" % (arch, suffix)
        offset += header + payload


def _next_magic(elf: ElfFile, offset: int, end: int) -> int:
    """Offset of the next magic number at or after `offset`, or `end`."""
    limit = min(end, offset + MAX_SCAN_BYTES + CHUNK_BYTES)
    while offset < limit:
        chunk = elf.read(offset, min(CHUNK_BYTES, end - offset), "device code section")
        at = chunk.find(MAGIC_BYTES)
        if at >= 0:
            return offset + at
        if len(chunk) < CHUNK_BYTES:
            return end
        offset += len(chunk) - 3
    return min(offset, end)
