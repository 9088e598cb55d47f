"""Operating system, C library, processor, memory and file systems: files of /proc and /etc, and pure parsers."""

from __future__ import annotations

import os
import platform
import re
from typing import Any, Dict, List

from ..commands import run
from ..files.names import show


def read_text(path: str, limit: int = 4 << 20) -> str:
    """A small file's text; "" when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(limit)
    except OSError:
        return ""


def parse_os_release(text: str) -> Dict[str, str]:
    values = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.startswith("#"):
            values[name.strip()] = value.strip().strip("\"'")
    return values


def parse_cpuinfo(text: str) -> Dict[str, Any]:
    """Model and flags of the first processor, x86 or ARM."""
    model, flags = "", []  # type: str, List[str]
    for line in text.splitlines():
        name, _, value = line.partition(":")
        key = name.strip().lower()
        if key in ("model name", "cpu model") and not model:
            model = value.strip()
        elif key in ("flags", "features") and not flags:
            flags = sorted(set(value.split()))
    return {"model": model, "flags": flags}


def parse_meminfo(text: str) -> Dict[str, int]:
    """Name -> bytes."""
    values = {}
    for line in text.splitlines():
        match = re.match(r"^(\w+):\s+(\d+)(?: kB)?$", line)
        if match:
            values[match.group(1)] = int(match.group(2)) * (1024 if line.endswith("kB") else 1)
    return values


def parse_mountinfo(text: str) -> List[Dict[str, Any]]:
    """Mounts in order (a later one hides an earlier one at the same place): point, type, device, options."""
    mounts = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields, rest = left.split(" "), right.split(" ")
        if not separator or len(fields) < 6 or len(rest) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), fields[4])
        options = set(fields[5].split(",")) | set(rest[2].split(","))
        mounts.append({"point": point, "type": rest[0], "device": rest[1], "options": sorted(options)})
    return mounts


def mount_of(path: str, mounts: List[Dict[str, Any]]) -> Dict[str, Any]:
    best: Dict[str, Any] = {"point": "", "type": "", "device": "", "options": []}
    for mount in mounts:
        point = mount["point"].rstrip("/")
        if (path == point or path.startswith(point + "/")) and len(mount["point"]) >= len(best["point"]):
            best = mount
    return best


def parse_libc(confstr: str, ldd: str) -> Dict[str, str]:
    """From `getconf GNU_LIBC_VERSION` ("glibc 2.39"), else from what ldd prints (musl has no confstr)."""
    match = re.match(r"^glibc (\d[\d.]*)$", confstr.strip())
    if match:
        return {"libc": "glibc", "libc_version": match.group(1)}
    match = re.search(r"musl libc[^\n]*\nVersion (\d[\d.]*)", ldd)
    if match:
        return {"libc": "musl", "libc_version": match.group(1)}
    match = re.search(r"^ldd \([^)]*\) (\d[\d.]*)", ldd)
    return {"libc": "glibc" if match else "", "libc_version": match.group(1) if match else ""}


def read_system() -> Dict[str, Any]:
    """Shaped like inventory.System, without libstdc++ (which the loader's facts give)."""
    release = parse_os_release(read_text("/etc/os-release") or read_text("/usr/lib/os-release"))
    cpu = parse_cpuinfo(read_text("/proc/cpuinfo"))
    memory = parse_meminfo(read_text("/proc/meminfo"))
    try:
        confstr = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        confstr = ""
    ldd = ""
    if not confstr:
        result = run(["ldd", "--version"], timeout_s=5.0)
        ldd = result.output + result.error
    names = os.uname()
    return dict(
        parse_libc(confstr, ldd),
        how="/etc/os-release, uname, confstr or ldd --version, /proc/cpuinfo, /proc/meminfo",
        hostname=names.nodename,
        os_name=release.get("PRETTY_NAME", ""),
        os_id=release.get("ID", ""),
        os_version=release.get("VERSION_ID", ""),
        kernel=names.release,
        machine=platform.machine(),
        cpu_model=cpu["model"],
        cpu_count=os.cpu_count() or 0,
        cpu_flags=cpu["flags"],
        memory_total_bytes=memory.get("MemTotal", 0),
        memory_available_bytes=memory.get("MemAvailable", 0),
        shm_bytes=_shm_bytes(),
    )


def _shm_bytes() -> int:
    try:
        status = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return status.f_frsize * status.f_blocks


def read_filesystems(paths: List[str]) -> List[Dict[str, Any]]:
    """One row a path, shaped like inventory.Filesystem; of a path that does not exist its nearest parent's."""
    mounts = parse_mountinfo(read_text("/proc/self/mountinfo"))
    rows = []
    for path in dict.fromkeys(paths):
        existing = os.path.realpath(path)
        while not os.path.exists(existing) and existing != "/":
            existing = os.path.dirname(existing)
        try:
            status = os.statvfs(existing)
        except OSError:
            continue
        mount = mount_of(existing, mounts)
        rows.append(
            {
                "how": "/proc/self/mountinfo, statvfs",
                "path": show(path),
                "mount_point": show(mount["point"]),
                "type": mount["type"],
                "device": show(mount["device"]),
                "total_bytes": status.f_frsize * status.f_blocks,
                "free_bytes": status.f_frsize * status.f_bavail,
                "free_inodes": status.f_favail if status.f_files else -1,
                "is_noexec": "noexec" in mount["options"] or bool(status.f_flag & os.ST_NOEXEC),
                "is_readonly": "ro" in mount["options"] or bool(status.f_flag & os.ST_RDONLY),
            }
        )
    return rows
