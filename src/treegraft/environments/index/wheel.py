"""The files of an index wheel with their hashes. Fetched by uv into a temporary folder, remembered by what was asked.

Knows nothing of what they are compared with.
"""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import ClassVar

import msgspec

from treegraft import settings
from treegraft.environments.index.uv import run_uv, uv_variables
from treegraft.errors import DownloadError, RecordError
from treegraft.records import Record, from_json, to_json

TEXT_SUFFIXES = (".py", ".pyi", ".txt", ".json", ".toml", ".cfg", ".cu", ".cuh", ".h", ".cpp")
MAX_TEXT_BYTES = 1 << 20


class WheelFiles(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """files: path as in site-packages -> sha256 (hex); sizes in bytes. texts: contents asked for, not remembered."""

    KIND: ClassVar[str] = "wheel-files"
    VERSION: ClassVar[int] = 1

    name: str
    release: str
    files: dict[str, str]
    sizes: dict[str, int]


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    wheel: WheelFiles
    texts: dict[str, str]


def fetch_wheel(name: str, version: str, *, python: str, platform: str, texts: tuple[str, ...] = ()) -> Fetched:
    """Files of `name==version` for a Python version and uv platform, from the user's index.

    texts: paths whose contents are wanted too (then the remembered list is not enough). Raises DownloadError when
    the index has no such wheel or cannot be reached.
    """
    remembered = _cache_file(name, version, python, platform)
    if not texts and remembered.exists():
        try:
            return Fetched(wheel=from_json(WheelFiles, remembered.read_bytes()), texts={})
        except (RecordError, OSError):
            remembered.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="treegraft-wheel-") as folder:
        target = Path(folder) / "site"
        command = ["pip", "install", "--no-deps", "--no-build", "--target", str(target)]
        command += ["--python-version", python, "--python-platform", platform, f"{name}=={version}"]
        answer = run_uv(command, folder=Path(folder))
        if not answer.is_ok:
            reason = " ".join(answer.error.split())
            raise DownloadError(f"{name}=={version} cannot be had from the index: {reason}; check UV_INDEX_URL")
        wheel = _read(target, name, version)
        contents = {path: _text(target / path) for path in texts if (target / path).is_file()}
    replacement = remembered.with_suffix(f".{os.getpid()}")
    replacement.parent.mkdir(parents=True, exist_ok=True)
    replacement.write_text(to_json(wheel))
    os.replace(replacement, remembered)
    return Fetched(wheel=wheel, texts=contents)


def _read(target: Path, name: str, version: str) -> WheelFiles:
    files, sizes = {}, {}
    for path in sorted(target.rglob("*")):
        relative = path.relative_to(target).as_posix()
        if path.is_file() and "__pycache__" not in relative and not relative.startswith((".lock", "bin/")):
            with path.open("rb") as stream:
                files[relative] = hashlib.file_digest(stream, "sha256").hexdigest()
            sizes[relative] = path.stat().st_size
    return WheelFiles(name=name, release=version, files=files, sizes=sizes)


def _text(path: Path) -> str:
    return path.read_bytes()[:MAX_TEXT_BYTES].decode("utf-8", "replace")


def _cache_file(name: str, version: str, python: str, platform: str) -> Path:
    """Another index is another entry."""
    options = {k: v for k, v in uv_variables(os.environ).items() if k.startswith("UV_") and k != "UV_PYTHON"}
    key = repr((name, version, ".".join(python.split(".")[:2]), platform, sorted(options.items())))
    return settings.cache_dir() / "wheels" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
