"""What kind of environment lies at a path, where its packages are and what its interpreter says of itself.

Knows no distribution. Runs the environment's interpreter without its site (-I -S -B): no .pth line is executed and
no byte code written.
"""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..commands import run
from ..files.names import is_inside, show
from ..files.walk import Report
from .metadata import parse_pyvenv

SELF_DESCRIPTION = r"""
import json, os, platform, site, sys, sysconfig
var = sysconfig.get_config_var
include = sysconfig.get_path("include") or ""
print(json.dumps({
    "version": platform.python_version(), "implementation": sys.implementation.name,
    "abi_flags": getattr(sys, "abiflags", ""), "soabi": var("SOABI") or "",
    "extension_suffix": var("EXT_SUFFIX") or "", "is_free_threaded": bool(var("Py_GIL_DISABLED")),
    "is_debug": hasattr(sys, "gettotalrefcount"), "base_prefix": sys.base_prefix, "include_dir": include,
    "has_python_h": os.path.exists(os.path.join(include, "Python.h")),
    "site_packages": list(dict.fromkeys(site.getsitepackages([sys.prefix])
        + [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])),
}))
"""


SKIPPED = {"conda": ("pkgs", "envs"), "folder": (".git",)}  # other environments, packages of theirs, history


class Prefix(NamedTuple):
    path: str  # absolute, as asked for
    real_path: str
    kind: str
    how: str
    executable: str  # "" when there is none
    python: Dict[str, Any]  # shaped like inventory.PythonFacts
    site_packages: List[str]  # absolute, existing
    roots: List[str]  # what is walked
    skip: List[str]


class NoEnvironment(Exception):
    """No environment can be at the path; the message says why. is_free: nothing is there at all."""

    def __init__(self, message: str, is_free: bool = False) -> None:
        super().__init__(message)
        self.is_free = is_free


def find_prefix(path: str, report: Report) -> Prefix:
    """Describe what lies at a path (a prefix, or an interpreter inside one). Raises NoEnvironment."""
    prefix = os.path.normpath(os.path.abspath(os.path.expanduser(path)))
    try:
        os.stat(prefix)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        is_free = isinstance(error, FileNotFoundError) and not os.path.lexists(prefix)
        raise NoEnvironment("%s: %s" % (show(prefix), reason), is_free)
    if os.path.isfile(prefix):
        if os.path.basename(os.path.dirname(prefix)) != "bin":
            raise NoEnvironment("%s is a file; expected an environment's folder" % show(prefix))
        prefix = os.path.dirname(os.path.dirname(prefix))
    libraries = _library_folders(prefix)
    executable = _find_executable(prefix)
    kind, how, pyvenv = _kind(prefix, libraries, executable, report)
    site_packages = [os.path.join(folder, "site-packages") for folder in libraries]
    python: Dict[str, Any] = {"how": how}
    if kind != "folder":
        python = _describe(prefix, kind, executable, pyvenv, libraries, report)
        if kind == "interpreter":
            site_packages = python.pop("_own_site_packages", []) or site_packages
    site_packages = [folder for folder in dict.fromkeys(site_packages) if os.path.isdir(folder)]
    python.pop("_own_site_packages", None)
    python["site_packages"] = [show(relative(folder, prefix)) for folder in site_packages]
    roots = site_packages if kind == "interpreter" else [prefix]
    skip = [os.path.join(prefix, name) for name in SKIPPED.get(kind, ())]
    real = os.path.realpath(prefix)
    return Prefix(prefix, real, kind, how, executable, python, site_packages, roots, skip)


def relative(path: str, prefix: str) -> str:
    """Relative to the prefix when inside it, else the absolute path."""
    if path == prefix:
        return "."
    return path[len(prefix.rstrip("/")) + 1 :] if is_inside(path, prefix) else path


def _library_folders(prefix: str) -> List[str]:
    """lib/pythonX.Y, and lib64/pythonX.Y where that is another folder."""
    folders = sorted(glob.glob(os.path.join(glob.escape(prefix), "lib", "python[23].*")))
    if not os.path.islink(os.path.join(prefix, "lib64")):
        folders += sorted(glob.glob(os.path.join(glob.escape(prefix), "lib64", "python[23].*")))
    return folders


def _find_executable(prefix: str) -> str:
    for name in ("python", "python3"):
        path = os.path.join(prefix, "bin", name)
        if os.path.lexists(path):
            return path
    versioned = sorted(glob.glob(os.path.join(glob.escape(prefix), "bin", "python3.*[0-9]")))
    return versioned[-1] if versioned else ""


def _kind(prefix: str, libraries: List[str], executable: str, report: Report) -> Tuple[str, str, Dict[str, str]]:
    config = os.path.join(prefix, "pyvenv.cfg")
    if os.path.lexists(config):
        try:
            with open(config, encoding="utf-8", errors="backslashreplace") as file:
                pyvenv = parse_pyvenv(file.read(1 << 20))
        except OSError as error:
            report(config, "cannot be read: %s" % error.strerror)
            pyvenv = {}
        kind = "uv-venv" if "uv" in pyvenv else "virtualenv" if "virtualenv" in pyvenv else "venv"
        return kind, "pyvenv.cfg", pyvenv
    if os.path.isdir(os.path.join(prefix, "conda-meta")):
        return "conda", "conda-meta", {}
    has_stdlib = any(os.path.exists(os.path.join(folder, "os.py")) for folder in libraries)
    if has_stdlib:
        return "interpreter", "lib/python*/os.py", {}
    if any(os.path.isdir(os.path.join(folder, "site-packages")) for folder in libraries):
        report(config, "missing: a half-deleted venv (lib/python*/site-packages is there)")
        return "venv", "lib/python*/site-packages, without pyvenv.cfg", {}
    if executable and os.path.exists(os.path.join(prefix, "bin", "activate")):
        report(config, "missing: a half-deleted venv (bin/activate is there)")
        return "venv", "bin/activate, without pyvenv.cfg", {}
    return "folder", "neither pyvenv.cfg, conda-meta nor lib/python*", {}


def _describe(
    prefix: str, kind: str, executable: str, pyvenv: Dict[str, str], libraries: List[str], report: Report
) -> Dict[str, Any]:
    real = os.path.realpath(executable) if executable else ""
    exists = bool(real) and os.path.exists(real)
    python: Dict[str, Any] = {
        "how": "pyvenv.cfg and folder names",
        "executable": show(executable),
        "real_executable": show(real) if exists else "",
        "pyvenv": pyvenv,
        "includes_system_site": pyvenv.get("include-system-site-packages", "").lower() == "true",
        "version": pyvenv.get("version_info", pyvenv.get("version", "")),
        "base_prefix": os.path.dirname(pyvenv["home"]) if pyvenv.get("home") else "",
    }
    if not python["version"] and libraries:
        python["version"] = re.sub(r"^python", "", os.path.basename(libraries[-1]))
    if not executable:
        report(os.path.join(prefix, "bin/python"), "missing: the environment has no interpreter")
        return python
    if not exists:
        report(executable, "leads nowhere: %s" % _dangling(executable))
        return python
    said, problem = describe_interpreter(executable)
    if said is None:
        report(executable, "does not run: %s" % problem)
        return python
    own = said.pop("site_packages")
    python.update(said, is_runnable=True, how="bin/python -I -S -B")
    python["_own_site_packages"] = [os.path.normpath(folder) for folder in own if folder]
    return python


def _dangling(path: str) -> str:
    try:
        target = show(os.readlink(path))
        os.stat(path)
    except FileNotFoundError:
        return "it is a link to %s, which does not exist" % target
    except PermissionError:
        return "it is a link to %s, which this user may not reach" % target
    except OSError as error:
        return "it cannot be followed: %s" % error.strerror
    return "it cannot be followed"


def describe_interpreter(executable: str) -> Tuple[Optional[Dict[str, Any]], str]:
    """(what an interpreter says of itself, "") or (None, why not)."""
    result = run([executable, "-I", "-S", "-B", "-c", SELF_DESCRIPTION], timeout_s=15.0)
    if not result.is_ok:
        last = result.error.strip().splitlines()[-1:] or ["exit status %s" % result.returncode]
        return None, result.problem or last[0]
    try:
        said = json.loads(result.output)
    except ValueError:
        return None, "answers %.80r" % result.output
    return (said, "") if isinstance(said, dict) else (None, "answers %.80r" % result.output)
