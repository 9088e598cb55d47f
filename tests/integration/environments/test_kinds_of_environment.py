"""Real environments of each sort beside each other: what makes them differ is found, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from worlds.big import SMALL, big_venv
from worlds.compiling import Compiler
from worlds.needs import require_program
from worlds.venvs import Python, Uv, conda_like, other_pythons, quick_venv, this_python
from worlds.wheels import Wheel

from treegraft.environments.compatibility import check
from treegraft.environments.inventory import Environment
from treegraft.environments.probe import probe


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Uv:
    monkeypatch.setenv("TREEGRAFT_CACHE_DIR", str(tmp_path / "cache"))
    scripts = {"console_scripts": {"alpha": "alpha:main"}}
    Wheel("alpha", "1.0+cu130", {"alpha/__init__.py": "def main():\n    pass\n"}, entry_points=scripts).build(
        tmp_path / "w"
    )
    return Uv(tmp_path / "uv", [tmp_path / "w"])


def environment(prefix: Path) -> Environment:
    found = probe(str(prefix), use_cache=False).environment
    assert found is not None
    return found


def test_uv_environments_with_and_without_pip(uv: Uv, tmp_path: Path) -> None:
    bare, with_pip, shell = (uv.venv(tmp_path / name, this_python()) for name in ("bare", "pip", "shell"))
    uv.install(bare, "alpha")
    uv.install(with_pip, "alpha")
    uv.install_pip(with_pip)
    facts = [environment(v.prefix) for v in (bare, with_pip, shell)]
    assert [(f.kind, f.has_pip, f.is_empty) for f in facts] == [
        ("uv-venv", False, False), ("uv-venv", True, False), ("uv-venv", False, True),
    ]  # fmt: skip
    (alpha,) = [d for d in facts[0].dists if d.name == "alpha"]
    assert (alpha.version, alpha.local, alpha.installer) == ("1.0+cu130", "cu130", "uv")
    assert [(e.group, e.name) for e in alpha.entry_points] == [("console_scripts", "alpha")]
    assert [s.path for s in facts[0].scripts if s.owners == ("alpha",)] == ["bin/alpha"]
    for venv in (bare, with_pip, shell):
        assert [f for f in check(probe(str(venv.prefix), use_cache=False)) if f.level == "block"] == []


def test_conda_prefix_is_no_venv(uv: Uv, tmp_path: Path) -> None:
    assert uv.cache
    venv = conda_like(tmp_path / "conda", this_python(), {"zlib": "1.3.1", "python": this_python().version})
    found = environment(venv.prefix)
    assert found.kind == "conda"
    assert {(p.name, p.version) for p in found.conda_packages} >= {("zlib", "1.3.1")}


def test_large_environment_is_the_same_each_time_and_whole(uv: Uv, tmp_path: Path) -> None:
    """What scripts/bench_probe.py measures, in small: all files are there, owned, and as RECORD says."""
    require_program("gcc")
    assert uv.cache
    compiler = Compiler(tmp_path / "objects")
    first, again = (environment(big_venv(tmp_path / n, this_python(), compiler).prefix) for n in ("one", "two"))
    owned = [f for f in first.files if f.owners and not f.link_target]
    assert len(owned) == SMALL.num_files
    assert sum(f.size for f in owned) == pytest.approx(SMALL.total_bytes, rel=0.1)
    assert len(first.native) == SMALL.num_native
    assert [d.name for d in first.dists if d.modified or d.missing] == []
    assert json.dumps([(f.path, f.sha256) for f in owned]) == json.dumps(
        [(f.path, f.sha256) for f in again.files if f.owners and not f.link_target]
    )


@pytest.mark.parametrize("python", [this_python(), *other_pythons()], ids=lambda python: python.version)
def test_standard_library_is_that_of_the_environment(tmp_path: Path, python: Python) -> None:
    """Modules that came, went, or are for Windows: the verdict is what importing them does."""
    names = ("json", "zoneinfo", "tomllib", "binhex", "asyncore", "imp", "cgi", "telnetlib", "winreg")
    wheels = [Wheel(f"with-{name}", "1", {f"with_{name}/__init__.py": f"import {name}\n"}) for name in names]
    venv = quick_venv(tmp_path / "venv", python, wheels)
    blocked = {f.dist for f in check(probe(str(venv.prefix), use_cache=False)) if f.level == "block"}
    code = f"import sys\nfor name in {names}:\n try: __import__('with_' + name)\n except ImportError: print(name)"
    really = set(venv.run(code).stdout.split())
    assert blocked == {f"with-{name}" for name in really}
    assert "winreg" in really
    assert "json" not in really


@pytest.mark.slow
def test_the_environment_of_these_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real wheels of torch, NumPy and SciPy, as they were installed: all of them import, and nothing else is said."""
    monkeypatch.setenv("TREEGRAFT_CACHE_DIR", str(tmp_path / "cache"))
    subprocess.run([sys.executable, "-c", "import torch, numpy, scipy.linalg, tokenizers"], check=True)
    inventory = probe(sys.prefix)
    assert inventory.environment is not None
    assert {d.name for d in inventory.environment.dists} >= {"torch", "numpy", "scipy", "tokenizers"}
    assert [f for f in check(inventory) if f.level == "block"] == []
