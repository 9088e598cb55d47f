"""The files of an index wheel with their hashes. Fetched by uv into a temporary folder, remembered by what was asked.

Knows nothing of what they are compared with, and keeps no content.
"""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import ClassVar

from treegraft import settings
from treegraft.environments.index.uv import run_uv, target_options, uv_variables
from treegraft.errors import DownloadError, RecordError
from treegraft.records import Record, from_json, to_json


class WheelFiles(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """files: path as in site-packages -> sha256 (hex)."""

    KIND: ClassVar[str] = "wheel-files"
    VERSION: ClassVar[int] = 2

    name: str
    release: str
    files: dict[str, str]


def fetch_wheel(name: str, version: str, *, python: str, platform: str) -> WheelFiles:
    """Files of `name==version` for a Python version and uv platform, from the user's index. Raises DownloadError when
    the index has no such wheel or cannot be reached."""
    remembered = _cache_file(name, version, python, platform)
    if remembered.exists():
        try:
            return from_json(WheelFiles, remembered.read_bytes())
        except (RecordError, OSError):
            remembered.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="treegraft-wheel-") as folder:
        target = Path(folder) / "site"
        command = ["pip", "install", "--no-deps", "--no-build", "--target", str(target)]
        command += [*target_options(python, platform), f"{name}=={version}"]
        answer = run_uv(command, folder=Path(folder))
        if not answer.is_ok:
            reason = " ".join(answer.error.split())
            raise DownloadError(f"{name}=={version} cannot be had from the index: {reason}; check UV_INDEX_URL")
        wheel = WheelFiles(name=name, release=version, files=_hashes(target))
    replacement = remembered.with_suffix(f".{os.getpid()}")
    replacement.parent.mkdir(parents=True, exist_ok=True)
    replacement.write_text(to_json(wheel))
    os.replace(replacement, remembered)
    return wheel


def _hashes(target: Path) -> dict[str, str]:
    files = {}
    for path in sorted(target.rglob("*")):
        relative = path.relative_to(target).as_posix()
        if path.is_file() and "__pycache__" not in relative and not relative.startswith((".lock", "bin/")):
            with path.open("rb") as stream:
                files[relative] = hashlib.file_digest(stream, "sha256").hexdigest()
    return files


def _cache_file(name: str, version: str, python: str, platform: str) -> Path:
    """Another index is another entry."""
    options = {k: v for k, v in uv_variables(os.environ).items() if k.startswith("UV_") and k != "UV_PYTHON"}
    key = repr((name, version, ".".join(python.split(".")[:2]), platform, sorted(options.items())))
    return settings.cache_dir() / "wheels" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
