"""What is known of one native file: frozen facts. Does not know how they are read (agent/files) or judged.

Symbols are strings: an import is `name` or `name@VERSION`; an export is `name`, `name@@VERSION` (the default
version) or `name@VERSION` (an old, hidden one, found only by who asks for that version).
"""

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the parts of an inventory."""


class GpuCode(Fact, frozen=True, kw_only=True):
    """One kind of device code in a file: a cubin runs on its own family only, PTX there and later."""

    kind: str  # cubin | ptx
    arch: str  # sm_86, sm_90a, sm_100f; compute_80, compute_90a for ptx
    count: int = 1


class NativeFile(Fact, frozen=True, kw_only=True):
    """An ELF file. `partial` files have a `problem` and may lack anything that comes after the path."""

    path: str
    owners: tuple[str, ...] = ()
    size: int
    mtime_ns: int
    machine: str = ""  # x86_64, aarch64, ...; "machine-N" for one we have no name for
    elf_class: int = 0  # 32 or 64
    elf_type: str = ""  # shared (also position-independent executables) | executable | relocatable | core
    little_endian: bool = True
    interpreter: str | None = None  # PT_INTERP, of executables
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()  # split at ':', $ORIGIN as written
    runpath: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()  # SYMBOLIC, NOW, NODEFLIB, NODELETE, PIE, TEXTREL
    version_needs: dict[str, tuple[str, ...]] = {}  # library file -> versions, strong
    weak_version_needs: dict[str, tuple[str, ...]] = {}  # versions needed by weak references only
    version_definitions: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()  # undefined symbols that must be found
    weak_imports: tuple[str, ...] = ()  # undefined weak ones: may stay unresolved
    exports: tuple[str, ...] = ()
    weak_exports: tuple[str, ...] = ()  # defined weak; the loader treats them as exports
    extension_suffix: str | None = None  # of Python extension modules: ".cpython-311-x86_64-linux-gnu.so", ".abi3.so"
    is_abi3: bool = False
    gpu_code: tuple[GpuCode, ...] = ()
    partial: bool = False
    problem: str = ""
