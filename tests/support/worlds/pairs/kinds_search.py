"""Kinds of fault in where libraries are searched: RPATH, RUNPATH, LD_LIBRARY_PATH, $ORIGIN, SONAMEs, chains."""

from worlds.compiling import with_elf_class, with_machine
from worlds.pairs.kinds_symbols import BESIDE, base_with, graft
from worlds.pairs.pair import Kit, Pair, calls, functions


def rpath_against_environment(kit: Kit) -> Pair:
    """One SONAME in the dist's folder and in a folder of LD_LIBRARY_PATH: RPATH goes before it, RUNPATH after it."""
    good = kit.library("libr.so.1", functions("first"))
    bad = kit.library("libr.so.1", functions("other"))
    old_rpath, outside_is_good, is_set = kit.chance(0.5), kit.chance(0.5), kit.chance(0.8)
    both_tags = kit.chance(0.1)
    ext = graft(kit, calls("first"), needs=[good], rpath=BESIDE, old_rpath=old_rpath)
    inside, outside = (bad, good) if outside_is_good else (good, bad)
    path = ("{world}/opt/lib",) if is_set else ()
    if both_tags:
        path = ("{world}/opt/nothing", *path)
    label = f"{'RPATH' if old_rpath else 'RUNPATH'} outside-good={outside_is_good} set={is_set}"
    return Pair(
        label, (ext,), (base_with(kit, inside),), (base_with(kit, good),),
        outside={"opt/lib/libr.so.1": outside.data}, library_path=path,
    )  # fmt: skip


def runpath_inheritance(kit: Kit) -> Pair:
    """ext -> liba -> libb, both beside each other: the extension's RPATH finds libb, its RUNPATH does not."""
    second = kit.library("libb.so.1", functions("second"))
    own = kit.rng.choice([None, None, "$ORIGIN", "$ORIGIN/nowhere"])
    first_old = kit.chance(0.5)
    first = kit.library(
        "liba.so.1", calls("second") + functions("first"), needs=[second], rpath=own, old_rpath=first_old
    )
    old_rpath = kit.chance(0.5)
    ext_names_both = kit.chance(0.2)
    needs = [first, second] if ext_names_both else [first]
    ext = graft(kit, calls("first"), needs=needs, rpath=BESIDE, old_rpath=old_rpath)
    target = kit.package("base", {"lib/liba.so.1": first.data, "lib/libb.so.1": second.data})
    label = f"ext={'RPATH' if old_rpath else 'RUNPATH'} liba={own}{'(old)' if first_old else ''} both={ext_names_both}"
    return Pair(label, (ext,), (target,), (target,))


def soname_major(kit: Kit) -> Pair:
    """NEEDED names another major (libcudart.so.13) than the target has."""
    need, have = kit.rng.choice([(13, 12), (13, 13), (12, 12), (12, 13)])
    built = kit.library(f"libcudart_toy.so.{need}", functions("launch"))
    found = kit.library(f"libcudart_toy.so.{have}", functions("launch"))
    ext = graft(kit, calls("launch"), needs=[built], rpath=BESIDE)
    files = {f"lib/libcudart_toy.so.{have}": found.data}
    symlinks = {}
    if need != have and kit.chance(0.3):  # the hand-made remedy: a link with the wanted name
        symlinks = {f"base/lib/libcudart_toy.so.{need}": f"libcudart_toy.so.{have}"}
    return Pair(
        f"need={need} have={have} link={bool(symlinks)}", (ext,), (kit.package("base", files),),
        (base_with(kit, built),), symlinks=symlinks,
    )  # fmt: skip


def missing_needed(kit: Kit) -> Pair:
    """A library that nothing provides; one that the system provides."""
    name = kit.rng.choice(["libz.so.1", "libm.so.6", "libnowhere.so.9", "libnowhere.so.9", "libexpat.so.1"])
    need = kit.library(name, functions("unused_marker"))
    ext = graft(kit, calls(), (), needs=[need], rpath="$ORIGIN/lib" if kit.chance(0.5) else None)
    return Pair(name, (ext,), (), ())


def transitive(kit: Kit) -> Pair:
    """A chain of needs, broken at a random link or not at all; the break is a missing file or a missing symbol."""
    depth = kit.rng.randint(2, 4)
    broken = kit.rng.choice([None, None, kit.rng.randint(0, depth - 1)])
    by_symbol = kit.chance(0.5)
    files: dict[str, bytes] = {}
    library = None
    for level in reversed(range(depth)):
        called = (f"level{level + 1}",) if level + 1 < depth else ()
        needs = [library] if library else []
        source = calls(*called) + functions(f"level{level}")
        rpath = "$ORIGIN" if kit.chance(0.8) or needs == [] else "${ORIGIN}"
        library = kit.library(f"liblevel{level}.so", source, needs=needs, rpath=rpath)
        data = library.data
        if level == broken and by_symbol:
            data = kit.library(f"liblevel{level}.so", calls(*called), needs=needs, rpath=rpath).data
        if level != broken or by_symbol:
            files[f"lib/liblevel{level}.so"] = data
    assert library is not None
    ext = graft(kit, calls("level0"), needs=[library], rpath=BESIDE)
    target = kit.package("base", files)
    return Pair(f"depth={depth} broken={broken} by={'symbol' if by_symbol else 'file'}", (ext,), (target,), (target,))


def origin_path(kit: Kit) -> Pair:
    """$ORIGIN forms, right and wrong, with several entries, an empty one, and absolute paths."""
    forms = {
        "$ORIGIN/../base/lib": True,
        "${ORIGIN}/../base/lib": True,
        "$ORIGIN/lib": False,
        "$ORIGIN/../../base/lib": False,
        "/nonexistent:$ORIGIN/../base/lib": True,
        "$ORIGIN/../base.libs:$ORIGIN/../base/./lib": True,
        "$ORIGIN/../base/lib/": True,
        "$ORIGIN_/../base/lib": False,
        "../base/lib": False,
        "$ORIGIN/sub/../../base/lib": False,
        "$LIB/../base/lib": False,
    }
    rpath = kit.rng.choice(list(forms))
    built = kit.library("libo.so.1", functions("first"))
    ext = graft(kit, calls("first"), needs=[built], rpath=rpath, old_rpath=kit.chance(0.3))
    return Pair(rpath, (ext,), (base_with(kit, built),), (base_with(kit, built),))


def vendored(kit: Kit) -> Pair:
    """A dist that brings its library in NAME.libs, with the file there or left behind when copied by hand."""
    built = kit.library("libvend-1a2b3c.so.1", functions("first"))
    data = kit.extension(calls("first"), needs=[built], rpath="$ORIGIN/../graft.libs")
    wheel = kit.package("graft", {"_ext@": data}, "from . import _ext\n")
    wheel = wheel.with_files({"graft.libs/libvend-1a2b3c.so.1": built.data})
    is_left = kit.chance(0.5)
    removed = ("graft.libs/libvend-1a2b3c.so.1",) if is_left else ()
    return Pair(f"left-behind={is_left}", (wheel,), (), (), removed=removed)


def skipped_candidates(kit: Kit) -> Pair:
    """A candidate for another machine or class is passed over; a damaged one ends the search."""
    good = kit.library("libr.so.1", functions("first"))
    damage = {
        "machine": with_machine(good.data, 183),
        "class": with_elf_class(good.data, 1),
        "empty": b"",
        "text": b"/* GNU ld script */\n" + b" " * 400,
        "short": good.data[:40],
        "none": good.data,
    }
    name = kit.rng.choice(list(damage))
    has_second = kit.chance(0.7)
    rpath = "$ORIGIN/../base/lib" + (":$ORIGIN/../second/lib" if has_second else "")
    ext = graft(kit, calls("first"), needs=[good], rpath=rpath, old_rpath=kit.chance(0.5))
    target = (kit.package("base", {"lib/libr.so.1": damage[name]}), base_with(kit, good, "second"))
    return Pair(f"{name} second={has_second}", (ext,), target, (base_with(kit, good),))


def file_name_and_soname(kit: Kit) -> Pair:
    """The search goes by file name; a library's own SONAME may say something else."""
    built = kit.library("libn.so.1", functions("first"))
    file_name = kit.rng.choice(["libn.so.1", "libn.so", "libn.so.1.0.2"])
    link = kit.chance(0.5) and file_name != "libn.so.1"
    dangling = link and kit.chance(0.3)
    symlinks = {"base/lib/libn.so.1": "gone.so" if dangling else file_name} if link else {}
    ext = graft(kit, calls("first"), needs=[built], rpath=BESIDE)
    target = kit.package("base", {f"lib/{file_name}": built.data})
    return Pair(
        f"file={file_name} link={link} dangling={dangling}", (ext,), (target,), (base_with(kit, built),),
        symlinks=symlinks,
    )  # fmt: skip


def environment_path(kit: Kit) -> Pair:
    """No RPATH at all: only LD_LIBRARY_PATH can find the library."""
    good = kit.library("libr.so.1", functions("first"))
    other = kit.library("libr.so.1", functions("other"))
    order = kit.rng.choice([(), ("good",), ("bad",), ("bad", "good"), ("good", "bad"), ("good",)])
    ext = graft(kit, calls("first"), (), needs=[good])
    return Pair(
        f"LD_LIBRARY_PATH={':'.join(order)}", (ext,), (), (),
        outside={"good/libr.so.1": good.data, "bad/libr.so.1": other.data},
        library_path=tuple(f"{{world}}/{name}" for name in order),
    )  # fmt: skip


KINDS = {
    "rpath-against-environment": rpath_against_environment,
    "runpath-inheritance": runpath_inheritance,
    "soname-major": soname_major,
    "missing-needed": missing_needed,
    "transitive": transitive,
    "origin-path": origin_path,
    "vendored": vendored,
    "skipped-candidates": skipped_candidates,
    "file-name-and-soname": file_name_and_soname,
    "environment-path": environment_path,
}
