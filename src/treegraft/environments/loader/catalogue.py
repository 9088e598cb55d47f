"""Which file a library name leads to in a World. Knows search paths and links, not what is already loaded.

The order is that of `_dl_map_object` in glibc's elf/dl-load.c (also ld.so(8)):
DT_RPATH of the requester and of who loaded it, upwards (only when the requester itself has no DT_RUNPATH);
LD_LIBRARY_PATH; DT_RUNPATH of the requester (not inherited); the loader's cache; the default folders.
"""

import functools
import posixpath
from collections.abc import Iterator

from treegraft.environments.inventory import NativeFile
from treegraft.environments.loader.library import Library
from treegraft.environments.loader.world import World

MAX_LINKS = 16
DEFAULT_FOLDERS = {
    "x86_64": ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"),
    "aarch64": ("/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"),
}
CACHE_KINDS = {"x86_64": "x86-64", "aarch64": "AArch64"}


class Catalogue:
    """All ELF files of a World by absolute path; one Library each."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machine = _machine_of(world)
        self._files: dict[str, NativeFile] = {}
        self._by_folder_and_soname: dict[tuple[str, str], str] = {}
        self._libraries: dict[str, Library] = {}
        self._unresolved: dict[tuple[Library, tuple[Library, ...]], tuple[str, ...]] = {}
        for file in (*world.host.system_libraries, *world.python.native):
            self._files[file.path] = file
            if file.soname:
                key = (_canonical_folder(posixpath.dirname(file.path)), file.soname)
                self._by_folder_and_soname.setdefault(key, file.path)
        for entry in world.files:
            if entry.sha256 and ".so" in entry.path:  # the loader stops at a file of that name that is no ELF file
                other = NativeFile(
                    path=entry.path, size=entry.size, mtime_ns=0, partial=True, problem="not an ELF file"
                )
                self._files[posixpath.normpath(posixpath.join(world.prefix, entry.path))] = other
        for file in world.native:
            self._files[posixpath.normpath(posixpath.join(world.prefix, file.path))] = file
        self._links = {
            posixpath.normpath(posixpath.join(world.prefix, entry.path)): entry.link_target
            for entry in world.files
            if entry.link_target
        }
        self._cache: dict[str, list[str]] = {}
        wanted = CACHE_KINDS.get(self.machine, "")
        for line in world.host.loader.cache:
            if wanted in line.kind:
                self._cache.setdefault(line.soname, []).append(line.path)

    def at(self, path: str) -> Library | None:
        """The library at an absolute path, through links of the environment; None when there is no such ELF file."""
        path = posixpath.normpath(path)
        for _ in range(MAX_LINKS):
            file = self._files.get(path)
            if file is not None:
                if path not in self._libraries:
                    self._libraries[path] = Library(file, path)
                return self._libraries[path]
            target = self._resolve_link(path)
            if target is None:
                return self._host_library(path)
            path = target
        return None

    def search(self, name: str, chain: list[Library]) -> tuple[Library | None, list[str]]:
        """Where `name` (no slash) leads for the requester chain[0], which chain[1] loaded, and so on.

        Returns the library, or None, and the notes on files that were passed over (other machine or class).
        A library that only the loader's cache names, of which nothing else is known, comes back as an opaque one.
        """
        notes: list[str] = []
        for folder in self._folders(chain):
            there = self._without_steps_back(folder)
            found = self.at(posixpath.join(there, name)) if there is not None else None
            if found is None:
                continue
            if self.is_foreign(found.file):
                notes.append(f"{found.path} is for {found.file.machine or '?'}, {found.file.elf_class} bit")
                continue
            return found, notes
        if "NODEFLIB" in chain[0].file.flags:
            return None, notes
        for path in self._cache.get(name, ()):
            found = self.at(path)
            return found or self._opaque(name, path), notes
        for folder in DEFAULT_FOLDERS.get(self.machine, ("/lib64", "/usr/lib64", "/lib", "/usr/lib")):
            found = self.at(posixpath.join(folder, name))
            if found is not None and not self.is_foreign(found.file):
                return found, notes
        return None, notes

    def unresolved(self, library: Library, scope: list[Library]) -> tuple[str, ...]:
        """Strong imports of the library that no member of the scope defines, in file order. Remembered: the same
        library is judged in the same scope for every dist that imports it."""
        key = (library, tuple(scope))
        if key not in self._unresolved:
            left = set(library.file.imports)
            for member in scope:
                if not left:
                    break
                left -= member.plain_names
                left -= member.versioned_names
            versioned = [s for s in left if "@" in s]
            left -= {s for s in versioned if any(member.defines(s) for member in scope)}
            self._unresolved[key] = tuple(s for s in library.file.imports if s in left)
        return self._unresolved[key]

    def is_foreign(self, file: NativeFile) -> bool:
        """Built for another machine or word size; a file that could not be read at all is not foreign but broken."""
        if not file.machine:
            return False
        return file.machine != self.machine or file.elf_class == 32

    def holders(self, soname: str) -> list[Library]:
        """Files of the environment that carry this SONAME or file name, wherever they lie."""
        return [
            library
            for path, file in self._files.items()
            if soname in (file.soname, posixpath.basename(path)) and (library := self.at(path)) is not None
        ]

    def _folders(self, chain: list[Library]) -> Iterator[str]:
        requester = chain[0]
        if not requester.file.runpath:
            for library in chain:
                if not library.file.runpath:
                    yield from (_substitute(entry, library.folder, self.machine) for entry in library.file.rpath)
        yield from (entry for entry in self.world.host.loader.library_path if entry.startswith("/"))
        yield from (_substitute(entry, requester.folder, self.machine) for entry in requester.file.runpath)

    def _without_steps_back(self, folder: str) -> str | None:
        """The folder without `..`. The kernel steps back only out of a folder that is there: None elsewhere."""
        kept: list[str] = []
        for part in folder.split("/"):
            here = "/" + "/".join(kept)
            if part == "..":
                if here.startswith(self.world.prefix + "/") and here not in self._known_folders:
                    return None
                kept = kept[:-1]
            elif part not in ("", "."):
                kept.append(part)
        return "/" + "/".join(kept) if folder.startswith("/") else folder

    @functools.cached_property
    def _known_folders(self) -> frozenset[str]:
        """Folders of the environment that hold anything, and its links."""
        known = set(self._links)
        for entry in self.world.files:
            folder = posixpath.dirname(entry.path)
            while folder and (place := posixpath.join(self.world.prefix, folder)) not in known:
                known.add(place)
                folder = posixpath.dirname(folder)
        return frozenset(known)

    def _resolve_link(self, path: str) -> str | None:
        """One link of the path followed, the first one from the left; None when there is none."""
        if not path.startswith(self.world.prefix):
            return None
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            head = "/".join(parts[:end])
            target = self._links.get(head)
            if target is not None:
                joined = posixpath.join(posixpath.dirname(head), target, *parts[end:])
                return posixpath.normpath(joined)
        return None

    def _host_library(self, path: str) -> Library | None:
        folder, name = posixpath.split(path)
        real = self._by_folder_and_soname.get((_canonical_folder(folder), name))
        return self.at(real) if real is not None and real != path else None

    def _opaque(self, name: str, path: str) -> Library:
        if path not in self._libraries:
            file = NativeFile(path=path, size=0, mtime_ns=0, soname=name, partial=True, problem="not read")
            self._libraries[path] = OpaqueLibrary(file, path)
        return self._libraries[path]


class OpaqueLibrary(Library):
    """A host library that is there but was not read: what it exports cannot be known."""


def expand(entry: str, folder: str, machine: str) -> str:
    """A path with its dynamic string tokens replaced, normalised."""
    entry = _substitute(entry, folder, machine)
    return posixpath.normpath(entry) if entry else entry


def _substitute(entry: str, folder: str, machine: str) -> str:
    """Dynamic string tokens of ld.so(8), $LIB as on Debian and Fedora alike is not decidable: lib64 is used."""
    for token, value in (("ORIGIN", folder), ("PLATFORM", machine), ("LIB", "lib64")):
        entry = entry.replace("${" + token + "}", value).replace("$" + token, value)
    return entry


def _canonical_folder(folder: str) -> str:
    """`/lib` is a link to `/usr/lib` on every merged-usr system."""
    return "/usr" + folder if folder.startswith(("/lib/", "/lib64")) or folder == "/lib" else folder


def _machine_of(world: World) -> str:
    for file in world.python.native:
        if file.machine:
            return file.machine
    return world.host.system.machine
