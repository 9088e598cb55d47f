"""Makes `.venv` in the checkout and installs treegraft there, editable, with the extras asked for.

    python3 scripts/setup_env.py [--extras server,dev]

Standard library only, and readable by any Python >= 3.7, so that the wrong Python gets a line and not a traceback.
A repeated call does nothing: a stamp in the venv holds what it was made from. Does not know what the extras hold
(pyproject.toml does), and never replaces a torch that is installed: one in the venv or in the interpreter that runs
this is kept, by a constraint with its exact version.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "treegraft-setup.json"
PYTHONS = ((3, 11), (3, 12))
TORCH_RANGE = ((2, 11), (2, 15))
CPU_TORCH = "torch==2.13.0"
ANY_TORCH = "torch>=2.11,<2.15"
# Installed without their dependencies: what each extra's tests read beside the package itself.
BARE_REQUIREMENTS = {"dev": ["dflash==0.1.0"]}


class SetupError(Exception):
    """One line: what is wrong and what to do."""


def say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)


def run(command: list[str], what: str) -> None:
    """Run with its output shown. Raises SetupError that names `what`."""
    code = subprocess.call(command, stdout=sys.stderr)
    if code != 0:
        raise SetupError(f"{what} failed with exit code {code}; the lines above say why")


def answer(python: str, code: str) -> str | None:
    """What `code` prints under `python`; None when it does not start or fails."""
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def suitable_python() -> str:
    """This interpreter, or python3.12 / python3.11 from the PATH (a shim that does not start is passed over)."""
    if sys.version_info[:2] in PYTHONS:
        return sys.executable
    for major, minor in reversed(PYTHONS):
        path = shutil.which(f"python{major}.{minor}")
        if path and answer(path, "import sys; print(*sys.version_info[:2])") == f"{major} {minor}":
            return path
    raise SetupError(
        f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]}, and there is no python3.12 or "
        "python3.11 on the PATH; treegraft needs 3.11 or 3.12: install one, or name it: make PYTHON=/path/to/python3.12"
    )


def torch_version(python: str) -> str | None:
    """Version of the torch that `python` would import, by its metadata; None without one."""
    return answer(python, "from importlib.metadata import version; print(version('torch'))") or None


def in_range(version: str) -> bool:
    match = re.match(r"(\d+)\.(\d+)", version)
    return bool(match) and TORCH_RANGE[0] <= (int(match.group(1)), int(match.group(2))) < TORCH_RANGE[1]


def make_venv() -> None:
    """A venv of this interpreter; its packages are seen when a usable torch is among them."""
    base_torch = torch_version(sys.executable)
    is_shared = base_torch is not None and in_range(base_torch)
    if base_torch is not None:
        fate = "it is used" if is_shared else "outside 2.11-2.14, left alone"
        say(f"{sys.executable} has torch {base_torch}: {fate}")
    command = [sys.executable, "-m", "venv", str(VENV)] + (["--system-site-packages"] if is_shared else [])
    if answer(sys.executable, "import ensurepip") is None:
        command.append("--without-pip")
    say(f"making {VENV} with Python {sys.version.split()[0]}")
    run(command, "making the venv")
    if is_shared and sys.prefix != sys.base_prefix:
        # --system-site-packages means the base interpreter's; torch may lie in the venv that runs this.
        script = "import sysconfig; print(sysconfig.get_path('purelib'))"
        own, outer = answer(str(VENV_PYTHON), script), answer(sys.executable, script)
        Path(str(own), "treegraft-outer-venv.pth").write_text(f"{outer}\n")


def pip_command() -> list[str]:
    """pip for the venv: its own, one that ensurepip brings, or this interpreter's."""
    if answer(str(VENV_PYTHON), "import pip") is not None:
        return [str(VENV_PYTHON), "-m", "pip"]
    if answer(str(VENV_PYTHON), "import ensurepip") is not None:
        run([str(VENV_PYTHON), "-m", "ensurepip", "--default-pip"], "bringing pip into the venv")
        return [str(VENV_PYTHON), "-m", "pip"]
    if answer(sys.executable, "import pip") is not None:
        return [sys.executable, "-m", "pip", "--python", str(VENV_PYTHON)]
    raise SetupError(
        f"{sys.executable} has neither pip nor ensurepip; install them (Debian: apt-get install python3-venv)"
    )


def has_nvidia_gpu() -> bool:
    return Path("/dev/nvidia0").exists() or shutil.which("nvidia-smi") is not None


def pip_finds_cpu_torch(pip: list[str]) -> bool:
    """Does the user's own pip configuration lead to a CPU wheel: a local file, a +cpu version, or no CUDA libraries?"""
    command = [*pip, "install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--report", "-", CPU_TORCH]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    if done.returncode != 0:
        return False
    try:
        found = json.loads(done.stdout)["install"][0]
    except (ValueError, KeyError, IndexError):
        return False
    metadata = found["metadata"]
    needs_cuda = any(name.startswith(("nvidia-", "cuda-")) for name in metadata.get("requires_dist", []))
    return found["download_info"]["url"].startswith("file:") or "+cpu" in metadata["version"] or not needs_cuda


def install_torch(pip: list[str]) -> str:
    """Make sure that the venv has a torch; its exact version."""
    version = torch_version(str(VENV_PYTHON))
    if version is None:
        if has_nvidia_gpu():
            say("torch with its CUDA libraries is about 3 GB to download")
            run([*pip, "install", ANY_TORCH], "installing torch")
        elif pip_finds_cpu_torch(pip):
            run([*pip, "install", CPU_TORCH], "installing torch")
        else:
            run([*pip, "install", "--quiet", "uv>=0.5"], "installing uv")
            uv = [str(VENV_PYTHON), "-m", "uv", "pip", "install", "--python", str(VENV_PYTHON)]
            if subprocess.call([*uv, "--torch-backend", "cpu", ANY_TORCH], stdout=sys.stderr) != 0:
                say("no CPU build of torch is to be had; the normal one with CUDA libraries is about 3 GB to download")
                run([*pip, "install", ANY_TORCH], "installing torch")
        version = torch_version(str(VENV_PYTHON))
        if version is None:
            raise SetupError("torch was installed, but its metadata cannot be read")
    if not in_range(version):
        raise SetupError(
            f"{VENV} has torch {version}; treegraft needs 2.11 to 2.14 and replaces no installed torch: "
            "install another one there yourself, or move the venv away and run make again"
        )
    return version


def install_package(pip: list[str], extras: set[str], torch: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text(f"torch=={torch}\n")
        package = f"{ROOT}[{','.join(sorted(extras))}]"
        run([*pip, "install", "--constraint", str(constraints), "--editable", package], "installing treegraft")
    for extra in sorted(extras):
        for requirement in BARE_REQUIREMENTS.get(extra, []):
            run([*pip, "install", "--no-deps", requirement], f"installing {requirement}")


def fingerprint(python_version: str) -> str:
    digest = hashlib.sha256(python_version.encode())
    for path in (ROOT / "pyproject.toml", Path(__file__).resolve()):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def read_stamp() -> dict:
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}


def set_up(extras: set[str]) -> None:
    if VENV_PYTHON.is_symlink() or VENV_PYTHON.exists():
        version = answer(str(VENV_PYTHON), "import platform; print(platform.python_version())")
        if version is None:
            raise SetupError(f"{VENV_PYTHON} does not start (its Python is gone?); remove {VENV} and run make again")
        if tuple(int(part) for part in version.split(".")[:2]) not in PYTHONS:
            raise SetupError(f"{VENV} has Python {version}; treegraft needs 3.11 or 3.12: remove it and run make again")
        stamp = read_stamp()
        is_same = stamp.get("fingerprint") == fingerprint(version)
        if is_same and extras <= set(stamp.get("extras", [])):
            return
        extras = extras | set(stamp.get("extras", []))
    else:
        make_venv()
        version = answer(str(VENV_PYTHON), "import platform; print(platform.python_version())") or ""
    pip = pip_command()
    torch = install_torch(pip)
    say(f"installing treegraft with {', '.join(sorted(extras))}; torch {torch}")
    install_package(pip, extras, torch)
    STAMP.write_text(json.dumps({"fingerprint": fingerprint(version), "extras": sorted(extras), "torch": torch}) + "\n")
    say("done")


def main() -> int:
    parser = argparse.ArgumentParser(description="Make .venv in the checkout and install treegraft in it.")
    parser.add_argument("--extras", default="server", help="comma-separated extras of pyproject.toml (default server)")
    extras = {extra for extra in parser.parse_args().extras.split(",") if extra}
    try:
        python = suitable_python()
        if python != sys.executable:
            return subprocess.call([python, __file__, *sys.argv[1:]])
        # Two make runs at once: the second waits, then finds everything done.
        with open(__file__) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            set_up(extras)
    except SetupError as error:
        print(f"setup: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main())
