"""Answer one request on standard output, in frames; everything that prints by mistake goes to standard error.

    frame    marker (given by the request), kind, 8 hex digits: payload bytes, payload: zlib-compressed JSON
    kinds    P progress, any number (also as a sign of life); then one R result or E error

Operations: probe (host, environment or both), read (contents of named files).
"""

from __future__ import annotations

import base64
import json
import os
import stat
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional

from .files.names import show
from .host.host import read_host
from .host.loader import libstdcxx_of, read_python_libraries, read_system_libraries
from .venv.environment import probe_environment
from .venv.prefix import NoEnvironment

MAX_READ_BYTES = 64 << 20
MAX_PROBLEMS = 2000


class Frames:
    """Writes frames to a descriptor; may be used by several threads."""

    def __init__(self, fd: int, marker: str) -> None:
        self._fd = fd
        self._marker = marker.encode("ascii")
        self._lock = threading.Lock()

    def send(self, kind: bytes, document: Dict[str, Any]) -> None:
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        payload = zlib.compress(text.encode("utf-8", "replace"), 1)
        view = memoryview(self._marker + kind + b"%08x" % len(payload) + payload)
        with self._lock:
            while view:
                view = view[os.write(self._fd, view) :]


class Progress:
    """What has been read so far, sent about four times a second while it is told, else every two seconds."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._state = (0, 0)
        self._sent = time.monotonic()
        threading.Thread(target=self._beat, daemon=True).start()

    def __call__(self, done_bytes: int, done_files: int) -> None:
        self._state = (done_bytes, done_files)
        if time.monotonic() - self._sent > 0.25:
            self._send()

    def _send(self) -> None:
        self._sent = time.monotonic()
        self._frames.send(b"P", {"bytes": self._state[0], "files": self._state[1]})

    def _beat(self) -> None:
        while True:
            time.sleep(2.0)
            try:
                self._send()
            except OSError:
                os._exit(1)  # nobody listens any more


class Problems:
    """Collects what could not be found out; many threads may report."""

    def __init__(self) -> None:
        self.rows: List[Dict[str, str]] = []

    def __call__(self, subject: str, message: str) -> None:
        if len(self.rows) == MAX_PROBLEMS:
            self.rows.append({"subject": "problems", "message": "more than %d: the rest is left out" % MAX_PROBLEMS})
        elif len(self.rows) < MAX_PROBLEMS:
            self.rows.append({"subject": show(subject), "message": show(message)})


def main(request: Dict[str, Any]) -> None:
    """Called by the bootstrap with the decoded request; ends by returning."""
    fd = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    frames = Frames(fd, request["marker"])
    operations = {"probe": probe, "read": read}
    if not sys.platform.startswith("linux"):
        frames.send(b"E", {"message": "runs %s; only Linux hosts can be probed" % sys.platform})
        return
    try:
        answer = operations[request["operation"]](request, Progress(frames))
    except NoEnvironment as error:
        frames.send(b"E", {"message": str(error), "is_free": error.is_free})
    else:
        frames.send(b"R", answer)
    os._exit(0)  # a thread may still wait for a command that hangs


def probe(request: Dict[str, Any], progress: Progress) -> Dict[str, Any]:
    """{host, environment or None, problems, remember}; `path` None asks for the host alone. place: a folder whose file
    system matters, there or not yet."""
    report = Problems()
    path, place = request["path"], request["place"]
    where = [os.path.abspath(os.path.expanduser(place))] if place else []
    waiting = ThreadPoolExecutor(1).submit(read_host, where, report)
    environment: Optional[Dict[str, Any]] = None
    remember: Dict[str, Any] = {"files": {}, "needs": [], "loads_key": ""}
    wanted: List[str] = list(request["sonames"])
    python_files: List[str] = []
    if path:
        found = probe_environment(path, request["known"], request["known_loads"], report, progress)
        environment = found.facts
        remember = {"files": found.cache, "needs": found.outside_needs, "loads_key": found.loads_key}
        python = environment["python"]
        real, base = python.get("real_executable", ""), python.get("base_prefix", "")
        python["native"] = read_python_libraries(real, base, report)
        python_files = [facts["path"] for facts in python["native"]]
        wanted += found.outside_needs
        wanted += [soname for facts in python["native"] for soname in facts.get("needed", ())]
    host = waiting.result()
    libraries = read_system_libraries(host["loader"], wanted, [], report)
    host["system_libraries"] = [facts for facts in libraries if facts["path"] not in python_files]
    host["system"].update(libstdcxx_of(libraries))
    return {"host": host, "environment": environment, "problems": report.rows, "remember": remember}


def read(request: Dict[str, Any], _progress: Progress) -> Dict[str, Any]:
    """Contents (base64) of `names`, relative to `path`, up to MAX_READ_BYTES in all; problems for the others."""
    report = Problems()
    contents: Dict[str, str] = {}
    budget = min(int(request["limit_bytes"]), MAX_READ_BYTES)
    for name in request["names"]:
        place = os.path.join(request["path"], name)
        try:
            status = os.stat(place)
            if not stat.S_ISREG(status.st_mode):
                report(name, "not a regular file")
            elif status.st_size > budget:
                report(name, "%d bytes are more than the limit leaves" % status.st_size)
            else:
                with open(place, "rb") as file:
                    data = file.read(budget)
                budget -= len(data)
                contents[name] = base64.b64encode(data).decode("ascii")
        except (OSError, ValueError) as error:
            report(name, "cannot be read: %s" % error)
    return {"contents": contents, "problems": report.rows}
