"""One ELF file as the loader sees it, with its exports indexed. Knows no search path and no process."""

from functools import cached_property

from treegraft.environments.inventory import NativeFile

VERSYM_HIDDEN = "@"


def split_symbol(symbol: str) -> tuple[str, str | None, bool]:
    """`name`, `name@VERSION` or `name@@VERSION` -> (name, version, is_default)."""
    name, at, version = symbol.partition("@")
    if not at:
        return name, None, True
    if version.startswith("@"):
        return name, version[1:], True
    return name, version, False


class Library:
    """A NativeFile at an absolute path. Compared by identity: one object a file."""

    def __init__(self, file: NativeFile, path: str) -> None:
        self.file = file
        self.path = path
        self.folder = path.rpartition("/")[0] or "/"

    def __repr__(self) -> str:
        return f"Library({self.path})"

    @property
    def owner(self) -> str | None:
        return self.file.owners[0] if self.file.owners else None

    @cached_property
    def exports(self) -> dict[str, list[tuple[str | None, bool]]]:
        """Symbol name -> [(version, is_default)]."""
        index: dict[str, list[tuple[str | None, bool]]] = {}
        for symbols in (self.file.exports, self.file.weak_exports):
            for symbol in symbols:
                name, version, is_default = split_symbol(symbol)
                index.setdefault(name, []).append((version, is_default))
        return index

    @cached_property
    def has_versions(self) -> bool:
        """Whether its symbols carry versions. A base definition alone (the file's own name) is not one."""
        return bool(self.real_versions)

    @cached_property
    def real_versions(self) -> tuple[str, ...]:
        base = {self.file.soname, self.path.rpartition("/")[2]}
        return tuple(v for v in self.file.version_definitions if v not in base)

    def defines(self, name: str, version: str | None) -> bool:
        """Whether a reference `name` (to `version`, None: unversioned) binds to this library.

        After check_match of glibc's dl-lookup.c: an unversioned definition satisfies any reference; an unversioned
        reference takes the default version, or the oldest one of the library even when it is hidden.
        """
        definitions = self.exports.get(name)
        if definitions is None:
            return False
        if version is None:
            oldest = self.real_versions[0] if self.real_versions else None
            return any(is_default or found == oldest for found, is_default in definitions)
        return any(found is None or found == version for found, _ in definitions)
