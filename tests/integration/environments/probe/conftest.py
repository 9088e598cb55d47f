"""A cache folder of its own for every test, a real sshd, and environments small enough to be probed in a moment."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from worlds.needs import require
from worlds.ssh import Client, Server, sshd
from worlds.venvs import Venv, quick_venv, this_python, two_dists


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TREEGRAFT_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    return quick_venv(tmp_path / "venv", this_python(), two_dists())


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The user's ssh configuration, named by TREEGRAFT_SSH_COMMAND."""
    (tmp_path / "client").mkdir()
    client = Client(tmp_path / "client")
    monkeypatch.setenv("TREEGRAFT_SSH_COMMAND", str(client.bin / "ssh"))
    return client


@pytest.fixture
def server(tmp_path: Path, client: Client) -> Iterator[Server]:
    """A host named `far`, its key known."""
    (tmp_path / "server").mkdir()
    with sshd(tmp_path / "server", client) as server:
        client.add_host("far", server.address, server.port)
        client.trust(server.address, server.port, server.host_key.public)
        yield server


@pytest.fixture
def unprivileged() -> None:
    """Root reads everything: tests of unreadable files need another user."""
    require(os.geteuid() == 0, "only root can give files to others and become another user")
