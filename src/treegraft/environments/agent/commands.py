"""Run a command that may hang, with a deadline. Does not know what any command says.

A process stuck in the kernel (a dead GPU's driver) survives SIGKILL: it is then left behind, never waited for.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import time
from typing import Dict, List, NamedTuple, Optional

MAX_OUTPUT_BYTES = 8 << 20
KILL_WAIT_S = 1.0


class Result(NamedTuple):
    """`returncode` is None when the command was not found, not permitted, or did not end in time."""

    returncode: Optional[int]
    output: str
    error: str
    problem: str  # "" | "not found" | "timed out after 10 s" | ...

    @property
    def is_ok(self) -> bool:
        return self.returncode == 0 and not self.problem


def run(argv: List[str], timeout_s: float = 10.0, env: Optional[Dict[str, str]] = None) -> Result:
    """Run without a shell and without standard input; output beyond MAX_OUTPUT_BYTES is cut. Never raises OSError."""
    variables = dict(os.environ, LC_ALL="C", LANG="C") if env is None else env
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            start_new_session=True,
        )
    except FileNotFoundError:
        return Result(None, "", "", "not found")
    except (OSError, ValueError) as error:
        if isinstance(error, PermissionError) and "/" not in argv[0] and shutil.which(argv[0]) is None:
            return Result(None, "", "", "not found")  # a folder of the PATH is closed to this user
        return Result(None, "", "", "cannot be started: %s" % error)
    output, error_output, ended = _collect(process, time.monotonic() + timeout_s)
    if not ended:
        _kill(process)
        return Result(None, output, error_output, "timed out after %g s" % timeout_s)
    return Result(process.returncode, output, error_output, "")


def _collect(process: "subprocess.Popen[bytes]", deadline: float) -> "tuple[str, str, bool]":
    """Read both pipes until they close and the process ends, or the deadline passes."""
    assert process.stdout is not None
    assert process.stderr is not None
    buffers = {process.stdout: bytearray(), process.stderr: bytearray()}
    open_pipes = list(buffers)
    while open_pipes:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            break
        # a grandchild may keep the pipes open after the process has ended: then only a moment more
        wait = min(remaining, 0.2) if process.poll() is not None else min(remaining, 1.0)
        ready, _, _ = select.select(open_pipes, [], [], wait)
        if not ready and process.poll() is not None:
            break
        for pipe in ready:
            chunk = os.read(pipe.fileno(), 65536)
            if not chunk:
                open_pipes.remove(pipe)
            elif len(buffers[pipe]) < MAX_OUTPUT_BYTES:
                buffers[pipe] += chunk
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
        ended = True
    except subprocess.TimeoutExpired:
        ended = False
    texts = [bytes(buffers[pipe]).decode("utf-8", "replace") for pipe in (process.stdout, process.stderr)]
    for pipe in buffers:
        pipe.close()
    return texts[0], texts[1], ended


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill the whole session that `run` started; a process that does not die is abandoned."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(KILL_WAIT_S)
    except subprocess.TimeoutExpired:
        process.returncode = -signal.SIGKILL  # so that the destructor does not wait or warn
