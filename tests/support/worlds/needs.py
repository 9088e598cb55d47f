"""What a test world asks of the machine. A missing part skips the test, and fails it where CI=true."""

import os
import shutil
import subprocess

import pytest


def require(condition: bool, reason: str) -> None:
    """Skip with the reason unless the condition holds; in CI nothing of this kind is skipped."""
    if condition:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, which CI must have")
    pytest.skip(reason)


def require_program(name: str) -> str:
    """Path of a program, also one in sbin."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    found = shutil.which(name, path=path)
    require(found is not None, f"{name} is not installed")
    assert found is not None
    return found


def require_namespaces() -> None:
    """Root, and a kernel that lets it make network and mount namespaces with a veth pair."""
    require(os.geteuid() == 0, "network namespaces need root")
    ip = require_program("ip")
    require_program("nsenter")
    probe = f"tgprobe{os.getpid()}"
    made = subprocess.run([ip, "netns", "add", probe], capture_output=True, check=False)
    try:
        works = made.returncode == 0
        works = works and subprocess.run(["unshare", "-mup", "-f", "true"], check=False).returncode == 0
        veth = ["link", "add", "tgp0", "type", "veth", "peer", "name", "tgp1", "netns", probe]
        works = works and subprocess.run([ip, "-n", probe, *veth], capture_output=True, check=False).returncode == 0
    finally:
        subprocess.run([ip, "netns", "del", probe], capture_output=True, check=False)
    require(works, "the kernel does not let this user make namespaces")
