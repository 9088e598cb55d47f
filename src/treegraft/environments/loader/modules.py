"""Which file a module name leads to in a World, as Python's path finder decides. Knows nothing of what it loads."""

import posixpath
import sys
from dataclasses import dataclass
from typing import Literal

from treegraft.environments.inventory import System
from treegraft.environments.loader.world import World
from treegraft.environments.rules.tables import StdlibModule, table

Kind = Literal["package", "source", "extension", "namespace", "outside"]


@dataclass(frozen=True)
class Module:
    """path: relative to the prefix; a folder for a namespace package, "" for what lies outside (standard library)."""

    name: str
    kind: Kind
    path: str


class Modules:
    """Module index of a World's site-packages.

    `is_open`: modules may come from places that were not probed (editables, .pth lines, system site-packages), so
    that a name that is not found is not known to be missing.
    """

    def __init__(self, world: World) -> None:
        python = world.python
        self.roots = tuple(r for r in python.site_packages if not r.startswith("/"))
        self._version = _minor(python.version)
        self._standard = {row.module: row for row in table("stdlib_modules", StdlibModule)}
        own = python.extension_suffix or _usual_suffix(self._version, world.host.system)
        self.suffixes = tuple(dict.fromkeys(s for s in (own, ".abi3.so", ".so") if s))
        if python.is_free_threaded:
            self.suffixes = tuple(s for s in self.suffixes if s != ".abi3.so")
        self._paths = {entry.path for entry in world.files}
        self._folders = {folder for path in self._paths for folder in _parents(path)}
        self._missing = {path for dist in world.dists for path in dist.missing}
        self._native_by_folder: dict[str, list[str]] = {}
        for file in world.native:
            folder, name = posixpath.split(file.path)
            self._native_by_folder.setdefault(folder, []).append(name)
        environment = world.inventory.environment if world.inventory is not None else None
        outside = environment is not None and any(
            p.outside_paths or p.path.rpartition("/")[2].startswith("__editable__") for p in environment.pth_files
        )
        editable = any(d.origin.kind == "editable" for d in world.dists)
        self.is_open = outside or editable or python.includes_system_site or world.partial or not self.roots

    def find(self, name: str) -> Module | None:
        """The module's file, first site-packages root first; None when there is none."""
        if self._is_standard(name.partition(".")[0]):
            return Module(name, "outside", "")
        tail = name.replace(".", "/")
        namespace = None
        for root in self.roots:
            base = f"{root}/{tail}"
            for suffix in (*self.suffixes, ".py"):
                path = f"{base}/__init__{suffix}"
                if path in self._paths:
                    return Module(name, "package" if suffix == ".py" else "extension", path)
            for suffix in (*self.suffixes, ".py"):
                if base + suffix in self._paths:
                    return Module(name, "source" if suffix == ".py" else "extension", base + suffix)
            if namespace is None and base in self._folders:
                namespace = Module(name, "namespace", base)
        return namespace

    def _is_standard(self, top: str) -> bool:
        """Whether the standard library has it, or what setuptools puts in its place."""
        row = self._standard.get(top)
        if row is None:
            return top in sys.stdlib_module_names
        is_there = _minor(row.since or "") <= self._version and (not row.until or self._version < _minor(row.until))
        stand_in = top == "distutils" and any(f"{r}/distutils-precedence.pth" in self._paths for r in self.roots)
        return is_there or stand_in or not self._version

    def name_of(self, path: str) -> str | None:
        """Dotted name of an extension's file, whatever its suffix; None outside of site-packages."""
        for root in self.roots:
            if path.startswith(root + "/"):
                folder, file = posixpath.split(path[len(root) + 1 :])
                stem = file.partition(".")[0]
                parts = [*(folder.split("/") if folder else []), *([] if stem == "__init__" else [stem])]
                return ".".join(parts) if all(part.isidentifier() for part in parts) else None
        return None

    def unusable_variants(self, name: str) -> list[str]:
        """Extension files of this module that this interpreter passes over because of their suffix."""
        folder, _, stem = name.replace(".", "/").rpartition("/")
        found = []
        for root in self.roots:
            where = f"{root}/{folder}" if folder else root
            for file in self._native_by_folder.get(where, []):
                if file.partition(".")[0] == stem and file[len(stem) :] not in self.suffixes:
                    found.append(f"{where}/{file}")
        return found

    def missing_files(self, name: str) -> list[str]:
        """Files of this module that a RECORD lists and that are gone."""
        tail = name.replace(".", "/")
        bases = {f"{root}/{tail}" for root in self.roots}
        return sorted(
            path
            for path in self._missing
            if any(path in (b + ".py", b + "/__init__.py") or path.startswith(b + ".") for b in bases)
            and not path.endswith(".pyi")
        )

    def library_files(self, tail: str, near: str) -> list[str]:
        """Native files (or links) whose path ends with `tail`; those nearest to the file `near` first."""
        from fnmatch import fnmatchcase

        pattern = "*/" + tail.lstrip("/")
        found = [p for p in self._paths if ".so" in p and fnmatchcase("/" + p, pattern)]
        return sorted(found, key=lambda p: (-len(posixpath.commonpath([p, near])), p))

    def missing_library(self, tail: str) -> list[str]:
        """Files of a RECORD that are gone and end with `tail`."""
        return sorted(p for p in self._missing if ("/" + p).endswith("/" + tail.lstrip("/")))


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _minor(version: str) -> tuple[int, ...]:
    """(3, 11) of `3.11.7`; () of what is no version."""
    parts = version.split(".")[:2]
    return tuple(int(p) for p in parts) if all(p.isdigit() for p in parts) else ()


def _usual_suffix(version: tuple[int, ...], system: System) -> str:
    """Of CPython's extensions, for an interpreter that cannot be asked; "" when not even its version is known."""
    libc = "musl" if system.libc == "musl" else "gnu"
    return f".cpython-{version[0]}{version[1]}-{system.machine}-linux-{libc}.so" if len(version) == 2 else ""
