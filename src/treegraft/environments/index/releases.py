"""Which releases of a dist the user's index has, newest first. Asked of uv, so that any index it can read will do."""

import tempfile
from pathlib import Path

from treegraft.environments.index.uv import run_uv

MAX_RELEASES = 3


def newest_releases(name: str, besides: str, *, python: str, platform: str) -> tuple[str, ...]:
    """The newest MAX_RELEASES releases but `besides` with a wheel for a Python version and uv platform; fewer, or
    none, when the index has no more or does not answer. Raises HostError when uv cannot be run."""
    found: list[str] = []
    wanted = f"{name}!={besides}"
    command = ["pip", "compile", "-", "--no-deps", "--no-build", "--no-header", "--no-annotate", "--no-strip-extras"]
    command += ["--python-version", python, "--python-platform", platform]
    with tempfile.TemporaryDirectory(prefix="treegraft-releases-") as folder:
        while len(found) < MAX_RELEASES:
            answer = run_uv(command, folder=Path(folder), stdin=wanted + "\n")
            lines = [line for line in answer.output.splitlines() if "==" in line]
            if not answer.is_ok or not lines:
                break
            found.append(lines[0].partition("==")[2].split()[0])
            wanted = f"{name}!={besides},<{found[-1]}"
    return tuple(found)
