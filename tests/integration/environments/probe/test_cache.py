"""The second probe: same facts, unchanged files not read again, changed ones seen whatever their times say."""

import os
import time
from pathlib import Path

import msgspec
import pytest
import zstandard
from worlds.compiling import Compiler, Link
from worlds.venvs import Venv, quick_venv, this_python, two_dists
from worlds.wheels import Wheel

from treegraft.environments import probe_cache
from treegraft.environments.inventory import Inventory
from treegraft.environments.probe import probe


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> list[Venv]:
    """Environments with a library, old enough for their files to be remembered; each is handed out once."""
    place = tmp_path_factory.mktemp("stock")
    library = Compiler(place / "objects").library("int f(void) { return g(); }", Link(soname="libx.so", needs=()))
    native = Wheel("native", "1", {"native/libx.so": library.data, "native/__init__.py": ""})
    venvs = [quick_venv(place / str(n), this_python(), [*two_dists(), native]) for n in range(8)]
    newest = max(os.lstat(path).st_ctime_ns for path in place.rglob("*"))
    while time.time_ns() - newest < 2_100_000_000:
        time.sleep(0.1)
    return venvs


@pytest.fixture
def settled(stock: list[Venv]) -> Venv:
    return stock.pop()


def without_clocks(inventory: Inventory) -> object:
    return inventory.environment, inventory.problems, inventory.host.system_libraries


def test_second_probe_gives_the_same_facts_without_reading(settled: Venv) -> None:
    first = probe(str(settled.prefix))
    library = settled.site_packages / "native" / "libx.so"
    access = library.stat().st_atime_ns
    second = probe(str(settled.prefix))
    assert without_clocks(second) == without_clocks(first)
    assert library.stat().st_atime_ns == access
    assert without_clocks(probe(str(settled.prefix), use_cache=False)) == without_clocks(first)


def test_change_is_seen_even_with_size_and_time_kept(settled: Venv) -> None:
    probe(str(settled.prefix))
    target = settled.site_packages / "beta.py"
    times = (target.stat().st_atime_ns, target.stat().st_mtime_ns)
    target.write_text("y = 3\n")
    os.utime(target, ns=times)
    environment = probe(str(settled.prefix)).environment
    assert environment is not None
    beta = next(dist for dist in environment.dists if dist.name == "beta")
    assert [file.path.rsplit("/", 1)[-1] for file in beta.modified] == ["beta.py"]


def test_replaced_library_is_parsed_again(settled: Venv, tmp_path: Path) -> None:
    probe(str(settled.prefix))
    other = Compiler(tmp_path / "objects").library("int other(void) { return 1; }", Link(soname="libx.so"))
    (settled.site_packages / "native" / "libx.so").write_bytes(other.data)
    environment = probe(str(settled.prefix)).environment
    assert environment is not None
    assert next(native.exports for native in environment.native if native.path.endswith("libx.so")) == ("other",)


def test_removed_file_is_gone(settled: Venv) -> None:
    probe(str(settled.prefix))
    (settled.site_packages / "native" / "libx.so").unlink()
    environment = probe(str(settled.prefix)).environment
    assert environment is not None
    assert not any(native.path.endswith("libx.so") for native in environment.native)


@pytest.mark.parametrize("damage", [b"", b"not zstd", None])
def test_damaged_cache_is_made_anew(settled: Venv, cache: Path, damage: bytes | None) -> None:
    first = probe(str(settled.prefix))
    (stored,) = (cache / "probe").iterdir()
    stored.write_bytes(stored.read_bytes()[:-20] if damage is None else damage)
    assert without_clocks(probe(str(settled.prefix))) == without_clocks(first)
    (stored,) = (cache / "probe").iterdir()
    assert len(stored.read_bytes()) > 200


def test_another_agent_is_not_believed(settled: Venv) -> None:
    probe(str(settled.prefix))
    key = f"\0{settled.prefix}"
    assert probe_cache.load(key, "another agent").files == {}


def test_fresh_files_are_not_remembered(venv: Venv) -> None:
    """A file changed within the clock's grain may change again unseen."""
    (venv.site_packages / "new.py").write_text("x = 1\n")
    probe(str(venv.prefix))
    (stored,) = (Path(os.environ["TREEGRAFT_CACHE_DIR"]) / "probe").iterdir()
    assert stored.exists()
    data = zstandard.ZstdDecompressor().decompress(stored.read_bytes(), max_output_size=1 << 24)
    remembered = msgspec.msgpack.decode(data, type=probe_cache.Remembered)
    assert not any(path.endswith("new.py") for path in remembered.files)
