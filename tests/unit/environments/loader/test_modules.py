"""Which file a module name leads to."""

from inventories import SITE, SUFFIX, Recipe, dist, entry, extension, inventory

from treegraft.environments.inventory import Origin
from treegraft.environments.loader.modules import Modules
from treegraft.environments.loader.world import world_of


def modules(*paths: str, **recipe: object) -> Modules:
    files = [entry(f"{SITE}/{p}", ("a",)) for p in paths]
    return Modules(world_of(inventory(Recipe(files=files, **recipe))))  # type: ignore[arg-type]


def test_order_of_kinds() -> None:
    found = modules("p/__init__.py", "p.py", f"m{SUFFIX}", "m.abi3.so", "m.so", "m.py", "q/__init__.py", "n/deep/x.py")

    def kind_of(name: str) -> tuple[str, str] | None:
        module = found.find(name)
        return (module.kind, module.path.removeprefix(SITE + "/")) if module is not None else None

    assert kind_of("p") == ("package", "p/__init__.py")
    assert kind_of("m") == ("extension", f"m{SUFFIX}")
    assert kind_of("n") == ("namespace", "n")
    assert kind_of("n.deep.x") == ("source", "n/deep/x.py")
    assert kind_of("json.decoder") == ("outside", "")
    assert kind_of("absent") is None


def test_names_of_extension_files() -> None:
    found = modules()
    assert found.name_of(f"{SITE}/a/b/_ext{SUFFIX}") == "a.b._ext"
    assert found.name_of(f"{SITE}/a/lib/libx-1.so") is None
    assert found.name_of("bin/tool") is None


def test_variants_of_other_pythons() -> None:
    natives = [extension("a", suffix=".cpython-310-x86_64-linux-gnu.so"), extension("a", "_two")]
    found = Modules(world_of(inventory(Recipe([dist("a")], natives))))
    assert found.unusable_variants("a._ext") == [f"{SITE}/a/_ext.cpython-310-x86_64-linux-gnu.so"]
    assert found.unusable_variants("a._two") == []


def test_libraries_nearest_first_and_by_pattern() -> None:
    found = modules("b/lib/libx.so.1", "a/lib/libx.so.1", "a/lib/liby.so.2")
    assert found.library_files("lib/libx.so.1", f"{SITE}/a/__init__.py")[0] == f"{SITE}/a/lib/libx.so.1"
    assert found.library_files("lib/lib*.so.*", f"{SITE}/a/__init__.py")[:2] == [
        f"{SITE}/a/lib/libx.so.1",
        f"{SITE}/a/lib/liby.so.2",
    ]
    assert found.library_files("libz.so", f"{SITE}/a/__init__.py") == []


def test_open_environments() -> None:
    assert not modules().is_open
    assert modules(python={"includes_system_site": True}).is_open
    editable = dist("e", origin=Origin(kind="editable", how="test"))
    assert modules(dists=[editable]).is_open


def test_standard_library_of_the_environments_own_python() -> None:
    """Not of the one that judges: modules that came and went."""

    def standard(version: str, *paths: str) -> list[str]:
        found = modules(*paths, python={"version": version})
        names = ("json", "tomllib", "distutils", "telnetlib", "annotationlib")
        return [n for n in names if (module := found.find(n)) is not None and module.kind == "outside"]

    assert standard("3.10.13") == ["json", "distutils", "telnetlib"]
    assert standard("3.12.1") == ["json", "tomllib", "telnetlib"]
    assert standard("3.12.1", "distutils-precedence.pth") == ["json", "tomllib", "distutils", "telnetlib"]
    assert standard("3.14.0") == ["json", "tomllib", "annotationlib"]
    assert len(standard("")) == 5, "nothing is claimed of an unknown one"


def test_interpreter_that_cannot_be_asked() -> None:
    silent = {"extension_suffix": "", "soabi": "", "is_runnable": False}
    natives = [extension("a"), extension("a", "_old", suffix=".cpython-310-x86_64-linux-gnu.so")]
    found = Modules(world_of(inventory(Recipe([dist("a")], natives, python=silent))))
    assert found.unusable_variants("a._ext") == []
    assert found.unusable_variants("a._old") == [f"{SITE}/a/_old.cpython-310-x86_64-linux-gnu.so"]
    assert found.find("a._ext") is not None
