"""Two hosts as in the story: A with a patched sglang and torch +cu130, B with a training environment on +cu128.

Wheels are toys with compiled libraries, GPUs are synthetic; ssh, uv, the environments and the loader are real. Knows
how the hosts are furnished, not what is expected of treegraft there.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uv
from transplant import ADDED, PATCHED, Toys, pydantic_toy
from worlds.compiling import Compiler
from worlds.gpus import Card, Process, write_nvidia_smi
from worlds.hosts import NetHost, loopback_host, net_host
from worlds.index import FolderIndex, serve
from worlds.needs import can_make_namespaces, require_program
from worlds.ssh import Client
from worlds.venvs import Python, clean_variables, this_python
from worlds.wheels import Wheel

NEW_DRIVER = ("580.82.07", "13.0")
OLD_DRIVER = ("570.124.06", "12.8")
BUSY_PORT = 30000


@dataclass(frozen=True)
class World:
    """a, b: the hosts, `gpu-a` and `gpu-b` for ssh. variables: of the user who runs treegraft."""

    a: NetHost
    b: NetHost
    variables: Mapping[str, str]
    toys: Toys
    place: Path

    def treegraft(self, *arguments: str, exit_code: int = 0) -> str:
        """Standard output of the command, run as a user does."""
        command = [sys.executable, "-m", "treegraft", "env", *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, env=clean_variables(self.variables), cwd=self.place, check=False
        )
        assert done.returncode == exit_code, (
            f"exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
        return done.stdout

    def path(self, host: NetHost, name: str) -> str:
        """An environment as HOST:PATH."""
        return f"{host.alias}:{host.home / name}"


@contextmanager
def story_world(place: Path) -> Iterator[World]:
    """Both hosts and an index, until the block ends. `place`: an empty folder."""
    for name in ("gcc", "objcopy", "sshd"):
        require_program(name)
    (place / "client").mkdir()
    client = Client(place / "client")
    toys = Toys(Compiler(place / "objects"), this_python())
    with _host("gpu-a", 1, place / "a", client) as a, _host("gpu-b", 2, place / "b", client) as b:
        _furnish_a(a, toys, place)
        _furnish_b(b, toys, place)
        index = place / "index"
        for wheel in (toys.sglang(), toys.sgl_kernel(13), pydantic_toy(), pydantic_toy("2.0")):
            wheel.build(index)
        with serve(FolderIndex(index)) as url:
            variables = {
                "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
                "TREEGRAFT_SSH_COMMAND": str(client.bin / "ssh"),
                "TREEGRAFT_CACHE_DIR": str(place / "cache"),
                "UV_DEFAULT_INDEX": url,
                "UV_NO_CONFIG": "1",
                "UV_CACHE_DIR": str(place / "uv"),
            }
            yield World(a, b, variables, toys, place)


def _host(alias: str, number: int, folder: Path, client: Client) -> AbstractContextManager[NetHost]:
    """Namespaces where the kernel lets us, an sshd on another port elsewhere."""
    (folder / "ssh").mkdir(parents=True)
    if can_make_namespaces():
        return net_host(alias, number, folder, client)
    return loopback_host(alias, folder, client)


def _furnish_a(host: NetHost, toys: Toys, place: Path) -> None:
    cards = [Card("NVIDIA RTX A6000", "8.6", 49140), Card("NVIDIA RTX A6000", "8.6", 49140, is_dead=True)]
    write_nvidia_smi(host.folder / "bin" / "nvidia-smi", cards, driver=NEW_DRIVER[0], cuda=NEW_DRIVER[1])
    serving = [*toys.torch(13), toys.sgl_kernel(13), toys.sglang(), pydantic_toy()]
    uv_venv(host, "serve/venv", toys.python, serving, place)
    for path, text in {**PATCHED, **ADDED}.items():
        (site_packages(host, "serve/venv", toys.python) / path).write_text(text)


def _furnish_b(host: NetHost, toys: Toys, place: Path) -> None:
    set_driver(host, NEW_DRIVER)
    trainer = Wheel("trainer", "1.0", {"trainer/__init__.py": "import torch\n"}, ("torch",))
    uv_venv(host, "train/venv", toys.python, [*toys.torch(12), trainer], place)
    uv_venv(host, "empty/venv", toys.python, [], place)
    service = host.folder / "ddtree_service.py"
    service.write_text(
        "import socket, time\ns = socket.socket()\ns.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        f"s.bind(('127.0.0.1', {BUSY_PORT}))\ns.listen()\nopen({str(host.home / 'listens')!r}, 'w').close()\n"
        "time.sleep(3600)\n"
    )
    process = host.start(str(toys.python.executable), str(host.home / service.name))
    while not (host.folder / "listens").exists():
        assert process.poll() is None, f"port {BUSY_PORT} cannot be had"


def set_driver(host: NetHost, driver: tuple[str, str]) -> None:
    """B's eight GPUs under a driver of this version, that runs CUDA up to this one."""
    cards = [Card("NVIDIA RTX PRO 6000 Blackwell", "12.0", 97887, used_mib=9000 if n == 0 else 4) for n in range(8)]
    write_nvidia_smi(
        host.folder / "bin" / "nvidia-smi", cards, driver=driver[0], cuda=driver[1],
        processes=[Process(0, 4242, "python ddtree_service.py", 8990)],
    )  # fmt: skip


def uv_venv(host: NetHost, name: str, python: Python, wheels: list[Wheel], place: Path) -> None:
    """A venv that the host's user made with uv, which is not on the host's PATH any more."""
    links = place / "links" / host.alias / name
    built = [str(wheel.build(links)) for wheel in wheels]
    variables = {"UV_CACHE_DIR": str(place / "uv-host"), "UV_NO_CONFIG": "1", "UV_OFFLINE": "1"}
    prefix = str(host.home / name)
    host.run(uv.find_uv_bin(), "venv", "-q", "--no-project", "-p", str(python.executable), prefix, variables=variables)
    if built:
        words = ["pip", "install", "-q", "--no-index", "--no-deps", "--link-mode", "copy", "--python", prefix, *built]
        host.run(uv.find_uv_bin(), *words, variables=variables)


def site_packages(host: NetHost, name: str, python: Python) -> Path:
    """Seen from outside the host."""
    return host.folder / name / "lib" / f"python{python.minor}" / "site-packages"


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """What a write would alter: names, sizes, times of change."""
    rows = []
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            status = os.lstat(os.path.join(parent, name))
            rows.append((os.path.join(parent, name), status.st_size, status.st_ctime_ns))
    return sorted(rows)
