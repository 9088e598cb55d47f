"""What a test world asks of the machine. A missing part skips the test, and fails it where CI=true."""

import functools
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
    for name in ("ip", "nsenter", "unshare"):
        require_program(name)
    require(can_make_namespaces(), "the kernel does not let this user make namespaces")


@functools.cache
def can_make_namespaces() -> bool:
    """Tried once: a network namespace, a veth pair in it, and the others by unshare."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    ip = shutil.which("ip", path=path)
    if os.geteuid() != 0 or ip is None or shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return False
    probe = f"tgprobe{os.getpid()}"
    veth = ["-n", probe, "link", "add", "tgp0", "type", "veth", "peer", "name", "tgp1"]
    mount = ["unshare", "-mup", "-f", "sh", "-c", "mount --make-rprivate / && mount -t proc proc /proc"]
    try:
        return all(
            subprocess.run(words, capture_output=True, check=False).returncode == 0
            for words in ([ip, "netns", "add", probe], [ip, *veth], mount)
        )
    finally:
        subprocess.run([ip, "netns", "del", probe], capture_output=True, check=False)
