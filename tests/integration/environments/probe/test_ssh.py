"""Probing over a real sshd: what arrives, what is left behind, and what is said when it does not work."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from worlds.needs import require_program
from worlds.ssh import Client, Server, free_port, make_keys, sshd
from worlds.venvs import Venv

from treegraft.environments.connect import connect, parse_destination
from treegraft.environments.inventory import Inventory
from treegraft.environments.probe import probe, read_files
from treegraft.errors import HostError
from treegraft.records import from_json, to_json


def listing(folder: Path) -> list[tuple[str, int, int, int, int]]:
    """Every name below with size, mode, inode and times of change: what a write would alter."""
    rows = []
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            status = os.lstat(os.path.join(parent, name))
            rows.append(
                (os.path.join(parent, name), status.st_size, status.st_mode, status.st_mtime_ns, status.st_ctime_ns)
            )
    return sorted(rows)


@pytest.mark.usefixtures("server")
def test_probe_over_ssh_equals_a_local_one(venv: Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", pwd.getpwuid(os.getuid()).pw_dir)  # as sshd sets it
    far, near = probe(f"far:{venv.prefix}"), probe(str(venv.prefix))
    assert far.environment == near.environment
    assert far.host.system.hostname == near.host.system.hostname
    assert not far.partial, far.problems


@pytest.mark.usefixtures("server")
def test_nothing_is_written(venv: Venv, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    before = listing(home)
    probe(f"far:{venv.prefix}")
    assert listing(home) == before


@pytest.mark.usefixtures("server")
def test_inventory_is_a_document(venv: Venv) -> None:
    inventory = probe(f"far:{venv.prefix}")
    assert from_json(Inventory, to_json(inventory)) == inventory


@pytest.mark.usefixtures("server")
def test_files_can_be_read(venv: Venv) -> None:
    names = [f"lib/python{venv.minor}/site-packages/beta.py", "nothing/there.py"]
    assert read_files(f"far:{venv.prefix}", names) == {names[0]: b"y = 2\n"}


@pytest.mark.usefixtures("server")
def test_host_alone() -> None:
    inventory = probe("far:", host_only=True)
    assert inventory.environment is None
    assert inventory.host.system.kernel == os.uname().release
    assert any(library.soname == "libc.so.6" for library in inventory.host.system_libraries)


def test_words_reach_the_program_as_they_are(server: Server) -> None:
    assert server.port
    host = connect(parse_destination("far:/x"))
    words = ["a b", "$HOME", "it's", "*", "", "semi;colon", "new\nline", '"quoted"', "\\back"]
    done = host.run(["printf", "%s|", *words])
    assert done.output.decode() == "".join(word + "|" for word in words)


def test_standard_input_of_any_size_arrives(server: Server) -> None:
    assert server.port
    data = os.urandom(3 << 20)
    assert connect(parse_destination("far:/x")).run(["cat"], data).output == data


def test_banner_and_noisy_shell_do_not_disturb(tmp_path: Path, client: Client, venv: Venv) -> None:
    """A shell that prints before, and to both outputs."""
    noisy = tmp_path / "noisy"
    noisy.write_text(
        '#!/bin/sh\necho "Welcome! \\\\033[31m"\necho warning >&2\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    noisy.chmod(0o755)
    (tmp_path / "noisy-server").mkdir()
    with sshd(tmp_path / "noisy-server", client, extra=f"ForceCommand {noisy}") as server:
        client.add_host("loud", server.address, server.port)
        client.trust(server.address, server.port, server.host_key.public)
        assert len(probe(f"loud:{venv.prefix}").environment.dists) == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("shell", ["tcsh", "fish", "bash", "dash"])
def test_other_shells(tmp_path: Path, client: Client, venv: Venv, shell: str) -> None:
    program = require_program(shell)
    runner = tmp_path / "shell"
    runner.write_text(f'#!/bin/sh\nexec {program} -c "$SSH_ORIGINAL_COMMAND"\n')
    runner.chmod(0o755)
    (tmp_path / "server").mkdir()
    with sshd(tmp_path / "server", client, extra=f"ForceCommand {runner}") as server:
        client.add_host("odd", server.address, server.port)
        client.trust(server.address, server.port, server.host_key.public)
        assert probe(f"odd:{venv.prefix}").environment is not None


def test_unreachable_host(client: Client) -> None:
    client.add_host("gone", "127.0.0.1", free_port())
    with pytest.raises(HostError, match=r"^host gone: it refuses the connection .*check that sshd runs"):
        probe("gone:/venv")


def test_unknown_name(client: Client) -> None:
    client.add_host("nowhere", "host.invalid", 22)
    with pytest.raises(HostError, match=r"^host nowhere: its name is not known"):
        probe("nowhere:/venv")


def test_unknown_host_key_is_never_accepted(server: Server, client: Client) -> None:
    client.known_hosts.write_text("")
    assert server.port
    with pytest.raises(HostError, match=r"^host far: its host key is not known .*compare the fingerprint"):
        probe("far:/venv")
    assert client.known_hosts.read_text() == ""


def test_changed_host_key(server: Server, client: Client, tmp_path: Path) -> None:
    other = make_keys(tmp_path / "other_key")
    client.known_hosts.write_text("")
    client.trust(server.address, server.port, other.public)
    before = client.known_hosts.read_text()
    with pytest.raises(HostError, match=r"^host far: its host key is not the one in your known_hosts"):
        probe("far:/venv")
    assert client.known_hosts.read_text() == before


def test_refused_login(server: Server, client: Client, tmp_path: Path) -> None:
    assert server.port
    (tmp_path / "server" / "authorized_keys").write_text("")
    assert client.keys
    with pytest.raises(HostError, match=r"^host far: it refuses your login"):
        probe("far:/venv")


@pytest.mark.usefixtures("server")
def test_no_such_environment() -> None:
    with pytest.raises(HostError, match=r"^far: /no/such/venv: no such file or directory$"):
        probe("far:/no/such/venv")


def test_host_without_python(tmp_path: Path, client: Client) -> None:
    """A host where nothing is found under any name: only sh exists for the command."""
    bare = tmp_path / "bare"
    bare.write_text("#!/bin/sh\nexit 127\n")
    bare.chmod(0o755)
    (tmp_path / "server").mkdir()
    with sshd(tmp_path / "server", client, extra=f"ForceCommand {bare}") as server:
        client.add_host("bare", server.address, server.port)
        client.trust(server.address, server.port, server.host_key.public)
        with pytest.raises(HostError, match=r"^host bare: no Python 3.8 or newer was found \(tried python3, "):
            probe("bare:/venv")


def test_an_old_or_missing_python3_is_passed_over(tmp_path: Path, client: Client, venv: Venv) -> None:
    """`python3` is too old, `python` is not there; the environment's own interpreter does it."""
    old = tmp_path / "path" / "python3"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\ncat > /dev/null\necho 'Python 3.6 is too old' >&2\nexit 86\n")
    old.chmod(0o755)
    (tmp_path / "server").mkdir()
    with sshd(tmp_path / "server", client, variables={"PATH": str(old.parent)}) as server:
        client.add_host("aged", server.address, server.port)
        client.trust(server.address, server.port, server.host_key.public)
        inventory = probe(f"aged:{venv.prefix}")
    assert inventory.host.agent_python == f"{venv.prefix}/bin/python"


def test_silence_is_given_up(server: Server) -> None:
    assert server.port
    host = connect(parse_destination("far:/x"))
    with pytest.raises(HostError, match=r"^far: no answer for 0.5 s"):
        host.run(["sleep", "30"], idle_timeout_s=0.5)


@pytest.mark.usefixtures("server")
def test_command_line_prints_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "treegraft", "env", "probe", f"far:{tmp_path}/none"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "no such file or directory" in done.stderr


@pytest.mark.usefixtures("server")
def test_hosts_alone_are_compared(tmp_path: Path, venv: Venv) -> None:
    words = [sys.executable, "-m", "treegraft", "env", "diff", "far:"]
    done = subprocess.run([*words, "far:"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "host:\n  no difference" in done.stdout
    done = subprocess.run([*words, str(venv.prefix)], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "distributions: none" in done.stdout
    done = subprocess.run([*words[:4], "check", "far:"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
