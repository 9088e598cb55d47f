"""Starts real server processes and watches them."""

import os
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai

PATIENCE_SECONDS = 60


@dataclass
class Server:
    """A running `treegraft serve`."""

    process: subprocess.Popen
    start: dict
    log: Path

    @property
    def url(self):
        return self.start["url"]

    @property
    def engine_process_id(self):
        return self.start["engine_process_id"]

    def client(self):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=PATIENCE_SECONDS)

    def http(self):
        return httpx.Client(base_url=self.url, timeout=PATIENCE_SECONDS)

    def health(self):
        return httpx.get(self.url + "/health").json()

    def wait(self):
        """The exit code."""
        return self.process.wait(PATIENCE_SECONDS)


def command(*arguments):
    return [sys.executable, "-m", "treegraft", "serve", *map(str, arguments)]


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "TREEGRAFT_LOG_LEVEL": "info"}


def is_gone(process_id):
    """No such process, or one that nobody has reaped yet."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition):
    """Polls; the caller's assertion fails when it never holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def first_line(stream):
    """The first line of a pipe, or "" when none comes in time."""
    lines = queue.SimpleQueue()
    threading.Thread(target=lambda: lines.put(stream.readline()), daemon=True).start()
    try:
        return lines.get(timeout=PATIENCE_SECONDS)
    except queue.Empty:
        return ""
