"""The agent under every interpreter at hand, and environments of every version."""

from pathlib import Path

import pytest
from worlds.needs import require
from worlds.venvs import Python, Uv, Venv, conda_like, other_pythons, quick_venv, this_python
from worlds.wheels import Wheel

from treegraft.environments.probe import probe
from treegraft.errors import HostError

OTHERS = other_pythons()
RUNNERS = sorted(Path.home().glob(".pyenv/versions/*/bin/python")) + sorted(
    Path("/usr/bin").glob("python3.[0-9]*[0-9]")
)


def version_of(path: Path) -> tuple[int, ...]:
    name = path.parent.parent.name if ".pyenv" in path.parts else path.name.removeprefix("python")
    return tuple(int(part) for part in name.split("."))[:2]


def test_an_interpreter_of_another_version_is_at_hand() -> None:
    require(len({version_of(path) for path in RUNNERS}) > 1, "no second Python was found")


@pytest.mark.parametrize("path", [path for path in RUNNERS if version_of(path) >= (3, 8)], ids=str)
def test_agent_says_the_same_under_every_version(venv: Venv, path: Path) -> None:
    inventory = probe(str(venv.prefix), interpreter=str(path), use_cache=False)
    assert inventory.host.agent_python_version.startswith(".".join(map(str, version_of(path))))
    assert inventory.environment == probe(str(venv.prefix), use_cache=False).environment
    assert not inventory.partial


@pytest.mark.parametrize("path", [path for path in RUNNERS if version_of(path) < (3, 8)], ids=str)
def test_interpreter_that_is_too_old(venv: Venv, path: Path) -> None:
    with pytest.raises(HostError, match=r"^host this machine: no Python 3.8 or newer was found \(tried .*python\)"):
        probe(str(venv.prefix), interpreter=str(path))


@pytest.mark.parametrize("python", OTHERS, ids=lambda python: python.version)
def test_environment_of_every_version(tmp_path: Path, python: Python) -> None:
    venv = quick_venv(tmp_path / "venv", python, [Wheel("a", "1", {"a.py": ""})])
    environment = probe(str(venv.prefix)).environment
    assert environment is not None
    assert environment.python.version == python.version
    assert environment.python.soabi.startswith("cpython-" + python.minor.replace(".", ""))
    assert environment.python.site_packages == (f"lib/python{python.minor}/site-packages",)
    assert environment.python.native[0].elf_type in ("shared", "executable")
    symbols = {name for native in environment.python.native for name in native.exports}
    assert "PyModule_Create2" in symbols


@pytest.mark.slow
def test_base_interpreter_is_an_environment_too() -> None:
    base = this_python().executable.parent.parent
    environment = probe(str(base)).environment
    assert environment is not None
    assert environment.kind == "interpreter"
    assert not any(file.path.endswith("/os.py") for file in environment.files)


def test_conda(tmp_path: Path) -> None:
    venv = conda_like(tmp_path / "conda", this_python(), {"libtoy": "1.0"})
    environment = probe(str(venv.prefix)).environment
    assert environment is not None
    assert environment.kind == "conda"
    assert [(package.name, package.version) for package in environment.conda_packages] == [("libtoy", "1.0")]


def test_real_uv_environment_with_hard_links(tmp_path: Path) -> None:
    """uv's own metadata, scripts and cache: one file edited is one file modified in both."""
    wheel = Wheel("a", "1.0", {"a.py": "x = 1\n"}, entry_points={"console_scripts": {"a": "a:main"}})
    wheel.build(tmp_path / "wheels")
    uv = Uv(tmp_path / "uv-cache", [tmp_path / "wheels"])
    venvs = [uv.venv(tmp_path / name, this_python()) for name in ("one", "two")]
    for venv in venvs:
        uv.install(venv, "a", link_mode="hardlink")
    with (venvs[0].site_packages / "a.py").open("r+") as stream:
        stream.write("x = 2\n")
    for venv in venvs:
        environment = probe(str(venv.prefix)).environment
        assert environment is not None
        assert (environment.kind, environment.has_pip, environment.unowned) == ("uv-venv", False, ())
        (dist,) = environment.dists
        assert dist.installer == "uv"
        assert [file.path.rsplit("/", 1)[-1] for file in dist.modified] == ["a.py"]
        assert dist.missing == ()
        script = next(script for script in environment.scripts if script.path == "bin/a")
        assert (script.owners, script.is_inside) == (("a",), True)
        edited = next(file for file in environment.files if file.path.endswith("/a.py"))
        assert edited.num_links >= 3
