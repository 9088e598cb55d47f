"""What the index and the resolver said, as data. Knows neither uv nor a network; `environments.resolve` makes it."""

import msgspec


class PatchFolder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A folder that holds patched modules only. `files`: path as in site-packages -> sha256 (hex); `sizes` in bytes.

    dist: normalised name of the dist the modules belong to.
    version: the version they were made from, None when neither the request nor the folder says so.
    index_files: path -> sha256 of the index wheel of `version` (empty when there is none).
    """

    path: str
    dist: str
    version: str | None
    files: dict[str, str]
    sizes: dict[str, int]
    index_files: dict[str, str]


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One resolved dist. on_index: the index has this very version (asked only where the base has not).

    bytes: size of the wheel, 0 if unknown.
    """

    name: str
    version: str
    on_index: bool
    bytes: int = 0
    required_by: tuple[str, ...] = ()


class Resolution(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Outcome of one resolver run. `pins` is empty and `explanation` says why when it could not be met."""

    satisfiable: bool
    pins: tuple[Pin, ...] = ()
    explanation: str = ""
