"""Listening TCP ports and whose they are, from /proc/net/tcp and /proc/*/fd."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any, Dict, List

from ..files.names import show
from ..redact import redact_command
from .system import read_text

LISTEN = "0A"
HOW = "/proc/net/tcp, /proc/net/tcp6, /proc/*/fd"


def parse_listening(text: str) -> List[Dict[str, Any]]:
    """Listening sockets of /proc/net/tcp or tcp6: port, address, inode."""
    rows = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != LISTEN:
            continue
        address, _, port = fields[1].partition(":")
        try:
            rows.append({"port": int(port, 16), "address": _address(address), "inode": int(fields[9])})
        except ValueError:
            continue
    return rows


def _address(text: str) -> str:
    """The kernel prints addresses as 32-bit words in the machine's byte order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def read_ports() -> List[Dict[str, Any]]:
    """Shaped like inventory.Port; the processes of other users stay unknown."""
    rows = parse_listening(read_text("/proc/net/tcp")) + parse_listening(read_text("/proc/net/tcp6"))
    owners = _socket_owners({row["inode"] for row in rows})
    ports = []
    for row in sorted(rows, key=lambda row: (row["port"], row["address"])):
        pid = owners.get(row.pop("inode"))
        ports.append(dict(row, pid=pid, command=_command(pid) if pid is not None else ""))
    return ports


def _socket_owners(inodes: "set[int]") -> Dict[int, int]:
    owners: Dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        folder = "/proc/%s/fd" % name
        try:
            descriptors = os.listdir(folder)
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                target = os.readlink(folder + "/" + descriptor)
            except OSError:
                continue
            if target.startswith("socket:[") and int(target[8:-1]) in inodes:
                owners.setdefault(int(target[8:-1]), int(name))
    return owners


def _command(pid: int) -> str:
    words = read_text("/proc/%d/cmdline" % pid, 65536).split("\0")
    return show(redact_command([word for word in words if word]))
