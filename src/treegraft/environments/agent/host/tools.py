"""Compilers, CUDA toolkits, package managers and interpreters: where they are and which version.

Looks on the PATH and in the usual places beside it (a non-interactive shell's PATH is short).
"""

from __future__ import annotations

import glob
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional, Tuple

from ..commands import run
from ..files.names import show
from .system import read_text

HOME_BINS = (
    ".local/bin", ".cargo/bin", "bin", "miniconda3/bin", "anaconda3/bin", "miniforge3/bin", "mambaforge/bin",
    "micromamba/bin", ".pixi/bin", ".poetry/bin", ".local/share/pypoetry/venv/bin",
)  # fmt: skip
SYSTEM_BINS = (
    "/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/opt/conda/bin", "/opt/miniconda3/bin",
    "/opt/miniforge3/bin", "/snap/bin", "/usr/local/cuda/bin", "/opt/cuda/bin",
)  # fmt: skip
BUILD_TOOLS = ("gcc", "g++", "cc", "c++", "clang", "clang++", "ninja", "cmake", "make", "nvcc", "rustc", "go")
PACKAGE_MANAGERS = ("uv", "pip", "pip3", "conda", "mamba", "micromamba", "pixi", "poetry", "pipx", "pdm")
INTERPRETER_PLACES = (
    "/usr/bin/python3.*[0-9]", "/usr/local/bin/python3.*[0-9]", "/opt/*/bin/python3",
    "~/.local/share/uv/python/*/bin/python3", "~/.pyenv/versions/*/bin/python3", "~/miniconda3/bin/python3",
    "~/anaconda3/bin/python3", "~/miniforge3/bin/python3", "~/mambaforge/bin/python3", "/opt/conda/envs/*/bin/python3",
)  # fmt: skip
MAX_INTERPRETERS = 24
VERSION_DEADLINE_S = 8.0
INTERPRETER_SOURCE = (
    "import json,os,platform,sys,sysconfig;"
    "i=sysconfig.get_path('include') or '';"
    "print(json.dumps([platform.python_version(),sys.implementation.name,sys.base_prefix,"
    "os.path.exists(os.path.join(i,'Python.h'))]))"
)


def search_folders(extra: List[str]) -> List[Tuple[str, bool]]:
    """(folder, is on the PATH), without pyenv's shims, which run pyenv itself."""
    on_path = [folder for folder in os.environ.get("PATH", "").split(":") if folder.startswith("/")]
    home = os.path.expanduser("~")
    beside = [os.path.join(home, name) for name in HOME_BINS] + list(SYSTEM_BINS) + extra
    folders = dict.fromkeys(on_path, True)
    for folder in beside:
        folders.setdefault(folder, False)
    return [(folder, is_on) for folder, is_on in folders.items() if "/shims" not in folder]


def find_tools(names: Tuple[str, ...], folders: List[Tuple[str, bool]]) -> List[Dict[str, Any]]:
    """Each file once (links to one file are one tool), the first place first; versions still empty."""
    tools, seen = [], set()
    for name in names:
        for folder, is_on_path in folders:
            path = os.path.join(folder, name)
            real = os.path.realpath(path)
            if (name, real) in seen or not os.access(path, os.X_OK) or not os.path.isfile(path):
                continue
            seen.add((name, real))
            tools.append({"name": name, "path": show(path), "is_on_path": is_on_path})
    return tools


def parse_version(text: str) -> str:
    """The first thing that looks like a version; nvcc's stands after "release" and "V"."""
    match = re.search(r"release [\d.]+, V(\d+(?:\.\d+)+)", text) or re.search(r"\b(?:go|v)?(\d+(?:\.\d+)+\S*)", text)
    return match.group(1).rstrip(",;)") if match else ""


def with_version(tool: Dict[str, Any]) -> Dict[str, Any]:
    """The tool with its version: pip's from the metadata beside it (pip is slow to start), others as they say."""
    if tool["name"].startswith("pip") and tool["name"] != "pipx":
        pattern = os.path.join(
            os.path.dirname(os.path.dirname(tool["path"])), "lib/python3*/*-packages/pip-*.dist-info"
        )
        found = sorted(glob.glob(pattern))
        if found:
            version = os.path.basename(found[-1])[len("pip-") : -len(".dist-info")]
            return dict(tool, version=version, how=show(found[-1]))
    argument = "version" if tool["name"] == "go" else "--version"
    result = run([tool["path"], argument], timeout_s=VERSION_DEADLINE_S)
    version = parse_version(result.output or result.error) if not result.problem else ""
    how = "%s %s" % (tool["path"], argument)
    return dict(tool, version=version, how="%s: %s" % (how, result.problem) if result.problem else how)


def parse_cuda_version_file(name: str, text: str) -> str:
    """Of a toolkit's version.json ("cuda": {"version": "13.0.1"}) or older version.txt."""
    if name.endswith(".json"):
        try:
            return str(json.loads(text)["cuda"]["version"])
        except (ValueError, KeyError, TypeError):
            return ""
    match = re.search(r"CUDA Version (\d+(?:\.\d+)+)", text)
    return match.group(1) if match else ""


def find_toolkits() -> List[Dict[str, Any]]:
    """CUDA toolkits: folders with bin/nvcc or a version file, shaped like inventory.Tool named "cuda"."""
    places = [*sorted(glob.glob("/usr/local/cuda*")), "/opt/cuda", "/usr/lib/cuda"]
    places += [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    seen, toolkits = set(), []
    for place in places:
        real = os.path.realpath(place)
        if real in seen or not os.path.isdir(real):
            continue
        version, how = "", ""
        for name in ("version.json", "version.txt"):
            version = parse_cuda_version_file(name, read_text(os.path.join(real, name)))
            how = os.path.join(real, name)
            if version:
                break
        nvcc = os.path.join(real, "bin", "nvcc")
        if not version and os.access(nvcc, os.X_OK):
            found = with_version({"name": "nvcc", "path": nvcc})
            version, how = found["version"], found["how"]
        if not version and not os.path.exists(nvcc):
            continue
        seen.add(real)
        is_on_path = os.path.join(real, "bin") in [os.path.realpath(p) for p in os.environ.get("PATH", "").split(":")]
        toolkits.append({"name": "cuda", "path": show(place), "version": version, "is_on_path": is_on_path, "how": how})
    return toolkits


def find_interpreters() -> List[Dict[str, Any]]:
    """Interpreters of the usual places, shaped like inventory.Interpreter; each is asked with -I -S -B."""
    paths: Dict[str, str] = {}
    folders = [folder for folder, _ in search_folders([])]
    candidates = [os.path.join(folder, name) for folder in folders for name in ("python3", "python")]
    for pattern in INTERPRETER_PLACES:
        candidates += sorted(glob.glob(os.path.expanduser(pattern)))
    for path in candidates:
        if os.access(path, os.X_OK) and not path.endswith("-config"):
            paths.setdefault(os.path.realpath(path), path)
    chosen = list(paths.items())[:MAX_INTERPRETERS]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda pair: _ask_interpreter(pair[1], pair[0]), chosen))
    return [interpreter for interpreter in found if interpreter is not None]


def _ask_interpreter(path: str, real: str) -> Optional[Dict[str, Any]]:
    result = run([path, "-I", "-S", "-B", "-c", INTERPRETER_SOURCE], timeout_s=VERSION_DEADLINE_S)
    try:
        version, implementation, prefix, has_header = json.loads(result.output)
    except ValueError:
        return None  # Python 2, or it does not run
    return {
        "path": show(path),
        "real_path": show(real),
        "version": version,
        "implementation": implementation,
        "prefix": show(prefix),
        "has_python_h": has_header,
        "how": "%s -I -S -B" % show(path),
    }


def read_tools(extra_folders: List[str]) -> Dict[str, List[Dict[str, Any]]]:
    """{toolkits, build_tools, package_managers, interpreters}"""
    folders = search_folders(extra_folders)
    wanted = find_tools(BUILD_TOOLS, folders) + find_tools(PACKAGE_MANAGERS, folders)
    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(with_version, wanted))
    return {
        "toolkits": find_toolkits(),
        "build_tools": [tool for tool in versions if tool["name"] in BUILD_TOOLS],
        "package_managers": [tool for tool in versions if tool["name"] in PACKAGE_MANAGERS],
        "interpreters": find_interpreters(),
    }
