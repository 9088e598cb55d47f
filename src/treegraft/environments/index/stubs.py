"""Wheels with metadata and nothing else, one for each installed dist: uv resolves over them as it does over an index,
so that versions with local tags (+cu130) or patched ones, which no index has, can be chosen. Never installed."""

import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from treegraft.environments.inventory import Dist

PLAIN_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
PLAIN_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_!-]*")
SUFFIX = "-py3-none-any.whl"


def stub_name(dist: Dist) -> str:
    return f"{dist.name.replace('-', '_')}-{dist.version}{SUFFIX}"


def version_of(url: str) -> str:
    """The version in a stub's URL."""
    return unquote(url).rpartition("/")[2].removesuffix(SUFFIX).partition("-")[2]


def write_stubs(dists: Iterable[Dist], folder: Path) -> None:
    """One `NAME-VERSION-py3-none-any.whl` a plain dist; the first of several of the same name and version wins."""
    for dist in filter(is_plain, dists):
        path = folder / stub_name(dist)
        stem = path.name.removesuffix(SUFFIX)
        if path.exists():
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


def is_plain(dist: Dist) -> bool:
    """Whether name and version are what they should be. They come from a host: neither may lead out of a folder or
    become an option in a requirements file."""
    return PLAIN_NAME.fullmatch(dist.name) is not None and PLAIN_VERSION.fullmatch(dist.version) is not None
