"""dlopen: breadth-first mapping, scopes, what is loaded already, and nothing left behind by a failure."""

from collections.abc import Sequence
from typing import Any

from inventories import PREFIX, SITE, Recipe, dist, inventory, native

from treegraft.environments.inventory import Loader, NativeFile
from treegraft.environments.loader.catalogue import Catalogue
from treegraft.environments.loader.process import LoadProblem, Process
from treegraft.environments.loader.world import world_of

HERE = {"runpath": ("$ORIGIN",)}


def lib(name: str, **facts: Any) -> NativeFile:
    return native(f"{SITE}/l/{name}", "l", soname=name, **{**HERE, **facts})


def process(natives: Sequence[NativeFile], **recipe: Any) -> Process:
    return Process(Catalogue(world_of(inventory(Recipe([dist("l")], natives, **recipe)))))


def path(name: str) -> str:
    return f"{PREFIX}/{SITE}/l/{name}"


def kinds(problems: Sequence[LoadProblem] | None) -> list[tuple[str, str]]:
    assert problems is not None
    return [(p.kind, p.name) for p in problems]


def test_local_libraries_serve_the_tree_they_were_opened_for_only() -> None:
    natives = [lib("a.so", exports=("f",)), lib("b.so", imports=("f",))]
    local = process(natives)
    assert local.open_path(path("a.so")) == []
    assert kinds(local.open_path(path("b.so"))) == [("undefined-symbol", "f")]
    global_one = process(natives)
    assert global_one.open_path(path("a.so"), is_global=True) == []
    assert global_one.open_path(path("b.so")) == []


def test_opening_again_globally_promotes_the_whole_tree() -> None:
    natives = [
        lib("top.so", needed=("deep.so",)),
        lib("deep.so", exports=("f",)),
        lib("b.so", imports=("f",)),
    ]
    found = process(natives)
    assert found.open_path(path("top.so")) == []
    assert kinds(found.open_path(path("b.so"))) == [("undefined-symbol", "f")]
    assert found.open_path(path("top.so"), is_global=True) == []
    assert found.open_path(path("b.so")) == []


def test_symbols_are_found_anywhere_in_the_tree_of_the_root() -> None:
    natives = [
        lib("root.so", needed=("one.so", "two.so")),
        lib("one.so", imports=("f",)),
        lib("two.so", exports=("f",)),
    ]
    assert process(natives).open_path(path("root.so")) == []
    assert kinds(process(natives).open_path(path("one.so"))) == [("undefined-symbol", "f")]


def test_a_failed_open_leaves_nothing_behind() -> None:
    natives = [
        lib("good.so", exports=("f",)),
        lib("bad.so", needed=("good.so", "gone.so")),
        lib("c.so", needed=("good.so",)),
    ]
    found = process(natives)
    before = set(found.loaded)
    assert kinds(found.open_path(path("bad.so"), is_global=True)) == [("missing-soname", "gone.so")]
    assert set(found.loaded) == before
    assert found.open_path(path("c.so")) == []


def test_the_interpreter_serves_its_functions_and_preloads_serve_theirs() -> None:
    natives = [lib("ext.so", imports=("PyLong_FromLong", "given"))]
    assert kinds(process(natives).open_path(path("ext.so"))) == [("undefined-symbol", "given")]
    giver = native("/opt/giver.so", exports=("given",))
    preloaded = process(
        natives, system_libraries=[giver], host={"loader": Loader(how="test", preload=("/opt/giver.so",))}
    )
    assert preloaded.open_path(path("ext.so")) == []


def test_without_an_interpreter_nothing_is_claimed_about_symbols() -> None:
    found = process([lib("ext.so", imports=("odd",))], python={"native": (), "real_executable": ""})
    assert found.open_path(path("ext.so")) == []
    assert not found.is_certain


def test_versions_are_checked_against_what_is_loaded() -> None:
    def problems(definitions: tuple[str, ...]) -> list[tuple[str, str]]:
        natives = [
            lib("v.so", version_definitions=definitions, exports=("f@@V_1",) if definitions else ("f",)),
            lib("user.so", needed=("v.so",), version_needs={"v.so": ("V_2",)}, imports=("f@V_1",)),
        ]
        return kinds(process(natives).open_path(path("user.so")))

    assert problems(("v.so", "V_1", "V_2")) == []
    assert problems(("v.so", "V_1")) == [("version", "V_2")]
    assert problems(()) == [], "a library without versions is accepted with a warning of ld.so"


def test_bare_names() -> None:
    found = process([lib("a.so")], host={"loader": Loader(how="test", library_path=(f"{PREFIX}/{SITE}/l",))})
    assert found.open_name("a.so") == []
    assert found.open_name("gone.so") is None
    assert process([lib("a.so")]).open_name("a.so") is None
    loaded = process([lib("a.so")])
    assert loaded.open_path(path("a.so")) == []
    assert loaded.open_name("a.so") == []


def test_circles_of_needs_end() -> None:
    natives = [lib("a.so", needed=("b.so",), imports=("g",)), lib("b.so", needed=("a.so",), exports=("g",))]
    assert process(natives).open_path(path("a.so")) == []


def test_a_copy_is_independent() -> None:
    found = process([lib("a.so", exports=("f",)), lib("b.so", imports=("f",))])
    twin = found.copy()
    assert twin.open_path(path("a.so"), is_global=True) == []
    assert twin.open_path(path("b.so")) == []
    assert kinds(found.open_path(path("b.so"))) == [("undefined-symbol", "f")]
