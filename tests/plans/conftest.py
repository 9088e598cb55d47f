"""The small story of tests/support/transplant.py, probed once a session, and an index that uv sees alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from inventories import gpu, with_gpus
from transplant import ADDED, PATCHED, Story, Toys, pydantic_toy
from worlds.compiling import Compiler
from worlds.index import FolderIndex, serve
from worlds.needs import require_program
from worlds.venvs import quick_venv, this_python
from worlds.wheels import Wheel

from treegraft.environments.probe import probe


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Toys:
    require_program("gcc")
    require_program("objcopy")
    return Toys(Compiler(tmp_path_factory.mktemp("objects")), this_python())


@pytest.fixture(scope="session")
def story(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Story:
    place = tmp_path_factory.mktemp("story")
    mine = toys.python
    source = quick_venv(place / "a", mine, [*toys.torch(13), toys.sgl_kernel(13), toys.sglang(), pydantic_toy()])
    for path, text in {**PATCHED, **ADDED}.items():
        (source.site_packages / path).write_text(text)
    trainer = Wheel("trainer", "1.0", {"trainer/__init__.py": "import torch\n"}, ("torch",))
    base = quick_venv(place / "base", mine, [*toys.torch(12), trainer])
    shell = quick_venv(place / "shell", mine)
    index = place / "index"
    for wheel in (toys.sglang(), toys.sgl_kernel(13), pydantic_toy(), pydantic_toy("2.0")):
        wheel.build(index)
    inventories = [probe(str(v.prefix), use_cache=False) for v in (source, base, shell)]
    a, b, c = inventories
    blackwell = (gpu("12.0"), gpu("12.0", 1))
    return Story(
        source, base, with_gpus(a, gpu("8.6")), with_gpus(b, *blackwell), with_gpus(c, *blackwell), index, toys
    )


@pytest.fixture
def own_index(story: Story, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """uv sees the toy index and nothing else."""
    for name in (
        "UV_DEFAULT_INDEX",
        "UV_INDEX_URL",
        "UV_INDEX",
        "UV_FIND_LINKS",
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "PIP_FIND_LINKS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("TREEGRAFT_CACHE_DIR", str(tmp_path / "cache"))
    with serve(FolderIndex(story.index)) as url:
        monkeypatch.setenv("UV_DEFAULT_INDEX", url)
        yield story.index
