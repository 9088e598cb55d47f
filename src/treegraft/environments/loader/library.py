"""One ELF file as the loader sees it, with its exports indexed. Knows no search path and no process."""

from functools import cached_property

from treegraft.environments.inventory import NativeFile


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

    @property
    def is_damaged(self) -> bool:
        """Whether the loader fails on it. It does not look at section headers, which a truncated file loses first."""
        return self.file.partial and any("section" not in part for part in self.file.problem.split("; "))

    @cached_property
    def plain_names(self) -> frozenset[str]:
        """Names that a reference without a version binds to here.

        After check_match of glibc's dl-lookup.c: the default version, or the library's oldest version even when it
        is hidden.
        """
        oldest = self.real_versions[0] if self.real_versions else None
        names = []
        for symbol in self._symbols:
            name, version, is_default = split_symbol(symbol)
            if is_default or version == oldest:
                names.append(name)
        return frozenset(names)

    @cached_property
    def versioned_names(self) -> frozenset[str]:
        """`name@VERSION` of all versioned definitions, default or not."""
        return frozenset(s.replace("@@", "@", 1) for s in self._symbols if "@" in s)

    @cached_property
    def unversioned_names(self) -> frozenset[str]:
        """Names defined without a version; they satisfy a reference to any version."""
        return frozenset(s for s in self._symbols if "@" not in s)

    @property
    def _symbols(self) -> tuple[str, ...]:
        return self.file.exports + self.file.weak_exports

    @cached_property
    def real_versions(self) -> tuple[str, ...]:
        """Version definitions in file order, without the base definition (the file's own name)."""
        base = {self.file.soname, self.path.rpartition("/")[2]}
        return tuple(v for v in self.file.version_definitions if v not in base)

    def defines(self, symbol: str) -> bool:
        """Whether a reference `name` or `name@VERSION` binds to this library."""
        name, version, _ = split_symbol(symbol)
        if version is None:
            return name in self.plain_names
        return symbol in self.versioned_names or name in self.unversioned_names
