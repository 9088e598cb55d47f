"""Environments to look at: real ones that uv and venv make, quick copies of their layout, and a conda-like prefix.

Knows uv's command line; does not know what is put into the environments. Nothing here reaches a network.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uv
from worlds.wheels import Wheel


@dataclass(frozen=True)
class Python:
    """An installed interpreter. `version` is "3.11.7", `include` the folder of Python.h."""

    executable: Path
    version: str
    include: Path
    soabi: str

    @property
    def minor(self) -> str:
        return ".".join(self.version.split(".")[:2])

    @property
    def extension_suffix(self) -> str:
        return f".{self.soabi}.so"

    @property
    def tag(self) -> str:
        digits = self.minor.replace(".", "")
        return f"cp{digits}-cp{digits}-linux_{os.uname().machine}"


def this_python() -> Python:
    """The base interpreter of the one that runs the tests."""
    return describe_python(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}")


def two_dists() -> tuple[Wheel, Wheel]:
    """One requires the other, which has an entry point."""
    return (
        Wheel("alpha", "1.2+cu130", {"alpha/__init__.py": "import beta\n", "alpha/part.py": "x = 1\n"}, ("beta>=2",)),
        Wheel("beta", "2.0", {"beta.py": "y = 2\n"}, entry_points={"console_scripts": {"beta": "beta:main"}}),
    )


def other_pythons() -> list[Python]:
    """Further interpreters of this machine with headers, other minor versions first, newest first."""
    own = this_python()
    candidates = {Path(f"/usr/bin/python3.{minor}") for minor in range(9, 15)}
    candidates |= set(Path.home().glob(".pyenv/versions/3.*/bin/python3"))
    candidates |= set(Path.home().glob(".local/share/uv/python/cpython-3.*/bin/python3"))
    found = [describe_python(path) for path in sorted(candidates) if path.exists()]
    usable = [p for p in found if (p.include / "Python.h").exists() and p.minor != own.minor and _order(p) >= (3, 9)]
    return sorted(usable, key=_order, reverse=True)


def _order(python: Python) -> tuple[int, ...]:
    return tuple(int(part) for part in python.version.split(".") if part.isdigit())


_DESCRIBE = (
    "import json, platform, sysconfig as s; print(json.dumps([platform.python_version(),"
    " s.get_path('include'), s.get_config_var('SOABI')]))"
)


def describe_python(executable: Path) -> Python:
    """Ask an interpreter about itself."""
    out = subprocess.run([executable, "-I", "-c", _DESCRIBE], capture_output=True, text=True, check=True).stdout
    version, include, soabi = json.loads(out)
    return Python(executable, version, Path(include), soabi)


@dataclass(frozen=True)
class Venv:
    prefix: Path
    minor: str

    @property
    def python(self) -> Path:
        return self.prefix / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return self.prefix / "lib" / f"python{self.minor}" / "site-packages"

    def run(self, code: str, variables: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        """`python -c code` with a clean environment plus `variables`."""
        return subprocess.run(
            [self.python, "-c", code],
            capture_output=True,
            text=True,
            env=clean_variables(variables),
            check=False,
            cwd="/",
        )


def clean_variables(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The process environment without what would leak one environment into another."""
    dropped = ("PYTHON", "LD_", "VIRTUAL_ENV", "CONDA", "UV_", "PIP_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **(extra or {})}


@dataclass
class Uv:
    """The uv binary with a cache of its own, offline, so that hard links and caches are the test's."""

    cache: Path
    find_links: Sequence[Path] = field(default_factory=list)

    def venv(self, prefix: Path, python: Python) -> Venv:
        """`uv venv`: no pip inside."""
        self.run("venv", "--no-project", "-q", "-p", str(python.executable), str(prefix))
        return Venv(prefix, python.minor)

    def install(self, venv: Venv, *requirements: str, link_mode: str = "copy") -> None:
        links = [part for folder in self.find_links for part in ("--find-links", str(folder))]
        base = ["pip", "install", "-q", "--no-index", *links, "--link-mode", link_mode]
        self.run(*base, "--python", str(venv.python), *requirements)

    def install_pip(self, venv: Venv) -> None:
        """The pip that CPython bundles."""
        bundled = _bundled_pip(venv.python)
        base = ["pip", "install", "-q", "--no-index", "--find-links", str(bundled)]
        self.run(*base, "--python", str(venv.python), "pip")

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [uv.find_uv_bin(), *arguments, "--offline"],
            capture_output=True,
            text=True,
            env=clean_variables({"UV_CACHE_DIR": str(self.cache), "UV_NO_CONFIG": "1"}),
            check=False,
        )
        assert done.returncode == 0, f"uv {' '.join(arguments)}: {done.stderr}"
        return done


def _bundled_pip(python: Path) -> Path:
    code = "import ensurepip, os; print(os.path.join(os.path.dirname(ensurepip.__file__), '_bundled'))"
    return Path(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip())


def quick_venv(prefix: Path, python: Python, wheels: Sequence[Wheel] = ()) -> Venv:
    """The layout of `uv venv` in a few system calls; wheels are unpacked as an installer would."""
    venv = Venv(prefix, python.minor)
    venv.site_packages.mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "lib64").symlink_to("lib")
    (prefix / "bin" / "python").symlink_to(python.executable)
    (prefix / "bin" / "python3").symlink_to("python")
    (prefix / "bin" / f"python{python.minor}").symlink_to("python")
    (prefix / "pyvenv.cfg").write_text(
        f"home = {python.executable.parent}\nimplementation = CPython\nuv = 0.8.0\n"
        f"version_info = {python.version}\ninclude-system-site-packages = false\n"
    )
    for wheel in wheels:
        wheel.unpack(venv.site_packages)
    return venv


def conda_like(prefix: Path, python: Python, packages: Mapping[str, str]) -> Venv:
    """A synthetic conda prefix: conda-meta with one JSON a package; no conda made it.

    packages: name -> version. The interpreter is a link to `python`.
    """
    venv = Venv(prefix, python.minor)
    venv.site_packages.mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").symlink_to(python.executable)
    meta = prefix / "conda-meta"
    meta.mkdir()
    (meta / "history").write_text("==> 2024-01-01 00:00:00 <==\n# cmd: synthetic\n")
    for name, version in packages.items():
        document = {
            "name": name, "version": version, "build": "h0_0", "build_number": 0, "files": [],
            "channel": "https://conda.anaconda.org/conda-forge/linux-64", "depends": [],
        }  # fmt: skip
        (meta / f"{name}-{version}-h0_0.json").write_text(json.dumps(document))
    return venv


def empty_shell(prefix: Path, python: Python) -> Venv:
    """A venv that is nothing but interpreter links: what is left when someone never installed into it."""
    return quick_venv(prefix, python)


def remove(venv: Venv) -> None:
    shutil.rmtree(venv.prefix)
