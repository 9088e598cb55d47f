"""Which releases of a dist the user's index has, newest first. Asked of uv, so that any index it can read will do."""

import tempfile
from pathlib import Path

from packaging.version import InvalidVersion, Version

from treegraft.environments.index.uv import pip_compile, target_options

MIN_RELEASES = 3
MAX_RELEASES = 8


def newest_releases(name: str, besides: str, *, python: str, platform: str) -> tuple[str, ...]:
    """The newest MIN_RELEASES releases but `besides` with a wheel for a Python version and uv platform, and further
    ones that are newer than it, up to MAX_RELEASES; fewer, or none, when the index has no more or does not answer.
    Raises HostError when uv cannot be run."""
    found: list[str] = []
    wanted = f"{name}!={besides}"
    options = ["--no-deps", "--no-annotate", *target_options(python, platform)]
    with tempfile.TemporaryDirectory(prefix="treegraft-releases-") as folder:
        while len(found) < MAX_RELEASES:
            answer = pip_compile(Path(folder), [wanted], options)
            lines = [line for line in answer.output.splitlines() if "==" in line]
            if not answer.is_ok or not lines:
                break
            release = lines[0].partition("==")[2].split()[0]
            if len(found) >= MIN_RELEASES and not _is_newer(release, besides):
                break
            found.append(release)
            wanted = f"{name}!={besides},<{release}"
    return tuple(found)


def _is_newer(release: str, other: str) -> bool:
    try:
        return Version(release) > Version(other)
    except InvalidVersion:
        return False
