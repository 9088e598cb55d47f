"""The rule tables, read from the JSON files beside this one and checked row by row. Knows no inventory.

Every row says where it is from (`source`) and when that was looked up (`date`).
"""

from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import TypeVar

import msgspec


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    source: str
    date: str

    def __post_init__(self) -> None:
        if not self.source or len(self.date.split("-")) != 3:
            raise ValueError("a row needs its source and a date YYYY-MM-DD")


class CudaDriver(Row, frozen=True, kw_only=True):
    """The oldest driver that runs programs of a CUDA major version (minor version compatibility)."""

    cuda_major: int
    min_driver: str


class Glibc(Row, frozen=True, kw_only=True):
    version: str
    systems: tuple[str, ...]


class Libstdcxx(Row, frozen=True, kw_only=True):
    """The GCC release whose libstdc++ first defines a symbol version."""

    version: str
    gcc: str


class TorchPair(Row, frozen=True, kw_only=True):
    """Releases (major.minor) that were built for each other; None: no fixed one."""

    torch: str
    torchvision: str
    torchaudio: str | None


class Group(Row, frozen=True, kw_only=True):
    """Dists that move together. `members` are names or patterns."""

    name: str
    anchor: str
    members: tuple[str, ...]
    why: str

    def holds(self, dist: str) -> bool:
        return any(fnmatchcase(dist, pattern) for pattern in self.members)


class JitPackage(Row, frozen=True, kw_only=True):
    """A package that compiles at run time. needs: nvcc | ninja | c-compiler | cxx-compiler | python-h."""

    dist: str
    needs: tuple[str, ...]
    why: str


class GpuFamily(Row, frozen=True, kw_only=True):
    """Devices (compute capability without the dot) that run family-specific code (`f`) of an architecture."""

    arch: str
    members: tuple[str, ...]


class NumpyMajor(Row, frozen=True, kw_only=True):
    """Extensions built for one NumPy major cannot be imported from another major on."""

    built_for: int
    breaks_from: int


class Soname(Row, frozen=True, kw_only=True):
    """Who ships a library: dists of the index, or a package of the system."""

    soname: str
    dists: tuple[str, ...]
    system_package: str | None = None


class StdlibModule(Row, frozen=True, kw_only=True):
    """A module that not every Python on Linux has. since: the first release with it; until: the first without."""

    module: str
    since: str | None = None
    until: str | None = None


RowT = TypeVar("RowT", bound=Row)

TABLES: dict[str, type[Row]] = {
    "cuda_drivers": CudaDriver,
    "glibc": Glibc,
    "libstdcxx": Libstdcxx,
    "torch_pairs": TorchPair,
    "groups": Group,
    "jit_packages": JitPackage,
    "gpu_families": GpuFamily,
    "numpy_majors": NumpyMajor,
    "sonames": Soname,
    "stdlib_modules": StdlibModule,
}


def parse(data: bytes, row_type: type[RowT]) -> tuple[RowT, ...]:
    """Rows of one table. Raises ValueError (msgspec's names the row and key) for anything that is not one."""
    document = msgspec.json.decode(data)
    if not isinstance(document, dict) or (document.get("kind"), document.get("version")) != ("rule-table", 1):
        raise ValueError("expected a rule-table document of version 1")
    return tuple(msgspec.convert(document.get("rows"), list[row_type]))  # type: ignore[valid-type]


@cache
def _table(name: str) -> tuple[Row, ...]:
    return parse(files(__package__).joinpath(f"{name}.json").read_bytes(), TABLES[name])


def table(name: str, row_type: type[RowT]) -> tuple[RowT, ...]:
    """Rows of the packaged table `name`."""
    rows = _table(name)
    assert TABLES[name] is row_type
    return rows  # type: ignore[return-value]


def group_of(dist: str) -> Group | None:
    """The indivisible group a dist belongs to."""
    return next((g for g in table("groups", Group) if g.holds(dist)), None)
