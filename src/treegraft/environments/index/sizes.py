"""How large index wheels are: what the index says of them, else the file itself. Knows no plan."""

import tomllib
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from packaging.utils import canonicalize_name

from treegraft.environments.index.uv import pip_compile

LOCK = "pylock.toml"
TIMEOUT_S = 10.0


def wheel_sizes(folder: Path, wanted: Sequence[str], platform: Sequence[str]) -> dict[str, int]:
    """Normalised name -> bytes of the wheel that uv would take for each `name==version`; unknown ones are left out.

    platform: uv's options of Python version and platform. Works in `folder`, where it leaves a lock file. Raises
    HostError when uv cannot be run.
    """
    if not wanted:
        return {}
    options = ["--no-deps", "--format", LOCK, "--output-file", LOCK, *platform]
    if not pip_compile(folder, wanted, options).is_ok:
        return {}
    try:
        packages = tomllib.loads((folder / LOCK).read_text(encoding="utf-8")).get("packages", [])
    except (OSError, ValueError):
        return {}
    sizes = {canonicalize_name(package["name"]): _size(package, folder) for package in packages}
    return {name: size for name, size in sizes.items() if size}


def _size(package: Mapping[str, Any], folder: Path) -> int:
    """Of the first wheel; 0 if there is none or nobody says."""
    wheel = next(iter(package.get("wheels") or [package.get("archive") or {}]))
    if wheel.get("size"):
        return int(wheel["size"])
    url = urlsplit(wheel.get("url", ""))
    if url.scheme in ("http", "https"):
        return content_length(wheel["url"])
    path = Path(unquote(url.path)) if url.scheme == "file" else folder / wheel.get("path", "")
    return path.stat().st_size if path.is_file() else 0


def content_length(url: str) -> int:
    """As the server says it; 0 when it does not, whatever the reason."""
    try:
        with urlopen(Request(url, method="HEAD"), timeout=TIMEOUT_S) as answer:
            return max(0, int(answer.headers.get("Content-Length") or 0))
    except (OSError, ValueError, HTTPException):
        return 0
