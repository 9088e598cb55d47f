"""Hosts of their own on one machine: a network, mount, process and host name namespace each, with an sshd inside.

Knows ip, unshare and nsenter; does not know what is installed on the hosts. Everything a host has of its own lies in
/srv, which is another folder for each of them; the rest of the file system is shared. Where the kernel allows no
namespaces, `loopback_host` is an sshd on a port of its own whose things lie in a folder: less apart, the same use.
"""

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from worlds.needs import require_namespaces, require_program
from worlds.ssh import Client, Server, sshd
from worlds.venvs import clean_variables

HOME = Path("/srv")
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass
class NetHost:
    """`alias`: how ssh reaches it. `home`: the folder of its own things, as the host sees it; `folder`: the same one
    from outside. `pid`: of its first process, None for one without namespaces."""

    alias: str
    home: Path
    folder: Path
    server: Server
    pid: int | None
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def enter(self) -> list[str]:
        if self.pid is None:
            return []
        return ["nsenter", "-t", str(self.pid), "-m", "-u", "-n", "-p", "--"]

    def run(self, *command: str, variables: Mapping[str, str] | None = None) -> str:
        """Standard output of a command that runs on the host."""
        done = subprocess.run(
            [*self.enter(), *command], capture_output=True, text=True, env=clean_variables(variables), check=False
        )
        assert done.returncode == 0, f"{self.alias}: {shlex.join(command)}: {done.stderr}"
        return done.stdout

    def start(self, *command: str) -> "subprocess.Popen[bytes]":
        """A process that lives until the host is torn down."""
        process = subprocess.Popen(
            [*self.enter(), *command], env=clean_variables(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.started.append(process)
        return process

    def inside(self, path: Path) -> Path:
        """A path below the host's home, seen from outside."""
        return self.folder / path.relative_to(self.home)


@contextmanager
def net_host(
    alias: str, number: int, folder: Path, client: Client, variables: Mapping[str, str] | None = None
) -> Iterator[NetHost]:
    """One host at 10.213.NUMBER.2, known to the client by `alias` and trusted.

    variables: of its ssh sessions; PATH is /srv/bin and the system's.
    """
    require_namespaces()
    ip = require_program("ip")
    namespace = f"tg{os.getpid()}n{number}"
    outer, inner = f"tg{os.getpid() % 100000}o{number}", "eth0"
    near, far = f"10.213.{number}.1", f"10.213.{number}.2"
    own = folder / "srv"
    (own / "bin").mkdir(parents=True)
    with ExitStack() as stack:
        _ip(ip, "netns", "add", namespace)
        stack.callback(_ip, ip, "netns", "del", namespace)
        _ip(ip, "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", namespace)
        _ip(ip, "addr", "add", f"{near}/24", "dev", outer)
        _ip(ip, "link", "set", outer, "up")
        for words in (f"addr add {far}/24 dev {inner}", f"link set {inner} up", "link set lo up"):
            _ip(ip, "-n", namespace, *words.split())
        stack.callback(_ip, ip, "link", "del", outer)
        # SHLVL keeps Debian's bash from reading ~/.bashrc of this machine, which may put more on PATH.
        session = {"PATH": f"{HOME}/bin:{SYSTEM_PATH}", "SHLVL": "2", **(variables or {})}
        wrapper = _wrapper(ip, namespace, alias, own)
        server = stack.enter_context(
            sshd(folder / "ssh", client, address=far, port=22, variables=session, wrapper=wrapper)
        )
        client.add_host(alias, far, 22)
        client.trust(far, 22, server.host_key.public)
        host = NetHost(alias, HOME, own, server, _first_child(server.process.pid))
        stack.callback(_stop, host)
        yield host


@contextmanager
def loopback_host(
    alias: str, folder: Path, client: Client, variables: Mapping[str, str] | None = None
) -> Iterator[NetHost]:
    """The same without namespaces, for users who may not make them."""
    own = folder / "srv"
    (own / "bin").mkdir(parents=True)
    session = {"PATH": f"{own}/bin:{SYSTEM_PATH}", "SHLVL": "2", **(variables or {})}
    with sshd(folder / "ssh", client, variables=session) as server:
        client.add_host(alias, server.address, server.port)
        client.trust(server.address, server.port, server.host_key.public)
        host = NetHost(alias, own, own, server, None)
        try:
            yield host
        finally:
            _stop(host)


def _wrapper(ip: str, namespace: str, alias: str, own: Path) -> Sequence[str]:
    """Words before `sshd`: its namespaces end with it, since it is the first process of its own."""
    script = (
        f"mount --make-rprivate / && mount --bind {shlex.quote(str(own))} {HOME} && mount -t proc proc /proc && "
        f'hostname {shlex.quote(alias)} && exec "$@"'
    )
    unshare = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child=SIGKILL"]
    return [ip, "netns", "exec", namespace, *unshare, "sh", "-c", script, "sh"]


def _first_child(pid: int) -> int:
    """The process that unshare forked; `ip netns exec` and unshare replace themselves, so it is a direct child."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(children) == 1, children
    return int(children[0])


def _stop(host: NetHost) -> None:
    for process in host.started:
        process.kill()
        process.wait()


def _ip(ip: str, *words: str) -> None:
    done = subprocess.run([ip, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
