"""abi.* and dist.missing-*: each fault has its rule, each healthy twin has none."""

import msgspec
import pytest
from inventories import LIBC, SITE, SUFFIX, Recipe, dist, entry, extension, inventory, native

from treegraft.environments.compatibility import check
from treegraft.environments.findings import Finding

NEEDS_LIB = [("from", "a", "_ext")]
C10 = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_"


def blocks(recipe: Recipe, name: str = "a") -> list[Finding]:
    return [f for f in check(inventory(recipe)) if f.level == "block" and f.dist == name]


def library(name: str = "libx.so.1", folder: str = "a/lib", **facts: object) -> object:
    return native(f"{SITE}/{folder}/{name}", "a", soname=name, **facts)


def needing(exports: tuple[str, ...], **facts: object) -> Recipe:
    """An extension that needs `first` of libx.so.1 beside it."""
    facts = {"needed": ("libx.so.1",), "runpath": ("$ORIGIN/lib",), "imports": ("first",), **facts}
    return Recipe([dist("a")], [extension("a", **facts), library(exports=exports)], loads={"a": NEEDS_LIB})


def test_undefined_symbol_names_symbol_file_and_who_needs_it() -> None:
    (finding,) = blocks(needing(("other",)))
    assert finding.rule == "abi.undefined-symbol"
    assert finding.file == f"{SITE}/a/_ext{SUFFIX}"
    assert "first" in finding.evidence
    assert "a 1.0" in finding.evidence
    assert blocks(needing(("first",))) == []


def test_undefined_symbol_shows_the_twin_with_other_argument_types() -> None:
    (finding,) = blocks(needing((C10 + "ib",), imports=(C10 + "jb",)))
    assert f"libx.so.1 has {C10}ib" in finding.evidence


def test_undefined_symbol_names_a_provider_only_where_one_is_known() -> None:
    from treegraft.environments.loader.world import world_of

    broken = inventory(needing(("other",)))
    other = inventory(Recipe([dist("b", "2.0+cu130")], [native(f"{SITE}/b/libx.so", "b", exports=("first",))]), "a:/v")
    (with_provider,) = [f for f in check(world_of(broken, (other,))) if f.rule == "abi.undefined-symbol"]
    (alone,) = [f for f in check(broken) if f.rule == "abi.undefined-symbol"]
    assert "b 2.0+cu130 (a:/v) defines it" in with_provider.remedy
    assert "2.0" not in alone.remedy


def test_weak_symbols_do_not_count() -> None:
    assert blocks(needing(("other",), imports=(), weak_imports=("first",))) == []


def test_soname_that_is_loaded_already_wins() -> None:
    """b brings its own libx.so.1; a finds none on its path, but imports b first."""
    owned_by_b = native(f"{SITE}/b/libx.so.1", "b", soname="libx.so.1", exports=("first",))
    of_b = extension("b", needed=("libx.so.1",), runpath=("$ORIGIN",))
    of_a = extension("a", needed=("libx.so.1",), imports=("first",))
    loads = {"b": [("from", "b", "_ext")], "a": [("import", "b", ""), ("from", "a", "_ext")]}
    dists = [dist("a"), dist("b")]
    assert blocks(Recipe(dists, [of_a, of_b, owned_by_b], loads=loads)) == []
    alone = {**loads, "a": [("from", "a", "_ext")]}
    (finding,) = blocks(Recipe(dists, [of_a, of_b, owned_by_b], loads=alone))
    assert finding.rule == "abi.missing-soname"
    assert "is not on its search path" in finding.evidence


def test_missing_soname_of_another_cuda_major() -> None:
    cuda = native(f"{SITE}/a/lib/libcudart.so.12", "a", soname="libcudart.so.12")
    needs = {"runpath": ("$ORIGIN/lib",)}
    broken = Recipe([dist("a")], [cuda, extension("a", needed=("libcudart.so.13",), **needs)], loads={"a": NEEDS_LIB})
    (finding,) = blocks(broken)
    assert finding.rule == "abi.missing-soname"
    assert finding.remedy == "install nvidia-cuda-runtime, which ships libcudart.so.13"
    fine = Recipe([dist("a")], [cuda, extension("a", needed=("libcudart.so.12",), **needs)], loads={"a": NEEDS_LIB})
    assert blocks(fine) == []


@pytest.mark.parametrize(
    ("file", "version", "rule"),
    [
        ("libc.so.6", "GLIBC_2.38", "abi.libc"),
        ("libstdc++.so.6", "GLIBCXX_3.4.32", "abi.libstdcxx"),
        ("libx.so.1", "LIBX_2.0", "abi.symbol-version"),
    ],
)
def test_versions_come_from_the_file_whatever_its_tag_says(file: str, version: str, rule: str) -> None:
    facts = {"needed": ("libx.so.1", "libc.so.6", "libstdc++.so.6"), "runpath": ("$ORIGIN/lib",)}
    beside = library(version_definitions=("libx.so.1", "LIBX_1.0"))
    tagged = dist("a", tags=("cp311-cp311-manylinux_2_17_x86_64",))

    def recipe(version: str) -> Recipe:
        return Recipe(
            [tagged], [extension("a", version_needs={file: (version,)}, **facts), beside], loads={"a": NEEDS_LIB}
        )

    (finding,) = blocks(recipe(version))
    assert finding.rule == rule
    assert version in finding.evidence
    held = {"libc.so.6": "GLIBC_2.17", "libstdc++.so.6": "GLIBCXX_3.4.30", "libx.so.1": "LIBX_1.0"}[file]
    assert blocks(recipe(held)) == []


def test_a_vendored_library_that_needs_more_than_the_host_has_blocks_its_dist() -> None:
    vendored = library(needed=("libc.so.6",), version_needs={"libc.so.6": ("GLIBC_2.38",)}, exports=("first",))
    recipe = needing(("first",))
    recipe.natives = [recipe.natives[0], vendored]
    (finding,) = blocks(recipe)
    assert (finding.rule, finding.file) == ("abi.libc", f"{SITE}/a/lib/libx.so.1")


def test_python_tag() -> None:
    other = extension("a", suffix=".cpython-310-x86_64-linux-gnu.so")
    (finding,) = {f.rule: f for f in blocks(Recipe([dist("a")], [other], loads={"a": NEEDS_LIB}))}.values()
    assert finding.rule == "abi.python-tag"
    both = Recipe([dist("a")], [other, extension("a")], loads={"a": NEEDS_LIB})
    assert blocks(both) == []
    stable = Recipe([dist("a")], [extension("a", suffix=".abi3.so")], loads={"a": NEEDS_LIB})
    assert blocks(stable) == []
    free_threaded = msgspec.structs.replace(inventory(stable).environment.python, is_free_threaded=True)  # type: ignore[union-attr]
    stable.environment = {"python": free_threaded}
    assert {f.rule for f in blocks(stable)} == {"abi.python-tag"}


def test_machine() -> None:
    foreign = Recipe([dist("a")], [extension("a", machine="aarch64")], loads={"a": NEEDS_LIB})
    assert {f.rule for f in blocks(foreign)} == {"abi.machine"}
    assert blocks(Recipe([dist("a")], [extension("a")], loads={"a": NEEDS_LIB})) == []


def test_broken_and_renamed_files() -> None:
    broken = Recipe([dist("a")], [extension("a", partial=True, problem="truncated: dynamic")], loads={"a": NEEDS_LIB})
    assert {f.rule for f in blocks(broken)} == {"abi.broken-file"}
    headers = extension("a", partial=True, problem="truncated: section headers lies at 9+9 of 9 bytes")
    assert blocks(Recipe([dist("a")], [headers], loads={"a": NEEDS_LIB})) == []
    renamed = native(f"{SITE}/a/_ext{SUFFIX}", "a", exports=("PyInit__old",))
    assert {f.rule for f in blocks(Recipe([dist("a")], [renamed], loads={"a": NEEDS_LIB}))} == {"abi.no-init"}


def test_missing_file_blocks_only_what_an_import_reaches() -> None:
    gone = f"{SITE}/a/helper.py"
    holed = dist("a", missing=(gone,))
    reached = Recipe([holed], loads={"a": [("from", "a", "helper")]})
    assert {f.rule for f in blocks(reached)} == {"dist.missing-file"}
    assert blocks(Recipe([holed], loads={"a": []})) == []


def test_missing_requirement() -> None:
    (finding,) = blocks(Recipe([dist("a")], loads={"a": [("import", "numpy", "")]}))
    assert finding.rule == "dist.missing-requirement"
    assert blocks(Recipe([dist("a"), dist("numpy")], loads={"a": [("import", "numpy.linalg", "")]})) == []


def test_missing_module_is_not_known_where_modules_come_from_elsewhere() -> None:
    recipe = Recipe([dist("a")], loads={"a": [("import", "numpy", "")]}, python={"includes_system_site": True})
    assert blocks(recipe) == []


def test_what_imports_a_broken_dist_is_broken_too() -> None:
    broken = extension("b", imports=("nowhere",))
    loads = {"b": [("from", "b", "_ext")], "a": [("import", "b", "")]}
    (finding,) = blocks(Recipe([dist("a"), dist("b")], [broken], loads=loads))
    assert finding.rule == "abi.undefined-symbol"
    assert "import a -> b -> b._ext" in finding.evidence


def test_extensions_that_no_init_imports_are_judged_after_what_the_dist_requires() -> None:
    torch = native(f"{SITE}/torch/lib/libc10.so", "torch", soname="libc10.so", exports=("first",))
    torch_c = extension("torch", "_C", needed=("libc10.so",), runpath=("$ORIGIN/lib",))
    lazy = extension("a", needed=("libc10.so",), imports=("first",))
    loads = {"torch": [("from", "torch", "_C")]}
    natives = [torch, torch_c, lazy]
    assert blocks(Recipe([dist("a", requires=("torch",)), dist("torch")], natives, loads=loads)) == []
    assert {f.rule for f in blocks(Recipe([dist("a"), dist("torch")], natives, loads=loads))} == {"abi.missing-soname"}


def test_thirty_extensions_behind_one_missing_library_are_one_finding() -> None:
    natives = [extension("a", f"_e{n}", needed=("libgone.so.1",)) for n in range(30)]
    (finding,) = blocks(Recipe([dist("a")], natives, loads={"a": [("from", "a", "_e0")]}))
    assert finding.rule == "abi.missing-soname"
    assert "and 29 more" in finding.evidence


def test_an_extension_that_nothing_imports_for_a_library_that_no_package_ships_is_optional() -> None:
    def found(soname: str) -> list[tuple[str, str]]:
        recipe = Recipe([dist("a")], [extension("a", "_backend", needed=(soname,))])
        return [(f.rule, f.level) for f in check(inventory(recipe))]

    assert found("libtbb.so.12") == [("abi.missing-soname", "warn")]
    assert found("libcudart.so.13") == [("abi.missing-soname", "block")]


def test_the_loader_takes_what_it_finds_first_though_it_is_no_library() -> None:
    recipe = needing(("first",), runpath=("$ORIGIN/empty", "$ORIGIN/lib"))
    recipe.files = [entry(f"{SITE}/a/empty/libx.so.1", ("a",), size=0)]
    assert {f.rule for f in blocks(recipe)} == {"abi.broken-file"}


def test_libraries_of_the_host_that_were_not_read_are_not_judged() -> None:
    from treegraft.environments.inventory import CachedLibrary, Loader

    recipe = Recipe([dist("a")], [extension("a", needed=("libodd.so.1",), imports=("odd",))], loads={"a": NEEDS_LIB})
    assert {f.rule for f in blocks(recipe)} == {"abi.missing-soname"}
    cache = (CachedLibrary(soname="libodd.so.1", path="/usr/lib/libodd.so.1", kind="libc6,x86-64"),)
    recipe.host = {"loader": Loader(how="test", cache=cache)}
    assert blocks(recipe) == []


def test_system_libraries_resolve_versioned_symbols() -> None:
    facts = {"needed": ("libc.so.6",), "version_needs": {"libc.so.6": ("GLIBC_2.2.5",)}}
    fine = Recipe([dist("a")], [extension("a", imports=("malloc@GLIBC_2.2.5",), **facts)], loads={"a": NEEDS_LIB})
    assert blocks(fine) == []
    gone = Recipe([dist("a")], [extension("a", imports=("vanished@GLIBC_2.2.5",), **facts)], loads={"a": NEEDS_LIB})
    assert {f.rule for f in blocks(gone)} == {"abi.undefined-symbol"}
    assert LIBC.soname == "libc.so.6"
