"""Wheels with metadata and nothing else, one for each installed dist: uv resolves over them as it does over an index,
so that versions with local tags (+cu130) or patched ones, which no index has, can be chosen. Never installed."""

import zipfile
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from treegraft.environments.inventory import Dist

SUFFIX = "-py3-none-any.whl"


def stub_name(dist: Dist) -> str:
    return f"{dist.name.replace('-', '_')}-{dist.version}{SUFFIX}"


def version_of(url: str) -> str:
    """The version in a stub's URL."""
    return unquote(url).rpartition("/")[2].removesuffix(SUFFIX).partition("-")[2]


def write_stubs(dists: Iterable[Dist], folder: Path) -> None:
    """One `NAME-VERSION-py3-none-any.whl` a dist; the first of several of the same name and version wins."""
    for dist in dists:
        path = folder / stub_name(dist)
        stem = path.name.removesuffix(SUFFIX)
        if path.exists() or not _is_plain(dist.version):
            continue
        lines = ["Metadata-Version: 2.1", f"Name: {dist.name}", f"Version: {dist.version}"]
        if dist.requires_python:
            lines.append(f"Requires-Python: {dist.requires_python}")
        lines += [f"Requires-Dist: {line}" for line in dist.requires if "\n" not in line]
        lines += [f"Provides-Extra: {extra}" for extra in dist.provides_extras]
        with zipfile.ZipFile(path, "w") as wheel:
            info = f"{stem}.dist-info"
            wheel.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")


def _is_plain(version: str) -> bool:
    return bool(version) and all(c.isalnum() or c in ".+_!" for c in version)
