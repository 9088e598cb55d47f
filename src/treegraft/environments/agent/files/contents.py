"""Read files once: hashes and native facts. Several threads, for hashing and reading let the others run.

Knows no package. Reads by `read`, not by memory map: a file cut short meanwhile must not kill the process.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from .native import read_native

BLOCK_BYTES = 1 << 20
RACY_NS = 2_000_000_000  # a file changed this shortly ago may change again within the clock's grain
Progress = Callable[[int, int], None]  # (bytes done, files done)


class Job(NamedTuple):
    """`algorithms`: hashes beside sha256."""

    path: str
    algorithms: Sequence[str] = ()


class Content(NamedTuple):
    """`sha256` is "" when there is a problem. `cache_key` is "" for what must not be remembered."""

    sha256: str
    others: Dict[str, str]
    native: Optional[Dict[str, Any]]
    was_known: bool
    cache_key: str
    size: int
    mtime_ns: int
    problem: str


def stat_key(status: os.stat_result) -> str:
    """What a file's content is remembered by."""
    return "%d:%d:%d:%d" % (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def unchanged(status: os.stat_result, known: Sequence[str]) -> Optional[Content]:
    """The content of an earlier time, (stat key, sha256), if the file still has that key."""
    if known[0] != stat_key(status):
        return None
    return Content(known[1], {}, None, True, known[0], status.st_size, status.st_mtime_ns, "")


class ContentReader:
    """Reads files of one tree. One reader may be used by many threads."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self._flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOATIME

    def read(self, job: Job, buffer: bytearray) -> Content:
        try:
            fd = self._open(job.path)
        except OSError as error:
            return _failed("cannot be read: %s" % error.strerror)
        try:
            return self._read_open(fd, job, buffer)
        except OSError as error:
            return _failed("cannot be read: %s" % error.strerror)
        finally:
            os.close(fd)

    def _open(self, path: str) -> int:
        """Leaves access times alone where the file is the user's own."""
        try:
            return os.open(path, self._flags)
        except PermissionError:
            fd = os.open(path, self._flags & ~os.O_NOATIME)
            self._flags &= ~os.O_NOATIME
            return fd

    def _read_open(self, fd: int, job: Job, buffer: bytearray) -> Content:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            return _failed("not a regular file")
        key = stat_key(before)
        hashes = {name: hashlib.new(name) for name in job.algorithms}
        hashes["sha256"] = hashlib.sha256()
        view = memoryview(buffer)
        total, head = 0, b""
        while True:
            count = os.readv(fd, [buffer])
            if count == 0:
                break
            head = head or bytes(view[:4])
            for digest in hashes.values():
                digest.update(view[:count])
            total += count
            if count < len(buffer) and total >= before.st_size:
                break
        native = read_native(fd, total, job.path) if head == b"\x7fELF" else None
        after = os.fstat(fd)
        if stat_key(after) != key:
            return _failed("changed while it was read")
        is_racy = self.now_ns - max(before.st_mtime_ns, before.st_ctime_ns) < RACY_NS
        found = {name: digest.hexdigest() for name, digest in hashes.items()}
        sha256 = found.pop("sha256")
        return Content(sha256, found, native, False, "" if is_racy else key, before.st_size, before.st_mtime_ns, "")


def _failed(problem: str) -> Content:
    return Content("", {}, None, False, "", 0, 0, problem)


def num_threads() -> int:
    return max(2, min(16, len(os.sched_getaffinity(0))))


def read_all(jobs: List[Job], progress: Optional[Progress] = None) -> Dict[str, Content]:
    """Contents by path. Threads take the next job when free; `progress` is called about five times a second."""
    reader = ContentReader(time.time_ns())
    results: Dict[str, Content] = {}
    queue = iter(jobs)  # next() on it is atomic
    failures: List[BaseException] = []

    def work() -> None:
        buffer = bytearray(BLOCK_BYTES)
        try:
            for job in queue:
                results[job.path] = reader.read(job, buffer)
        except BaseException as error:  # handed to the caller's thread below
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, daemon=True) for _ in range(num_threads())]
    for thread in threads:
        thread.start()
    seen = done_bytes = 0
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(0.2)
            if thread.is_alive():
                break
        if progress is not None:
            finished = list(results.values())
            done_bytes += sum(content.size for content in finished[seen:])
            seen = len(finished)
            progress(done_bytes, seen)
    if failures:
        raise failures[0]
    return results
