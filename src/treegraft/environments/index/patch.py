"""A folder that holds patched modules only, read and laid beside the index wheel it was made from."""

import hashlib
import os
import re
from pathlib import Path

from treegraft.environments.index.wheel import fetch_wheel
from treegraft.environments.planning.resolution import PatchFolder
from treegraft.errors import DownloadError, UsageError

VERSION_LINE = re.compile(r"""^__version__\s*=\s*(?:version\s*=\s*)?['"]([^'"]+)['"]""", re.MULTILINE)
MAX_FILES = 20_000
SKIPPED = {"__pycache__", ".git", ".hg", ".svn", ".venv", ".mypy_cache", ".ruff_cache"}


def read_patch_folder(folder: Path, dist: str, version: str | None, *, python: str, platform: str) -> PatchFolder:
    """Read the modules of dist `dist`. `version`: what they were made from, as the user says; else the folder's own
    word (dist-info, version.py, _version.py) is taken. Raises UsageError for a folder without any Python module."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; expected HOST:PATH of an environment or a folder of modules")
    files, sizes = _walk(folder)
    if not any(path.endswith(".py") for path in files):
        raise UsageError(f"{folder} holds no Python module; expected patched modules as they lie in site-packages")
    top = dist.replace("-", "_")
    if not any(path.startswith(top + "/") for path in files) and (folder / "__init__.py").exists():
        files = {f"{top}/{path}": value for path, value in files.items()}
        sizes = {f"{top}/{path}": value for path, value in sizes.items()}
    version = version or _own_version(folder, dist)
    index_files: dict[str, str] = {}
    if version is not None:
        try:
            index_files = fetch_wheel(dist, version, python=python, platform=platform).files
        except DownloadError:
            index_files = {}
    return PatchFolder(path=str(folder), dist=dist, version=version, files=files, sizes=sizes, index_files=index_files)


def _walk(folder: Path) -> tuple[dict[str, str], dict[str, int]]:
    files: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not f.endswith(".dist-info"))
        for name in sorted(names):
            path = Path(here) / name
            if path.is_symlink() or not path.is_file() or name.endswith(".pyc"):
                continue
            if len(files) >= MAX_FILES:
                raise UsageError(f"{folder} has more than {MAX_FILES} files; expected a folder of patched modules only")
            relative = path.relative_to(folder).as_posix()
            with path.open("rb") as stream:
                files[relative] = hashlib.file_digest(stream, "sha256").hexdigest()
            sizes[relative] = path.stat().st_size
    return files, sizes


def _own_version(folder: Path, dist: str) -> str | None:
    top = dist.replace("-", "_")
    for info in sorted(folder.glob(f"{top}-*.dist-info")):
        return info.name.removesuffix(".dist-info").partition("-")[2]
    for name in ("version.py", "_version.py", f"{top}/version.py", f"{top}/_version.py"):
        path = folder / name
        if path.is_file():
            match = VERSION_LINE.search(path.read_text(errors="replace"))
            if match:
                return match[1]
    return None
