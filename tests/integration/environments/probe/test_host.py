"""Facts of the host: GPUs by a stand-in for nvidia-smi, ports, the loader, variables; secrets stay where they are."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from worlds.compiling import Compiler, Link
from worlds.gpus import Card, Process, write_nvidia_smi
from worlds.venvs import Venv
from worlds.wheels import Wheel

from treegraft.environments.agent.host import gpus
from treegraft.environments.probe import probe
from treegraft.records import to_json

A6000 = Card("NVIDIA RTX A6000", "8.6", 49140)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on the PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_gpus_and_a_dead_one(programs: Path) -> None:
    cards = [A6000, Card("NVIDIA RTX A6000", "8.6", 49140, is_dead=True)]
    processes = [Process(0, 4242, "/srv/ddtree/bin/python", 41210)]
    write_nvidia_smi(programs / "nvidia-smi", cards, driver="580.82.07", cuda="13.0", processes=processes)
    found = probe("/", host_only=True).host.gpus
    assert (found.driver_version, found.driver_cuda_version) == ("580.82.07", "13.0")
    assert [gpu.compute_capability for gpu in found.devices] == ["8.6", ""]
    assert found.devices[1].health == "unusable"
    assert "requires reset" in found.devices[1].health_detail
    assert [(p.pid, p.gpu_uuid) for p in found.processes] == [(4242, found.devices[0].uuid)]


def test_nvidia_smi_that_hangs_is_a_fact(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "DEADLINE_S", 0.5)
    (programs / "nvidia-smi").write_text("#!/bin/sh\nsleep 60\n")
    (programs / "nvidia-smi").chmod(0o755)
    problems: list[tuple[str, str]] = []
    assert gpus.read_gpus(lambda *row: problems.append(row))["detail"] == "nvidia-smi: timed out after 0.5 s"
    assert problems == [("nvidia-smi", "timed out after 0.5 s")]


@pytest.mark.parametrize(
    ("said", "is_partial"),
    [("Failed to initialize NVML: Driver/library version mismatch", True), ("No devices were found", False)],
)
def test_nvidia_smi_that_lists_nothing(programs: Path, said: str, is_partial: bool) -> None:
    """A driver that is broken is no host without GPUs: nobody knows what there is."""
    (programs / "nvidia-smi").write_text(f"#!/bin/sh\necho '{said}'\nexit 9\n")
    (programs / "nvidia-smi").chmod(0o755)
    inventory = probe("/", host_only=True)
    assert inventory.host.gpus.detail == said
    assert [(p.subject, p.message) for p in inventory.problems] == ([("nvidia-smi", said)] if is_partial else [])


def test_no_gpu() -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has an NVIDIA driver")
    gpus = probe("/", host_only=True).host.gpus
    assert (gpus.devices, gpus.detail) == ((), "no NVIDIA driver was found")


def test_port_in_use_with_its_process() -> None:
    code = (
        "import socket, time; s = socket.create_server(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", code, "--api-key", "s3cr3t-value", "--model", "m"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        number = int(process.stdout.readline())
        inventory = probe("/", host_only=True)
        process.kill()
    port = next(port for port in inventory.host.ports if port.port == number)
    assert (port.address, port.pid) == ("127.0.0.1", process.pid)
    assert port.command.endswith("--api-key *** --model m")
    assert "s3cr3t-value" not in to_json(inventory)


def test_ipv6_port() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        number = listener.getsockname()[1]
        ports = probe("/", host_only=True).host.ports
    assert [port.address for port in ports if port.port == number] == ["::1"]


def test_secrets_of_the_environment_do_not_travel(venv: Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecretvalue")
    monkeypatch.setenv("PIP_INDEX_URL", "https://joe:hunter2@index.example/simple")
    text = '{"url": "https://bot:pw12345@git.example/a.git", "vcs_info": {"vcs": "git", "commit_id": "c"}}'
    Wheel("fromgit", "1", {"fromgit-1.dist-info/direct_url.json": text}).unpack(venv.site_packages)
    inventory = probe(str(venv.prefix))
    document = to_json(inventory)
    for secret in ("verysecret", "hunter2", "pw12345", "HF_TOKEN"):
        assert secret not in document
    assert inventory.host.variables["PIP_INDEX_URL"] == "https://***@index.example/simple"


def test_libraries_outside_are_found_by_the_loaders_rules(
    venv: Venv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in LD_LIBRARY_PATH, one behind an absolute RPATH, the C library always; one that nobody has."""
    compiler = Compiler(tmp_path / "objects")
    outside = compiler.library("int far(void) { return 1; }", Link(soname="libfar.so.1"))
    lost = compiler.library("int lost(void) { return 1; }", Link(soname="liblost.so.1"))
    behind = compiler.library("int behind(void) { return 1; }", Link(soname="libbehind.so.1"))
    user = compiler.library(
        "int far(void); int lost(void); int behind(void); int use(void) { return far() + lost() + behind(); }",
        Link(soname="libuser.so", needs=[outside, lost, behind], rpath=str(tmp_path / "rpath")),
    )
    for folder, name, native in (("polluting", "libfar.so.1", outside), ("rpath", "libbehind.so.1", behind)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(native.data)
    Wheel("user", "1", {"user/libuser.so": user.data}).unpack(venv.site_packages)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "polluting"))
    host = probe(str(venv.prefix)).host
    assert host.loader.library_path == (str(tmp_path / "polluting"),)
    libraries = {library.path: library for library in host.system_libraries}
    assert libraries[str(tmp_path / "polluting" / "libfar.so.1")].exports == ("far",)
    assert libraries[str(tmp_path / "rpath" / "libbehind.so.1")].exports == ("behind",)
    assert not any("liblost" in path for path in libraries)
    libc = next(library for library in libraries.values() if library.soname == "libc.so.6")
    assert "GLIBC_2.2.5" in libc.version_definitions


def test_libraries_of_another_environment_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native = Compiler(tmp_path / "objects").library("int odd(void) { return 1; }", Link(soname="libodd.so.9"))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libodd.so.9").write_bytes(native.data)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "lib"))
    libraries = probe("/", host_only=True, sonames=["libodd.so.9"]).host.system_libraries
    assert any(library.exports == ("odd",) for library in libraries)


def test_disk_facts(venv: Venv) -> None:
    host = probe(str(venv.prefix)).host
    filesystem = host.filesystems[0]
    status = os.statvfs(venv.prefix)
    assert filesystem.path == str(venv.prefix)
    assert filesystem.total_bytes == status.f_frsize * status.f_blocks
    assert filesystem.is_noexec is False
    assert filesystem.mount_point


def test_disk_facts_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "venv"
    filesystem = probe(str(place), host_only=True).host.filesystems[0]
    assert filesystem.path == str(place)
    assert filesystem.mount_point == probe(str(tmp_path), host_only=True).host.filesystems[0].mount_point
    assert not place.parent.exists()
