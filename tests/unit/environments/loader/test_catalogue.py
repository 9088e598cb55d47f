"""Search order of the dynamic loader: RPATH, LD_LIBRARY_PATH, RUNPATH, cache, default folders."""

from typing import Any

import pytest
from inventories import PREFIX, SITE, Recipe, dist, entry, inventory, native

from treegraft.environments.inventory import CachedLibrary, Loader, NativeFile
from treegraft.environments.loader.catalogue import Catalogue, OpaqueLibrary, expand
from treegraft.environments.loader.world import world_of

NAME = "libx.so.1"
PLACES = ("rp", "up", "ld", "run", "cache", "/usr/lib64")


def place(folder: str) -> NativeFile:
    """libx.so.1 in a folder of the environment, or at an absolute one."""
    path = f"{folder}/{NAME}" if folder.startswith("/") else f"{SITE}/{folder}/{NAME}"
    return native(path, None if folder.startswith("/") else "a", soname=NAME)


def catalogue(*folders: str, **host: Any) -> Catalogue:
    inside = [place(f) for f in folders if not f.startswith("/")]
    outside = [place(f) for f in folders if f.startswith("/")]
    return Catalogue(world_of(inventory(Recipe([dist("a")], inside, system_libraries=outside, host=host))))


def requester(found: Catalogue, path: str = f"{SITE}/a/r.so", **facts: Any) -> Any:
    from treegraft.environments.loader.library import Library

    return Library(native(path, "a", **facts), f"{found.world.prefix}/{path}")


def where(found: Catalogue, *chain: Any) -> str | None:
    library, _ = found.search(NAME, list(chain))
    return None if library is None else library.path.removesuffix("/" + NAME).removeprefix(f"{PREFIX}/{SITE}/")


LD = Loader(how="test", library_path=(f"{PREFIX}/{SITE}/ld",))
CACHE = CachedLibrary(soname=NAME, path=f"{PREFIX}/{SITE}/cache/{NAME}", kind="libc6,x86-64")


def test_rpath_comes_before_ld_library_path_and_runpath_after() -> None:
    loader = Loader(how="test", library_path=LD.library_path, cache=(CACHE,))
    found = catalogue(*PLACES, loader=loader)
    assert where(found, requester(found, rpath=("$ORIGIN/../rp",))) == "rp"
    assert where(found, requester(found, runpath=("$ORIGIN/../run",))) == "ld"
    assert where(found, requester(found)) == "ld"
    without = catalogue(*PLACES, loader=Loader(how="test", cache=(CACHE,)))
    assert where(without, requester(without, runpath=("$ORIGIN/../run",))) == "run"
    assert where(without, requester(without)) == "cache"
    bare = catalogue(*PLACES)
    assert where(bare, requester(bare)) == "/usr/lib64"


def test_rpath_is_inherited_and_runpath_is_not() -> None:
    found = catalogue("rp", "up")
    top = requester(found, rpath=("$ORIGIN/../up",))
    assert where(found, requester(found), top) == "up"
    assert where(found, requester(found, runpath=("$ORIGIN/../nowhere",)), top) is None
    assert where(found, requester(found), requester(found, runpath=("$ORIGIN/../up",))) is None
    both = requester(found, rpath=("$ORIGIN/../rp",), runpath=("$ORIGIN/../up",))
    assert where(found, both) == "up", "an RPATH beside a RUNPATH does not count"


def test_files_of_another_machine_are_passed_over_and_noted() -> None:
    foreign = native(f"{SITE}/one/{NAME}", "a", soname=NAME, machine="aarch64")
    small = native(f"{SITE}/two/{NAME}", "a", soname=NAME, elf_class=32)
    found = Catalogue(world_of(inventory(Recipe([dist("a")], [foreign, small, place("three")]))))
    chain = [requester(found, runpath=("$ORIGIN/../one", "$ORIGIN/../two", "$ORIGIN/../three"))]
    library, notes = found.search(NAME, chain)
    assert library is not None
    assert library.path.endswith(f"three/{NAME}")
    assert len(notes) == 2


def test_links_are_followed_but_not_in_circles() -> None:
    links = [
        entry(f"{SITE}/links/{NAME}", ("a",), sha256="", link_target=f"../real/{NAME}"),
        entry(f"{SITE}/loop/{NAME}", ("a",), sha256="", link_target=NAME),
        entry("lib64", (), sha256="", link_target="lib"),
    ]
    found = Catalogue(world_of(inventory(Recipe([dist("a")], [place("real")], links))))
    assert where(found, requester(found, runpath=("$ORIGIN/../links",))) == "real"
    assert where(found, requester(found, runpath=("$ORIGIN/../loop",))) is None
    through = found.at(f"{PREFIX}/lib64/python3.11/site-packages/real/{NAME}")
    assert through is not None
    assert through is found.at(f"{PREFIX}/{SITE}/real/{NAME}")


def test_merged_usr_and_sonames_of_host_files() -> None:
    real = native("/usr/lib/x86_64-linux-gnu/libx.so.1.2.3", soname=NAME)
    found = Catalogue(world_of(inventory(Recipe([dist("a")], system_libraries=[real]))))
    assert where(found, requester(found)) == "/usr/lib/x86_64-linux-gnu/libx.so.1.2.3"


def test_a_library_of_the_cache_that_was_not_read_is_opaque() -> None:
    line = CachedLibrary(soname=NAME, path=f"/opt/{NAME}", kind="libc6,x86-64")
    foreign = CachedLibrary(soname="liby.so.1", path="/opt/liby.so.1", kind="libc6")
    found = catalogue(loader=Loader(how="test", cache=(line, foreign)))
    library, _ = found.search(NAME, [requester(found)])
    assert isinstance(library, OpaqueLibrary)
    assert found.search("liby.so.1", [requester(found)]) == (None, [])


def test_nodeflib() -> None:
    found = catalogue("/usr/lib64")
    assert where(found, requester(found)) == "/usr/lib64"
    assert where(found, requester(found, flags=("NODEFLIB",))) is None


@pytest.mark.parametrize(
    ("entry_text", "expected"),
    [
        ("$ORIGIN/../lib", "/p/lib"),
        ("${ORIGIN}/x", "/p/a/x"),
        ("/opt/$PLATFORM", "/opt/x86_64"),
        ("/opt/$LIB", "/opt/lib64"),
    ],
)
def test_expand(entry_text: str, expected: str) -> None:
    assert expand(entry_text, "/p/a", "x86_64") == expected
