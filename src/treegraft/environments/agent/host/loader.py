"""What the dynamic loader finds outside an environment: its search path, its cache, and the libraries needed there.

Order of search is the loader's: LD_LIBRARY_PATH, the cache, the default folders. RPATHs are the environment's matter.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterable, List, Optional, Tuple

from ..commands import run
from ..files.names import show
from ..files.native import read_native
from ..files.walk import Report
from .system import read_text

# looked up on every host, so that an environment from elsewhere can be judged
BASE_SONAMES = (
    "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libgcc_s.so.1",
    "libstdc++.so.6", "libgomp.so.1", "libz.so.1", "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1",
    "libcudart.so.12", "libcudart.so.13", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
)  # fmt: skip
DEFAULT_FOLDERS = (
    "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
    "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib",
)  # fmt: skip
MAX_LIBRARIES = 1000
HOW = "LD_LIBRARY_PATH, LD_PRELOAD, /etc/ld.so.preload, ldconfig -p"


def parse_cache(text: str) -> List[List[str]]:
    """[soname, path, kind] rows of `ldconfig -p`."""
    rows = []
    for line in text.splitlines():
        match = re.match(r"^\s+(\S+) \(([^)]*)\) => (.+)$", line)
        if match:
            rows.append([match.group(1), match.group(3), match.group(2)])
    return rows


def read_cache() -> Tuple[List[List[str]], str]:
    """(rows, "" or what went wrong)"""
    problem = ""
    for command in ("ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"):
        result = run([command, "-p"], timeout_s=10.0)
        if result.is_ok:
            return parse_cache(result.output), ""
        problem = result.problem or "exit status %s" % result.returncode
    return [], "ldconfig -p: %s" % problem


def read_loader(report: Report) -> Dict[str, Any]:
    """Shaped like inventory.Loader."""
    cache, problem = read_cache()
    if problem and os.path.exists("/etc/ld.so.cache"):
        report("loader cache", problem)
    preload = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    preload += read_text("/etc/ld.so.preload", 65536).split()
    library_path = re.split("[:;]", os.environ.get("LD_LIBRARY_PATH", ""))
    return {
        "how": HOW,
        "library_path": [show(folder) for folder in library_path if folder],
        "preload": [show(path) for path in preload],
        "cache": cache,
    }


def read_system_libraries(
    loader: Dict[str, Any], sonames: Iterable[str], files: Iterable[str], report: Report
) -> List[Dict[str, Any]]:
    """Native facts (absolute paths) of the sonames that are found, of `files`, and of all they need in turn. A soname
    found both in LD_LIBRARY_PATH and in the system gives both files."""
    by_soname: Dict[str, List[str]] = {}
    for soname, path, _kind in loader["cache"]:
        by_soname.setdefault(soname, []).append(path)
    machine = os.uname().machine
    pending = [*files, *loader["preload"]]
    wanted = list(dict.fromkeys([*BASE_SONAMES, *sonames]))
    libraries: Dict[str, Dict[str, Any]] = {}
    seen_sonames = set()
    while (pending or wanted) and len(libraries) < MAX_LIBRARIES:
        if wanted:
            soname = wanted.pop()
            if soname not in seen_sonames:
                seen_sonames.add(soname)
                pending += _places(soname, loader["library_path"], by_soname)
            continue
        path = pending.pop()
        if path in libraries:
            continue
        facts = read_library(path)
        if facts is None or facts.get("machine") not in (machine, None):
            continue
        if facts.get("partial"):
            report(path, "damaged ELF file: %s" % facts["problem"])
        libraries[path] = facts
        wanted += facts.get("needed", [])
    return [libraries[path] for path in sorted(libraries)]


def _places(soname: str, library_path: List[str], by_soname: Dict[str, List[str]]) -> List[str]:
    if "/" in soname:
        return [soname] if os.path.isfile(soname) else []
    polluting = [os.path.join(folder, soname) for folder in library_path]
    places = [path for path in polluting if os.path.isfile(path)]
    system = by_soname.get(soname) or [os.path.join(folder, soname) for folder in DEFAULT_FOLDERS]
    return places + [path for path in system if os.path.isfile(path)]


def read_library(path: str) -> Optional[Dict[str, Any]]:
    """Native facts of one file, or None when it is no ELF file or cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if os.pread(fd, 4, 0) != b"\x7fELF":
            return None
        facts = read_native(fd, status.st_size, path)
    except OSError:
        return None
    finally:
        os.close(fd)
    return dict(facts, path=show(path), owners=[], size=status.st_size, mtime_ns=status.st_mtime_ns)


def libstdcxx_of(libraries: List[Dict[str, Any]]) -> Dict[str, Any]:
    """{libstdcxx_path, libstdcxx_versions}: the system's, after what LD_LIBRARY_PATH brings."""
    for facts in libraries:
        if facts.get("soname") == "libstdc++.so.6":
            return {"libstdcxx_path": facts["path"], "libstdcxx_versions": facts.get("version_definitions", [])}
    return {"libstdcxx_path": None, "libstdcxx_versions": []}


def read_python_libraries(executable: str, base_prefix: str, report: Report) -> List[Dict[str, Any]]:
    """Native facts of an interpreter and of the libpython it needs."""
    facts = read_library(executable) if executable else None
    if facts is None:
        return []
    found = [facts]
    folders = [os.path.join(os.path.dirname(os.path.dirname(executable)), "lib"), os.path.join(base_prefix, "lib")]
    folders += list(DEFAULT_FOLDERS)
    for soname in facts.get("needed", ()):
        if not soname.startswith("libpython"):
            continue
        library = next((f for f in (read_library(os.path.join(d, soname)) for d in folders) if f), None)
        if library is None:
            report(soname, "needed by %s and not found" % show(executable))
        else:
            found.append(library)
    return found
