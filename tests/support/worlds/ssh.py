"""A real OpenSSH server on loopback and the configuration of a user who may log into it.

Knows sshd's and ssh's files; does not know network namespaces (hosts) or environments. OpenSSH takes the home folder
from the password file and not from $HOME, so a user's own configuration is given by a wrapper named `ssh` that adds
`-F`; it must come first on PATH.
"""

import os
import pwd
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from worlds.needs import require_program


@dataclass(frozen=True)
class Keys:
    """A key pair made for one test run; `public` is the line of the .pub file."""

    private: Path
    public: str


def make_keys(path: Path) -> Keys:
    keygen = require_program("ssh-keygen")
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)], check=True)
    return Keys(path, path.with_suffix(".pub").read_text().strip())


@dataclass
class Client:
    """The user's side: one config file, one known_hosts file, one wrapper. `bin` goes first on PATH."""

    folder: Path
    keys: Keys = field(init=False)

    def __post_init__(self) -> None:
        self.keys = make_keys(self.folder / "id_test")
        self.config.write_text("")
        self.known_hosts.write_text("")
        self.bin.mkdir()
        wrapper = self.bin / "ssh"
        ssh = require_program("ssh")
        wrapper.write_text(f'#!/bin/sh\nexec {ssh} -F {shlex.quote(str(self.config))} "$@"\n')
        wrapper.chmod(0o755)

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    def add_host(self, alias: str, address: str, port: int, extra: str = "") -> None:
        """A Host block, as a user writes it; host keys are checked strictly, as by default."""
        with self.config.open("a") as stream:
            stream.write(
                f"Host {alias}\n  HostName {address}\n  Port {port}\n  User {_user()}\n"
                f"  IdentityFile {self.keys.private}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
                f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile /dev/null\n  {extra}\n"
            )

    def trust(self, address: str, port: int, public_key: str) -> None:
        """What a user does after checking a host key."""
        name = address if port == 22 else f"[{address}]:{port}"
        with self.known_hosts.open("a") as stream:
            stream.write(f"{name} {' '.join(public_key.split()[:2])}\n")

    def variables(self) -> dict[str, str]:
        """PATH with the wrapper first."""
        return {"PATH": f"{self.bin}:{os.environ['PATH']}"}


@dataclass(frozen=True)
class Server:
    """A running sshd. `log` is what it says about itself."""

    address: str
    port: int
    host_key: Keys
    log: Path
    process: "subprocess.Popen[bytes]"


@contextmanager
def sshd(
    folder: Path,
    client: Client,
    *,
    address: str = "127.0.0.1",
    port: int | None = None,
    variables: Mapping[str, str] | None = None,
    wrapper: Sequence[str] = (),
    extra: str = "",
) -> Iterator[Server]:
    """Run sshd until the block ends, with host keys of its own.

    variables: set in every session (PATH, LD_LIBRARY_PATH ...). wrapper: words before the sshd command, for
    namespaces. extra: further lines of sshd_config, such as ForceCommand.
    """
    program = require_program("sshd")
    host_key = make_keys(folder / "host_key")
    port = port or free_port(address)
    authorized = folder / "authorized_keys"
    authorized.write_text(client.keys.public + "\n")
    lines = [
        f"Port {port}", f"ListenAddress {address}", f"HostKey {host_key.private}", f"AuthorizedKeysFile {authorized}",
        f"PidFile {folder}/sshd.pid", "UsePAM no", "StrictModes no", "PasswordAuthentication no",
        "KbdInteractiveAuthentication no", "PubkeyAuthentication yes", "UseDNS no", "PermitRootLogin yes",
        "PrintMotd no", "LogLevel VERBOSE",
    ]  # fmt: skip
    if variables:
        pairs = " ".join(f'"{name}={value}"' for name, value in variables.items())
        lines.append(f"SetEnv {pairs}")
    config = folder / "sshd_config"
    config.write_text("\n".join([*lines, extra, ""]))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where its unprivileged child lives
    log = folder / "sshd.log"
    with log.open("wb") as stream:
        process = subprocess.Popen([*wrapper, program, "-D", "-e", "-f", str(config)], stdout=stream, stderr=stream)
    try:
        _wait_for_banner(process, log)
        yield Server(address, port, host_key, log, process)
    finally:
        process.kill() if wrapper else process.terminate()  # unshare ignores SIGTERM; its child dies with it
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for_banner(process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until sshd says that it listens: nothing has to be sent into its namespace for that."""
    deadline = time.monotonic() + 20
    while b"Server listening" not in log.read_bytes():
        assert process.poll() is None, f"sshd ended: {log.read_text()}"
        assert time.monotonic() < deadline, f"sshd does not listen: {log.read_text()}"
        time.sleep(0.02)


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name
