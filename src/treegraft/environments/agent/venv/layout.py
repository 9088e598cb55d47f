"""What makes an environment hard to move: links, .pth lines, scripts with absolute interpreters, compiled caches.

Knows no distribution but by the owner names it is given.
"""

from __future__ import annotations

import os
import stat
from typing import Any, Dict, List, Mapping, Tuple

from ..files.names import is_inside, show
from ..files.walk import Entry, Report, Tree
from .metadata import parse_finder_mapping, parse_shebang
from .prefix import Prefix, relative

MAX_CACHE_FILES = 200_000
MAX_PTH_BYTES = 1 << 20
Owners = Mapping[str, List[str]]


def find_links(entries: Mapping[str, Entry], prefix: Prefix) -> List[Dict[str, Any]]:
    """Every symbolic link, shaped like inventory.Link."""
    links = []
    for path, entry in sorted(entries.items()):
        if stat.S_ISLNK(entry.status.st_mode):
            resolved, exists, inside = resolve(path, prefix)
            links.append(
                {
                    "path": show(relative(path, prefix.path)),
                    "target": show(entry.target),
                    "resolved": show(resolved),
                    "exists": exists,
                    "is_inside": inside,
                }
            )
    return links


def resolve(path: str, prefix: Prefix) -> Tuple[str, bool, bool]:
    """(where a path leads, whether something is there, whether that is inside the prefix). A loop leads nowhere."""
    try:
        resolved = os.path.realpath(path)
        exists = os.path.exists(path)
    except OSError:
        return path, False, True
    return resolved, exists, is_inside(resolved, prefix.real_path) or is_inside(resolved, prefix.path)


def read_pth_files(prefix: Prefix, report: Report) -> List[Dict[str, Any]]:
    """The .pth files of the site folders, shaped like inventory.PthFile; nothing in them is executed."""
    files = []
    for site in prefix.site_packages:
        try:
            names = sorted(name for name in os.listdir(site) if name.endswith(".pth"))
        except OSError:
            continue
        for name in names:
            path = os.path.join(site, name)
            try:
                with open(path, encoding="utf-8", errors="backslashreplace") as file:
                    lines = [line.rstrip() for line in file.read(MAX_PTH_BYTES).splitlines()]
            except OSError as error:
                report(path, "cannot be read: %s" % error.strerror)
                continue
            files.append(
                {
                    "path": show(relative(path, prefix.path)),
                    "lines": [line[:4000] for line in lines],
                    "outside_paths": _outside_paths(lines, site, prefix),
                    "executes": any(_is_code(line) for line in lines),
                }
            )
    return files


def _is_code(line: str) -> bool:
    return line.startswith(("import ", "import\t"))


def _outside_paths(lines: List[str], site: str, prefix: Prefix) -> List[str]:
    named: List[str] = []
    for line in lines:
        if _is_code(line):
            module = line[7:].split(";", 1)[0].split(" as ", 1)[0].strip()
            if module.startswith("__editable__"):
                named.extend(_finder_paths(os.path.join(site, module + ".py")))
        elif line and not line.startswith("#"):
            named.append(line)
    outside = []
    for name in named:
        path = os.path.normpath(os.path.join(site, name))
        if not resolve(path, prefix)[2]:
            outside.append(path)
    return list(dict.fromkeys(show(path) for path in outside))


def _finder_paths(path: str) -> List[str]:
    try:
        with open(path, encoding="utf-8", errors="backslashreplace") as file:
            return parse_finder_mapping(file.read(MAX_PTH_BYTES))
    except OSError:
        return []


def read_scripts(entries: Mapping[str, Entry], owners: Owners, prefix: Prefix) -> List[Dict[str, Any]]:
    """The files of bin/, shaped like inventory.Script."""
    folder = os.path.join(prefix.path, "bin")
    scripts = []
    for path, entry in sorted(entries.items()):
        if os.path.dirname(path) != folder:
            continue
        script: Dict[str, Any] = {
            "path": show(relative(path, prefix.path)),
            "kind": "binary",
            "shebang": "",
            "interpreter_exists": True,
            "is_inside": True,
            "owners": owners.get(path, []),
        }
        if stat.S_ISLNK(entry.status.st_mode):
            _, exists, inside = resolve(path, prefix)
            script.update(kind="link", interpreter_exists=exists, is_inside=inside)
        else:
            shebang = parse_shebang(_head(path))
            if shebang:
                interpreter = shebang if os.path.exists(shebang) else shebang.split()[0]
                inside = is_inside(interpreter, prefix.path) or is_inside(interpreter, prefix.real_path)
                found = os.path.exists(interpreter)
                script.update(kind="script", shebang=shebang, interpreter_exists=found, is_inside=inside)
        scripts.append(script)
    return scripts


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def find_caches(prefix: Prefix, tree: Tree) -> List[Dict[str, Any]]:
    """Folders of compiled code that belong to this machine, shaped like inventory.CacheFolder."""
    home = os.path.expanduser("~")
    variables = os.environ
    caches = os.path.join(variables.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"))
    flashinfer_base = variables.get("FLASHINFER_WORKSPACE_BASE") or home
    user = variables.get("USER") or os.path.basename(home)
    places = [
        ("triton", variables.get("TRITON_CACHE_DIR") or os.path.join(home, ".triton")),
        ("flashinfer", os.path.join(flashinfer_base, ".cache", "flashinfer")),
        ("torch_extensions", variables.get("TORCH_EXTENSIONS_DIR") or os.path.join(caches, "torch_extensions")),
        ("torchinductor", variables.get("TORCHINDUCTOR_CACHE_DIR") or "/tmp/torchinductor_" + user),
        ("nv_compute", variables.get("CUDA_CACHE_PATH") or os.path.join(home, ".nv", "ComputeCache")),
        ("triton", os.path.join(prefix.path, ".triton")),
        ("torch_extensions", os.path.join(prefix.path, "torch_extensions")),
    ]
    found = []
    for kind, path in places:
        if os.path.isdir(path):
            num_files, size = _weigh(path)
            found.append({"path": show(path), "kind": kind, "size_bytes": size, "num_files": num_files})
    if tree.bytecode_files:
        found.append(
            {
                "path": show(prefix.path),
                "kind": "bytecode",
                "size_bytes": tree.bytecode_bytes,
                "num_files": tree.bytecode_files,
            }
        )
    return found


def _weigh(folder: str) -> Tuple[int, int]:
    """(number of files, bytes) below a folder, up to MAX_CACHE_FILES."""
    num_files = size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue
            num_files += 1
        if num_files > MAX_CACHE_FILES:
            break
    return num_files, size
