"""Kinds of fault in how a package is laid out and linked: missing dists, nested and bare modules, odd but valid ELF."""

from dataclasses import replace

from worlds.pairs.kinds_symbols import BESIDE, base_with, graft
from worlds.pairs.pair import Kit, Pair, calls, functions
from worlds.wheels import Wheel

USE = "from . import _ext\n"


def missing_dist(kit: Kit) -> Pair:
    """A requirement that is not installed: imported, guarded, or never used."""
    is_there, how = kit.chance(0.4), kit.rng.choice(["plain", "plain", "guarded", "in-function", "unused"])
    init = {
        "plain": "import dependency\n",
        "guarded": "try:\n    import dependency\nexcept ImportError:\n    dependency = None\n",
        "in-function": "def late():\n    import dependency\n    return dependency\n",
        "unused": "",
    }[how]
    wheel = kit.package("graft", {"_ext@": kit.extension(calls())}, init + USE, ("dependency",))
    dependency = kit.package("dependency", {})
    return Pair(f"there={is_there} how={how}", (wheel,), (dependency,) if is_there else (), (dependency,))


def bare_module(kit: Kit) -> Pair:
    """An extension that lies in site-packages itself, in no package."""
    library = kit.library("libbare.so.1", functions("first"))
    is_broken = kit.chance(0.5)
    found = kit.library("libbare.so.1", functions("other" if is_broken else "first"))
    data = kit.extension(calls("first"), module="graft", needs=[library], rpath="$ORIGIN/graft.libs")
    files = {f"graft{kit.python.extension_suffix}": data, "graft.libs/libbare.so.1": found.data}
    return Pair(f"broken={is_broken}", (Wheel("graft", "1.0", files, tag=kit.python.tag),), (), ())


def nested_package(kit: Kit) -> Pair:
    """An extension two packages down, imported on the way or by nobody but a user."""
    library = kit.library("libnest.so.1", functions("first"))
    deep_rpath = kit.rng.choice(["$ORIGIN/../../base/lib", "$ORIGIN/../../../base/lib"])
    data = kit.extension(calls("first"), needs=[library], rpath=deep_rpath)
    is_imported = kit.chance(0.6)
    files = {"inner/__init__.py": USE if is_imported else "", "inner/_ext@": data}
    wheel = kit.package("graft", files, "from .inner import __name__\n" if is_imported else "", ("base",))
    return Pair(
        f"{deep_rpath} imported={is_imported}", (wheel,), (base_with(kit, library),), (base_with(kit, library),)
    )


def namespace_package(kit: Kit) -> Pair:
    """A package without __init__.py that two dists share."""
    library = kit.library("libspace.so.1", functions("first"))
    is_broken = kit.chance(0.5)
    data = kit.extension(calls("first" if not is_broken else "absent"), needs=[library], rpath="$ORIGIN/../other/lib")
    files = {f"shared_space/graft/_ext{kit.python.extension_suffix}": data, "shared_space/graft/__init__.py": USE}
    other = {"shared_space/other/__init__.py": "", "shared_space/other/lib/libspace.so.1": library.data}
    space = Wheel("space-other", "1.0", other, tag=kit.python.tag)
    wheel = Wheel("graft", "1.0", files, ("space-other",), tag=kit.python.tag)
    return Pair(f"broken={is_broken}", (wheel,), (space,), (space,))


def unique_symbol(kit: Kit) -> Pair:
    """C++ template statics (STB_GNU_UNIQUE) and inline functions (weak definitions) of a library."""
    head = "template <class T> struct Holder { static int value; static int get() { return value; } };\n"
    define = head + "template <class T> int Holder<T>::value = 1;\ntemplate struct Holder<int>;\n"
    has_it = kit.chance(0.5)
    built = kit.library("libunique.so.1", define, cplusplus=True)
    found = (
        built
        if has_it
        else kit.library("libunique.so.1", define.replace("Holder<int>", "Holder<long>"), cplusplus=True)
    )
    source = (
        head + "extern template struct Holder<int>;\nint go() { return Holder<int>::value + Holder<int>::get(); }\n"
    )
    ext = graft(kit, source, needs=[built], rpath=BESIDE, cplusplus=True)
    return Pair(f"has-it={has_it}", (ext,), (base_with(kit, found),), (base_with(kit, built),))


def odd_elf(kit: Kit) -> Pair:
    """Valid files as other tools make them: the old hash table alone, no section headers, symbolic binding."""
    form = kit.rng.choice(["sysv", "gnu", "no-sections", "symbolic", "both"])
    flags = {"sysv": ("-Wl,--hash-style=sysv",), "gnu": ("-Wl,--hash-style=gnu",), "symbolic": ("-Wl,-Bsymbolic",)}
    has_it = kit.chance(0.6)
    built = kit.library("libodd.so.1", functions("first"))
    found = kit.library("libodd.so.1", functions("first" if has_it else "other", "more"), flags=flags.get(form, ()))
    data = found.data
    if form == "no-sections":  # e_shoff, then e_shnum and e_shstrndx
        data = data[:40] + bytes(8) + data[48:60] + bytes(4) + data[64:]
    ext = graft(kit, calls("first"), needs=[built], rpath=BESIDE, flags=flags.get(form, ()))
    target = kit.package("base", {"lib/libodd.so.1": data})
    return Pair(f"{form} has-it={has_it}", (ext,), (target,), (base_with(kit, built),))


def path_in_needed(kit: Kit) -> Pair:
    """A NEEDED entry that is a path, as a careless link leaves it: nothing is searched for it."""
    name = kit.rng.choice(["/nonexistent/libpath.so.1", "./libpath.so.1", "libpath.so.1"])
    library = kit.library(name, functions("first"))
    library = replace(library, link_name="libpath.so.1")
    data = kit.extension(calls("first"), needs=[library], rpath="$ORIGIN/lib")
    wheel = kit.package("graft", {"_ext@": data, "lib/libpath.so.1": library.data}, USE)
    return Pair(name, (wheel,), (), ())


def file_of_two_dists(kit: Kit) -> Pair:
    """Two dists list one library; the one that came last has won, for better or worse."""
    good = kit.library("libtwo.so.1", functions("first"))
    bad = kit.library("libtwo.so.1", functions("other"))
    last = kit.rng.choice(["good", "bad"])
    ext = graft(kit, calls("first"), needs=[good], rpath=BESIDE)
    order = (bad, good) if last == "good" else (good, bad)
    owners = tuple(
        Wheel(name, "1.0", {"base/__init__.py": "", "base/lib/libtwo.so.1": library.data}, tag=kit.python.tag)
        for name, library in zip(("base", "other-base"), order, strict=True)
    )
    return Pair(f"last={last}", (ext,), owners, ())


KINDS = {
    "missing-dist": missing_dist,
    "bare-module": bare_module,
    "nested-package": nested_package,
    "namespace-package": namespace_package,
    "unique-symbol": unique_symbol,
    "odd-elf": odd_elf,
    "path-in-needed": path_in_needed,
    "file-of-two-dists": file_of_two_dists,
}
