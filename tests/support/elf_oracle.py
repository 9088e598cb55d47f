"""What pyelftools reads in an ELF file, in the words of our own reader; and a writer of tiny ELF files of any width
and byte order, for compilers of the other kinds are rarely at hand."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

NAMES = ("soname", "needed", "rpath", "runpath", "version_needs", "weak_version_needs", "version_definitions")
SYMBOLS = ("imports", "weak_imports", "exports", "weak_exports")


def read(path: Path) -> dict[str, Any]:
    """The same keys as our reader gives for a file with sections."""
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        facts: dict[str, Any] = {
            "elf_class": elf.elfclass, "little_endian": elf.little_endian, "soname": None, "needed": [], "rpath": [],
            "runpath": [], "version_needs": {}, "weak_version_needs": {}, "version_definitions": [],
        }  # fmt: skip
        for segment in elf.iter_segments():
            if isinstance(segment, DynamicSegment):
                _read_dynamic(segment, facts)
        names = _read_versions(elf, facts)
        facts.update(_read_symbols(elf, names))
        return facts


def _read_dynamic(segment: DynamicSegment, facts: dict[str, Any]) -> None:
    for tag in segment.iter_tags():
        if tag.entry.d_tag == "DT_NEEDED":
            facts["needed"].append(tag.needed)
        elif tag.entry.d_tag == "DT_SONAME":
            facts["soname"] = tag.soname
        elif tag.entry.d_tag == "DT_RPATH":
            facts["rpath"] = [part for part in tag.rpath.split(":") if part]
        elif tag.entry.d_tag == "DT_RUNPATH":
            facts["runpath"] = [part for part in tag.runpath.split(":") if part]


def _read_versions(elf: ELFFile, facts: dict[str, Any]) -> dict[str, dict[int, str]]:
    names: dict[str, dict[int, str]] = {"needed": {}, "defined": {}}
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for need, versions in section.iter_versions():
                for version in versions:
                    key = "weak_version_needs" if version["vna_flags"] & 2 else "version_needs"
                    facts[key].setdefault(need.name, []).append(version.name)
                    names["needed"][version["vna_other"] & 0x7FFF] = version.name
        elif isinstance(section, GNUVerDefSection):
            for definition, versions in section.iter_versions():
                name = next(iter(versions)).name
                if not definition["vd_flags"] & 1:
                    facts["version_definitions"].append(name)
                    names["defined"][definition["vd_ndx"] & 0x7FFF] = name
    return names


def _read_symbols(elf: ELFFile, names: dict[str, dict[int, str]]) -> dict[str, list[str]]:
    table = elf.get_section_by_name(".dynsym")
    versym = elf.get_section_by_name(".gnu.version")
    found: dict[str, set[str]] = {key: set() for key in SYMBOLS}
    for index, symbol in enumerate(table.iter_symbols() if isinstance(table, SymbolTableSection) else ()):
        bind, kind, visibility = symbol["st_info"]["bind"], symbol["st_info"]["type"], symbol["st_other"]["visibility"]
        if bind == "STB_LOCAL" or not symbol.name:
            continue
        mark = _mark(versym, index)
        is_weak = bind == "STB_WEAK"
        if symbol["st_shndx"] == "SHN_UNDEF":
            version = names["needed"].get(mark & 0x7FFF)
            found["weak_imports" if is_weak else "imports"].add(symbol.name + (f"@{version}" if version else ""))
            continue
        is_absolute = symbol["st_shndx"] == "SHN_ABS"
        if visibility in ("STV_HIDDEN", "STV_INTERNAL") or kind in ("STT_SECTION", "STT_FILE") or mark == 0:
            continue
        if symbol["st_value"] == 0 and not is_absolute and kind != "STT_TLS":
            continue
        version = names["defined"].get(mark & 0x7FFF)
        if is_absolute and symbol.name == version:
            continue
        joint = "@" if mark & 0x8000 else "@@"
        found["weak_exports" if is_weak else "exports"].add(symbol.name + (joint + version if version else ""))
    return {key: sorted(values) for key, values in found.items()}


def _mark(versym: Any, index: int) -> int:
    """The raw number of .gnu.version, which pyelftools shows as a name for 0 and 1."""
    if not isinstance(versym, GNUVerSymSection):
        return 1
    number = versym.get_symbol(index)["ndx"]
    return {"VER_NDX_LOCAL": 0, "VER_NDX_GLOBAL": 1}.get(number, number)


@dataclass(frozen=True)
class ToyElf:
    """A shared library with a dynamic table, one needed library with one version, one import and one export.

    sections: with section headers, else the reader must count symbols by the hash table.
    """

    bits: int
    order: str  # "<" or ">"
    sections: bool = True
    gnu_hash: bool = False

    def build(self) -> bytes:
        strings = b"\0libtoy.so.1\0libneeded.so.2\0NEED_1.0\0wanted\0given\0$ORIGIN/lib:/opt/x\0"
        at = {text: strings.index(text.encode()) for text in ("libtoy", "libneeded", "NEED", "wanted", "given", "$OR")}
        word, long = ("I", 4) if self.bits == 32 else ("Q", 8)
        symbols = self._symbol(0, 0, 0, 0) + self._symbol(at["wanted"], 0x10, 0, 0)
        symbols += self._symbol(at["given"], 0x12, 7, 0x40)
        versym = struct.pack(self.order + "HHH", 0, 2, 1)
        verneed = struct.pack(self.order + "HHIII", 1, 1, at["libneeded"], 16, 0)
        verneed += struct.pack(self.order + "IHHII", 0x0B0B0B0B, 0, 2, at["NEED"], 0)
        if self.gnu_hash:  # one bucket, the first exported symbol is number 2, one chain value that ends
            hashes = struct.pack(self.order + "IIII", 1, 2, 1, 0) + b"\xff" * long
            hashes += struct.pack(self.order + "II", 2, 0x55555555 | 1)
        else:
            hashes = struct.pack(self.order + "IIIIII", 1, 3, 2, 0, 0, 0)
        blocks, place, places = b"", 0x400, []
        for block in (strings, symbols, versym, verneed, hashes):
            places.append(place + len(blocks))
            blocks += block + b"\0" * (-len(block) % 16)
        tags = [
            (1, at["libneeded"]), (14, at["libtoy"]), (29, at["$OR"]), (5, places[0]), (10, len(strings)),
            (6, places[1]), (11, len(symbols) // 3), (0x6FFFFFF0, places[2]), (0x6FFFFFFE, places[3]), (0x6FFFFFFF, 1),
            (0x6FFFFEF5 if self.gnu_hash else 4, places[4]), (0, 0),
        ]  # fmt: skip
        dynamic_at = place + len(blocks)
        dynamic = b"".join(struct.pack(self.order + word + word, tag, value) for tag, value in tags)
        end = dynamic_at + len(dynamic)
        headers = self._headers(end if self.sections else 0)
        head = headers + self._segment(1, 0, end) + self._segment(2, dynamic_at, len(dynamic))
        data = head + b"\0" * (place - len(head)) + blocks + dynamic
        if not self.sections:
            return data
        rows = [(0, 0, 0, 0, 0, 0), (3, places[0], len(strings), 0, 0, 1), (11, places[1], len(symbols), 1, 1, 8)]
        rows += [(0x6FFFFFFF, places[2], 6, 2, 0, 2), (0x6FFFFFFE, places[3], len(verneed), 1, 1, 8)]
        rows += [(6, dynamic_at, len(dynamic), 1, 0, 8)]
        names = b"\0.dynstr\0.dynsym\0.gnu.version\0.gnu.version_r\0.dynamic\0.shstrtab\0"
        rows += [(3, end + 7 * (40 if self.bits == 32 else 64), len(names), 0, 0, 1)]
        starts = [0, *(names.index(n) for n in (b".dynstr", b".dynsym", b".gnu.version\0"))]
        starts += [names.index(n) for n in (b".gnu.version_r", b".dynamic", b".shstrtab")]
        table = b"".join(self._section(start, *row) for start, row in zip(starts, rows, strict=True))
        return data + table + names

    def _headers(self, sections_at: int) -> bytes:
        ident = bytes([0x7F, 0x45, 0x4C, 0x46, self.bits // 32, 1 if self.order == "<" else 2, 1]).ljust(16, b"\0")
        machine = 20 if self.bits == 32 else 21  # PowerPC exists in all four kinds
        size, phent, shent = (52, 32, 40) if self.bits == 32 else (64, 56, 64)
        word = "III" if self.bits == 32 else "QQQ"
        count = 7 if sections_at else 0
        fields = (3, machine, 1, 0, size, sections_at, 0, size, phent, 2, shent, count, count - 1 if count else 0)
        return ident + struct.pack(self.order + "HHI" + word + "IHHHHHH", *fields)

    def _segment(self, kind: int, offset: int, size: int) -> bytes:
        if self.bits == 32:
            return struct.pack(self.order + "IIIIIIII", kind, offset, offset, offset, size, size, 4, 4096)
        return struct.pack(self.order + "IIQQQQQQ", kind, 4, offset, offset, offset, size, size, 4096)

    def _symbol(self, name: int, info: int, section: int, value: int) -> bytes:
        if self.bits == 32:
            return struct.pack(self.order + "IIIBBH", name, value, 0, info, 0, section)
        return struct.pack(self.order + "IBBHQQ", name, info, 0, section, value, 0)

    def _section(self, name: int, kind: int, offset: int, size: int, link: int, info: int, entry: int) -> bytes:
        layout = "IIIIIIIIII" if self.bits == 32 else "IIQQQQIIQQ"
        entry = {11: 16 if self.bits == 32 else 24, 6: 8 if self.bits == 32 else 16, 0x6FFFFFFF: 2}.get(kind, 0)
        return struct.pack(self.order + layout, name, kind, 2, offset, offset, size, link, info, 4, entry)
