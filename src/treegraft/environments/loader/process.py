"""What is loaded in a Python process, and what dlopen would answer next. Knows nothing of Python modules.

Follows glibc: breadth-first mapping of NEEDED (elf/dl-deps.c), a SONAME or name already loaded wins
(`_dl_map_object`), version needs against definitions (elf/dl-version.c), then with RTLD_NOW every strong undefined
symbol, functions and data, is looked up in the global scope and then in the scope of the dlopened root
(elf/dl-lookup.c). A failed dlopen leaves nothing behind.
"""

import posixpath
from dataclasses import dataclass, field

from treegraft.environments.inventory import NativeFile
from treegraft.environments.loader.catalogue import Catalogue, OpaqueLibrary, expand
from treegraft.environments.loader.library import Library


@dataclass(frozen=True)
class LoadProblem:
    """One reason why dlopen fails. kind: missing-soname | undefined-symbol | version | broken | machine.

    library: the file whose need is not met. name: the SONAME, symbol or version. expected_in: for a version, the
    library that lacks it. scope: what was searched for an undefined symbol.
    """

    kind: str
    library: Library
    name: str
    detail: str = ""
    expected_in: Library | None = None
    scope: tuple[Library, ...] = field(default=(), repr=False)


@dataclass
class Loaded:
    library: Library
    names: set[str]
    loaded_by: Library | None
    dependencies: list[Library]


class Process:
    """A Python process of a World. `is_certain` turns False when an answer hung on a library that was not read."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.loaded: dict[Library, Loaded] = {}
        self.global_scope: list[Library] = []
        self.interpreter: Library | None = None
        self.is_certain = True
        self._start()

    def copy(self) -> "Process":
        twin = object.__new__(Process)
        twin.catalogue, twin.interpreter, twin.is_certain = self.catalogue, self.interpreter, self.is_certain
        twin.loaded = {
            library: Loaded(library, set(r.names), r.loaded_by, r.dependencies) for library, r in self.loaded.items()
        }
        twin.global_scope = list(self.global_scope)
        return twin

    def open_path(self, path: str, *, is_global: bool = False) -> list[LoadProblem]:
        """dlopen of an absolute path, which an ELF file of the catalogue must lie at."""
        library = self.catalogue.at(path)
        assert library is not None, path
        if self.catalogue.is_foreign(library.file):
            return [LoadProblem("machine", library, f"{library.file.machine}, {library.file.elf_class} bit")]
        return self._open(library, set(), is_global)

    def open_name(self, name: str, *, is_global: bool = False) -> list[LoadProblem] | None:
        """dlopen of a bare name; None when no such library is found."""
        loaded = self._already(name, {})
        if loaded is None:
            loaded, _ = self.catalogue.search(name, self._chain(self.interpreter, {}) or [_NOBODY])
        return None if loaded is None else self._open(loaded, {name}, is_global)

    def _start(self) -> None:
        """Main program, its libraries and LD_PRELOAD are the global scope."""
        world = self.catalogue.world
        programs = [f for f in world.python.native if f.path == world.python.real_executable]
        programs += [f for f in world.python.native if f not in programs and f.interpreter is not None]
        for file in programs[:1]:
            self.interpreter = self.catalogue.at(file.path)
        if self.interpreter is None:
            return
        self._open(self.interpreter, set(), True)
        for preload in world.host.loader.preload:
            library = (
                self.catalogue.at(preload) if "/" in preload else self.catalogue.search(preload, [self.interpreter])[0]
            )
            if library is not None:
                self._open(library, {preload}, True)

    def _open(self, root: Library, names: set[str], is_global: bool) -> list[LoadProblem]:
        new: dict[Library, Loaded] = {}
        if root not in self.loaded:
            caller = self.interpreter if root is not self.interpreter else None
            new[root] = Loaded(root, names | _names_of(root), caller, [])
        problems = [_broken(root)] if root in new and _is_broken(root) else []
        order = [root]
        for library in order:  # grows while it is walked: breadth first
            record = new.get(library) or self.loaded[library]
            if library in new:
                problems += self._map_needs(record, new)
            order += [d for d in dict.fromkeys(record.dependencies) if d not in order]
        if not problems:
            for library in new:
                problems += self._check_versions(library, new)
            lacking = {(p.library, p.name) for p in problems}
            scope = [*self.global_scope, *(m for m in order if m not in set(self.global_scope))]
            for library in new:
                if library is not self.interpreter:
                    found = self._check_symbols(library, scope)
                    # a symbol of a version that is not there is the same fault once more
                    problems += [p for p in found if (library, p.name.partition("@")[2]) not in lacking]
        if not problems or root is self.interpreter:
            self.loaded.update(new)
            if is_global:
                self.global_scope += [m for m in order if m not in self.global_scope]
        return problems

    def _map_needs(self, record: Loaded, new: dict[Library, Loaded]) -> list[LoadProblem]:
        problems: list[LoadProblem] = []
        library = record.library
        for name in library.file.needed:
            notes: list[str] = []
            found = self._already(name, new)
            if found is None:
                found, notes = self._find(name, library, new)
            if found is None:
                problems.append(LoadProblem("missing-soname", library, name, "; ".join(notes)))
                continue
            known = new.get(found) or self.loaded.get(found)
            if known is None:
                new[found] = Loaded(found, {name} | _names_of(found), library, [])
                if _is_broken(found):
                    problems.append(_broken(found))
            else:
                known.names.add(name)
            record.dependencies.append(found)
        return problems

    def _already(self, name: str, new: dict[Library, Loaded]) -> Library | None:
        for records in (self.loaded, new):
            for library, record in records.items():
                if name in record.names:
                    return library
        return None

    def _find(self, name: str, requester: Library, new: dict[Library, Loaded]) -> tuple[Library | None, list[str]]:
        if "/" in name:
            path = expand(name, requester.folder, self.catalogue.machine)
            return self.catalogue.at(path) if posixpath.isabs(path) else None, []
        return self.catalogue.search(name, self._chain(requester, new))

    def _chain(self, library: Library | None, new: dict[Library, Loaded]) -> list[Library]:
        """The library, who loaded it, and so on up to the main program."""
        chain: list[Library] = []
        while library is not None and library not in chain:
            chain.append(library)
            record = new.get(library) or self.loaded.get(library)
            library = record.loaded_by if record is not None else None
        if self.interpreter is not None and self.interpreter not in chain:
            chain.append(self.interpreter)
        return chain

    def _check_versions(self, library: Library, new: dict[Library, Loaded]) -> list[LoadProblem]:
        problems = []
        for name, versions in library.file.version_needs.items():
            provider = self._already(name, new)
            if provider is None or isinstance(provider, OpaqueLibrary):
                self.is_certain = self.is_certain and provider is not None
                continue
            definitions = provider.file.version_definitions
            if not definitions:
                continue  # ld.so only complains: "no version information available"
            for version in versions:
                if version not in definitions:
                    problems.append(LoadProblem("version", library, version, name, provider))
        return problems

    def _check_symbols(self, library: Library, scope: list[Library]) -> list[LoadProblem]:
        if "SYMBOLIC" in library.file.flags:
            scope = [library, *scope]
        missing = self.catalogue.unresolved(library, scope)
        if not missing:
            return []
        if self.interpreter is None:
            missing = tuple(m for m in missing if not m.startswith(("Py", "_Py")))
        if any(isinstance(member, OpaqueLibrary) for member in scope) or self.interpreter is None:
            self.is_certain = False
            return []
        return [LoadProblem("undefined-symbol", library, m, scope=tuple(scope)) for m in missing]


def _names_of(library: Library) -> set[str]:
    return {library.file.soname} if library.file.soname else set()


def _is_broken(library: Library) -> bool:
    return library.is_damaged and not isinstance(library, OpaqueLibrary)


def _broken(library: Library) -> LoadProblem:
    return LoadProblem("broken", library, library.file.problem)


_NOBODY = Library(NativeFile(path="", size=0, mtime_ns=0), "/")  # the requester when no interpreter is known
