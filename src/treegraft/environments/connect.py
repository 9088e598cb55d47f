"""The one way to run something on a host: the user's own ssh, or this machine. Knows no environment and no agent.

Host keys are the user's ssh's business: BatchMode makes an unknown or changed one a failure, never a question, and
nothing here relaxes a check.
"""

import os
import selectors
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from treegraft import settings
from treegraft.environments.escape import terminal
from treegraft.errors import HostError, UsageError

CONNECT_TIMEOUT_S = 15
SSH_FAILED = 255  # ssh's own exit status for what is not the command's
MAX_OUTPUT_BYTES = 1 << 30
POLL_S = 0.5  # how often it is seen that a process has ended while somebody else holds its pipes
LINGER_S = 0.3
MAX_ERROR_BYTES = 1 << 20
# (in ssh's messages, what it means, what to do)
SSH_FAILURES = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is not the one in your known_hosts",
        "find out why before you remove the old key with ssh-keygen -R",
    ),
    (
        "Host key verification failed",
        "its host key is not known",
        "connect once by hand with ssh and compare the fingerprint",
    ),
    ("Permission denied", "it refuses your login", "check the user name and that a key works without a password"),
    ("Could not resolve hostname", "its name is not known", "check the name or add it to your ssh configuration"),
    ("Connection refused", "it refuses the connection", "check that sshd runs there, and the port"),
    ("timed out", "it does not answer", "check the address, the network and that the host is up"),
    ("No route to host", "there is no route to it", "check the address and the network"),
    ("Network is unreachable", "there is no route to it", "check the address and the network"),
)


@dataclass(frozen=True)
class Destination:
    """`host` None is this machine. `path` is "" when only a host was named."""

    host: str | None
    path: str

    def __str__(self) -> str:
        return self.path if self.host is None else f"{self.host}:{self.path}"


@dataclass(frozen=True)
class Completed:
    returncode: int
    output: bytes
    error: str  # standard error, not yet escaped


OnOutput = Callable[[bytes], None]


class Host(Protocol):
    """`run` needs words, not a command line: they reach the program as they are, whatever the host's shell."""

    @property
    def name(self) -> str: ...

    @property
    def is_local(self) -> bool: ...

    def run(
        self,
        command: Sequence[str],
        stdin: bytes = b"",
        *,
        idle_timeout_s: float = 120.0,
        on_output: OnOutput | None = None,
    ) -> Completed: ...


def parse_destination(text: str) -> Destination:
    """`HOST:PATH`, `user@host:path`, `[::1]:/path`, or a local path: one without a colon, or that starts with `/`,
    `./`, `../` or `~`. Raises UsageError."""
    if not text:
        raise UsageError("empty environment name: expected HOST:PATH or a local path")
    if text.startswith(("/", "./", "../", "~")) or text in (".", "..") or ":" not in text:
        return Destination(None, text)
    user, at, rest = text.partition("@")
    if not at or ":" in user or "/" in user or "[" in user:
        user, rest = "", text
    if rest.startswith("["):
        host, closed, path = rest[1:].partition("]")
        if not closed or not path.startswith(":"):
            raise UsageError(f"{terminal(text)!r}: expected [ADDRESS]:PATH")
        path = path[1:]
    else:
        host, _, path = rest.partition(":")
        if "/" in host:
            return Destination(None, text)
    destination = f"{user}@{host}" if user else host
    _check_host(host, destination, text)
    return Destination(destination, path)


def _check_host(host: str, destination: str, text: str) -> None:
    if not host or destination.startswith("-") or host.startswith("-"):
        raise UsageError(f"{terminal(text)!r}: {terminal(host)!r} is no host name; a name cannot start with '-'")
    if any(c.isspace() or not c.isprintable() for c in destination):
        raise UsageError(f"{terminal(text)!r}: white space or control characters in a host name")


def connect(destination: Destination) -> Host:
    """The host of a destination. Opens nothing yet: a host that cannot be reached fails at the first `run`."""
    return LocalHost() if destination.host is None else SshHost(destination.host)


class LocalHost:
    """This machine."""

    name = "this machine"
    is_local = True

    def run(
        self,
        command: Sequence[str],
        stdin: bytes = b"",
        *,
        idle_timeout_s: float = 120.0,
        on_output: OnOutput | None = None,
    ) -> Completed:
        """A program that is not there answers like a shell: exit status 127."""
        try:
            return _run(list(command), stdin, idle_timeout_s, on_output, self.name)
        except (FileNotFoundError, PermissionError) as error:
            return Completed(127, b"", f"{command[0]}: {error.strerror}")


class SshHost:
    """A host of the user's ssh configuration. Raises HostError, one line, when ssh cannot get there."""

    is_local = False

    def __init__(self, name: str) -> None:
        self.name = name

    def run(
        self,
        command: Sequence[str],
        stdin: bytes = b"",
        *,
        idle_timeout_s: float = 120.0,
        on_output: OnOutput | None = None,
    ) -> Completed:
        words = shlex.split(settings.read("TREEGRAFT_SSH_COMMAND"))
        options = ["-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}"]
        options += ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4", "-o", "ClearAllForwardings=yes"]
        line = shlex.join(command)  # single quotes only: understood by sh, csh and fish alike
        try:
            done = _run([*words, *options, "--", self.name, line], stdin, idle_timeout_s, on_output, self.name)
        except (FileNotFoundError, PermissionError) as error:
            raise HostError(f"{words[0]} cannot be started ({error.strerror}); install the OpenSSH client") from error
        if done.returncode == SSH_FAILED:
            raise HostError(explain_ssh_failure(self.name, done.error))
        return done


def explain_ssh_failure(host: str, messages: str) -> str:
    """One line: what ssh met, what it means and what to do."""
    last = [line.strip() for line in messages.splitlines() if line.strip()][-1:] or ["no message"]
    for words, meaning, remedy in SSH_FAILURES:
        if words in messages:
            return f"host {terminal(host)}: {meaning} ({terminal(last[0])}); {remedy}"
    return f"host {terminal(host)}: ssh failed ({terminal(last[0])}); try `ssh -- {terminal(host)} true` by hand"


def _run(argv: list[str], stdin: bytes, idle_timeout_s: float, on_output: OnOutput | None, name: str) -> Completed:
    """Feed standard input and collect both outputs together. Raises HostError after `idle_timeout_s` of silence."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # no terminal: ssh cannot ask for a password behind BatchMode's back
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    output, error = bytearray(), bytearray()
    try:
        _exchange(process, stdin, (output, error, on_output, idle_timeout_s))
        process.wait(timeout=idle_timeout_s)
    except (TimeoutError, subprocess.TimeoutExpired):
        raise HostError(f"{name}: no answer for {idle_timeout_s:g} s; the command was given up") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()
    return Completed(process.returncode, bytes(output), error.decode("utf-8", "replace"))


def _exchange(
    process: "subprocess.Popen[bytes]", data: bytes, sinks: tuple[bytearray, bytearray, OnOutput | None, float]
) -> None:
    """Until both outputs are closed; or until the process has ended and they have been silent for a moment, for a
    connection that ssh keeps open in the background (ControlPersist) holds them too."""
    output, error, on_output, idle_timeout_s = sinks
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin is not None
    assert stdout is not None
    assert stderr is not None
    os.set_blocking(stdin.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        selector.register(stderr, selectors.EVENT_READ)
        selector.register(stdin, selectors.EVENT_WRITE)
        view, deadline = memoryview(data), time.monotonic() + idle_timeout_s
        while selector.get_map():
            has_ended = process.poll() is not None
            left = max(0.0, deadline - time.monotonic())
            events = selector.select(min(left, LINGER_S if has_ended else POLL_S))
            if not events:
                if has_ended:
                    return
                if time.monotonic() >= deadline:
                    raise TimeoutError
                continue
            deadline = time.monotonic() + idle_timeout_s
            for key, _ in events:
                if key.fileobj is stdin:
                    view = _feed(stdin, view)
                    if not view:
                        selector.unregister(stdin)
                        _close_quietly(stdin)
                    continue
                chunk = os.read(key.fd, 1 << 18)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif key.fileobj is stderr:
                    error += chunk[: MAX_ERROR_BYTES - len(error)]
                else:
                    if len(output) + len(chunk) > MAX_OUTPUT_BYTES:
                        raise HostError(f"more than {MAX_OUTPUT_BYTES} bytes of output; the command was given up")
                    output += chunk
                    if on_output is not None:
                        on_output(chunk)


def _feed(stdin: IO[bytes], view: memoryview) -> memoryview:
    """What is left after one write; nothing when the other side has closed."""
    try:
        return view[os.write(stdin.fileno(), view[: 1 << 16]) :]
    except BlockingIOError:
        return view
    except BrokenPipeError:
        return view[:0]


def _close_quietly(stdin: IO[bytes]) -> None:
    try:
        stdin.close()
    except BrokenPipeError:
        return
