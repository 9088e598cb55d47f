"""The one table of environment variables that treegraft reads. Nothing else in the package touches os.environ
for its own options."""

import os
from dataclasses import dataclass
from pathlib import Path

from treegraft.errors import UsageError


@dataclass(frozen=True)
class Setting:
    name: str
    default: str
    meaning: str


SETTINGS: dict[str, Setting] = {
    s.name: s
    for s in (
        Setting("TREEGRAFT_CACHE_DIR", "", "where fetched models and probe caches lie (default ~/.cache/treegraft)"),
        Setting("TREEGRAFT_SSH_COMMAND", "ssh", "how ssh is started, as words: for example ssh -F FILE"),
        Setting("TREEGRAFT_LOG_LEVEL", "info", "debug, info, warning or error"),
    )
}


def read(name: str) -> str:
    """Value of a setting listed in SETTINGS (KeyError for any other name: ours to fix)."""
    setting = SETTINGS[name]
    return os.environ.get(name) or setting.default


def cache_dir() -> Path:
    """The cache folder, created on first use. Raises UsageError when it cannot be created or written."""
    path = Path(read("TREEGRAFT_CACHE_DIR") or Path.home() / ".cache" / "treegraft").expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cache directory {path} cannot be created ({error.strerror}); set TREEGRAFT_CACHE_DIR to a writable folder"
        ) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"cache directory {path} is not writable; set TREEGRAFT_CACHE_DIR to a writable folder")
    return path
