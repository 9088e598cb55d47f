"""Runs uv as a binary, with the user's own index options. Knows no plan.

pip's environment variables are honoured where uv's own are not set: whoever has configured pip alone gets the same
index from us.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from treegraft.errors import HostError

PIP_TO_UV = {
    "PIP_INDEX_URL": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "PIP_EXTRA_INDEX_URL": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
    "PIP_FIND_LINKS": ("UV_FIND_LINKS",),
    "PIP_CERT": ("SSL_CERT_FILE",),
}
TIMEOUT_S = 900
MANYLINUX = (17, *range(28, 41))  # glibc minors that uv has a platform for


@dataclass(frozen=True)
class UvResult:
    is_ok: bool
    output: str
    error: str


def find_uv() -> str:
    """Path of the uv binary: the installed package's, else the one on PATH. Raises HostError."""
    try:
        import uv

        return str(uv.find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise HostError("uv is not installed beside treegraft and not on the PATH; pip install uv")
    return found


def run_uv(arguments: Sequence[str], *, folder: Path, stdin: str = "") -> UvResult:
    """Run in `folder`; output and errors as text without colour. Raises HostError when it cannot start or hangs."""
    try:
        done = subprocess.run(
            [find_uv(), "--color", "never", "--no-progress", *arguments],
            cwd=folder,
            input=stdin,
            env=uv_variables(os.environ),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise HostError(f"uv cannot be run ({error}); reinstall the package uv") from error
    except subprocess.TimeoutExpired as error:
        raise HostError(f"uv did not finish within {TIMEOUT_S} s; check that the index answers") from error
    return UvResult(done.returncode == 0, done.stdout, done.stderr)


def target_options(python: str, platform: str) -> list[str]:
    """uv's options for a Python version and platform other than ours."""
    return ["--python-version", python, "--python-platform", platform]


def pip_compile(folder: Path, requirements: Iterable[str], options: Sequence[str]) -> UvResult:
    """Resolve requirements, without building anything, to pins on the output or where the options say."""
    command = ["pip", "compile", "-", "--no-header", "--no-build", "--no-strip-extras", *options]
    return run_uv(command, folder=folder, stdin="\n".join(requirements) + "\n")


def uv_variables(variables: "os._Environ[str] | dict[str, str]") -> dict[str, str]:
    """The environment for uv: pip's index options under uv's names, no project or virtual environment of ours. uv runs
    with this interpreter whatever the target's version is, and never fetches one."""
    chosen = {k: v for k, v in variables.items() if k not in ("VIRTUAL_ENV", "UV_PROJECT")}
    chosen |= {"UV_PYTHON": sys.executable, "UV_PYTHON_DOWNLOADS": "never"}
    for pip_name, uv_names in PIP_TO_UV.items():
        value = chosen.get(pip_name)
        if value and not any(chosen.get(name) for name in uv_names):
            chosen[uv_names[0]] = value
    return chosen


def user_find_links(variables: "os._Environ[str] | dict[str, str]") -> list[str]:
    """The user's find-links as options: an option of ours would otherwise put them out of force."""
    places = uv_variables(variables).get("UV_FIND_LINKS", "").replace(",", " ").split()
    return [word for place in places for word in ("--find-links", place)]


def platform_of(machine: str, libc_version: str) -> str:
    """uv's name of a Linux platform: the highest manylinux that the glibc satisfies (2.17 at least)."""
    _, _, minor = libc_version.partition(".")
    number = int(minor) if minor.isdigit() else MANYLINUX[0]
    fitting = [m for m in MANYLINUX if m <= number]
    return f"{machine or 'x86_64'}-manylinux_2_{max(fitting, default=MANYLINUX[0])}"
