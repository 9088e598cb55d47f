"""Kinds of fault in the files themselves: tags, stable ABI, libc needs, missing and damaged files, another machine."""

from worlds.compiling import truncated, with_elf_class, with_machine
from worlds.pairs.kinds_symbols import BESIDE, base_with, graft
from worlds.pairs.pair import Kit, Pair, calls, functions

USE = "from . import _ext\n"


def python_tag(kit: Kit) -> Pair:
    """An extension whose file name is of this Python, of another, of none, or of several."""
    data = kit.extension(calls())
    own = kit.python.extension_suffix
    digits = kit.python.minor.replace(".", "")
    other = own.replace(f"-{digits}-", f"-{int(digits) - 1}-")
    suffixes = kit.rng.choice(
        [
            (own,),
            (own,),
            (other,),
            (".so",),
            (own, other),
            (own.replace("cpython", "pypy"),),
            (f".cpython-{digits}d.so",),
        ]
    )
    wheel = kit.package("graft", {f"_ext{suffix}": data for suffix in suffixes}, USE)
    return Pair("+".join(suffixes), (wheel,), (), ())


def stable_abi(kit: Kit) -> Pair:
    """abi3: a good one, one that needs a function this Python lacks, one behind a broken versioned twin."""
    variant = kit.rng.choice(["good", "good", "newer-api", "private-api", "behind-broken"])
    defines = ("-DPy_LIMITED_API=0x03080000",)
    source = calls()
    if variant == "newer-api":
        source = "extern void* PyFuture_FromNowhere(void);\nvoid* use(void) { return PyFuture_FromNowhere(); }\n"
    if variant == "private-api":
        defines = ()
        source = "extern void _PyFrameGone_Old(void*);\nvoid use(void) { _PyFrameGone_Old(0); }\n"
    files: dict[str, bytes | str] = {"_ext.abi3.so": kit.extension(source, defines=defines)}
    if variant == "behind-broken":
        files["_ext@"] = kit.extension(calls("nowhere"))
    return Pair(variant, (kit.package("graft", files, USE),), (), ())


def libc_version(kit: Kit) -> Pair:
    """A version of glibc that the host has, or has not; needed by the extension or by a library it brings."""
    version = kit.rng.choice(["GLIBC_2.17", "GLIBC_2.2.5", "GLIBC_2.99", "GLIBC_3.0"])
    exists = version in ("GLIBC_2.17", "GLIBC_2.2.5")
    name = {"GLIBC_2.17": "clock_gettime", "GLIBC_2.2.5": "malloc"}.get(version, "future_call")
    stub = kit.library("libc.so.6", functions(name), version_script=f"{version} {{ global: {name}; local: *; }};\n")
    source = f'extern int needed(void) __asm__("{name}");\nint go(void) {{ return needed(); }}\n'
    is_vendored = kit.chance(0.5)
    if is_vendored:
        library = kit.library("libvend.so.1", source + functions("first"), needs=[stub])
        data = kit.extension(calls("first"), needs=[library], rpath="$ORIGIN/lib")
        wheel = kit.package("graft", {"_ext@": data, "lib/libvend.so.1": library.data}, USE)
    else:
        wheel = kit.package("graft", {"_ext@": kit.extension(source, needs=[stub])}, USE)
    return Pair(f"{version} exists={exists} vendored={is_vendored}", (wheel,), (), ())


def libstdcxx_version(kit: Kit) -> Pair:
    """Likewise for libstdc++."""
    version = kit.rng.choice(["GLIBCXX_3.4.99", "CXXABI_1.9.9", "real", "real"])
    if version == "real":
        source = "#include <string>\nstd::string* make(int n) { return new std::string(n, 'x'); }\n"
        data = kit.extension(source, cplusplus=True)
    else:
        script = f"{version} {{ global: future_call; local: *; }};\n"
        stub = kit.library("libstdc++.so.6", functions("future_call"), version_script=script)
        data = kit.extension(calls("future_call"), needs=[stub])
    return Pair(version, (kit.package("graft", {"_ext@": data}, USE),), (), ())


def missing_file(kit: Kit) -> Pair:
    """A file of RECORD that is gone: module, extension, library or mere data."""
    library = kit.library("libm2.so.1", functions("first"))
    data = kit.extension(calls("first"), needs=[library], rpath="$ORIGIN/lib")
    files = {
        "_ext@": data, "lib/libm2.so.1": library.data, "helper.py": "value = 1\n", "table.txt": "data\n",
        "unused.json": "{}\n",
    }  # fmt: skip
    wheel = kit.package("graft", files, "from . import helper\n" + USE)
    gone = kit.rng.choice([None, "_ext@", "lib/libm2.so.1", "helper.py", "table.txt", "unused.json", "table.txt"])
    removed = (f"graft/{gone.replace('@', kit.python.extension_suffix)}",) if gone else ()
    return Pair(str(gone), (wheel,), (), (), removed=removed)


def other_machine(kit: Kit) -> Pair:
    """The extension, or the one library it has, is for another machine or class."""
    library = kit.library("libx.so.1", functions("first"))
    data = kit.extension(calls("first"), needs=[library], rpath="$ORIGIN/lib")
    where = kit.rng.choice(["none", "none", "extension", "library"])
    damage = kit.rng.choice([lambda d: with_machine(d, 183), lambda d: with_elf_class(d, 1)])
    files = {
        "_ext@": damage(data) if where == "extension" else data,
        "lib/libx.so.1": damage(library.data) if where == "library" else library.data,
    }
    return Pair(where, (kit.package("graft", files, USE),), (), ())


def truncated_file(kit: Kit) -> Pair:
    """An ELF file cut short: in its section headers it still loads, in its segments it does not."""
    library = kit.library("libt.so.1", functions("first"))
    data = kit.extension(calls("first"), needs=[library], rpath="$ORIGIN/lib")
    where = kit.rng.choice(["extension", "library"])
    share = kit.rng.choice([0.0, 0.002, 0.3, 0.6, 0.97, 0.99, 1.0, 1.0, 1.0])
    files = {
        "_ext@": truncated(data, share) if where == "extension" else data,
        "lib/libt.so.1": truncated(library.data, share) if where == "library" else library.data,
    }
    return Pair(f"{where} kept={share}", (kit.package("graft", files, USE),), (), ())


def init_function(kit: Kit) -> Pair:
    """A renamed extension lacks the init function of its name."""
    renamed = kit.chance(0.5)
    data = kit.extension(calls(), module="_old" if renamed else "_ext")
    return Pair(f"renamed={renamed}", (kit.package("graft", {"_ext@": data}, USE),), (), ())


def linked_library(kit: Kit) -> Pair:
    """A library behind a symbolic link that leads out of the environment, to a file or to nowhere."""
    library = kit.library("libl.so.1", functions("first"))
    exists = kit.chance(0.5)
    ext = graft(kit, calls("first"), needs=[library], rpath=BESIDE)
    target = kit.package("base", {})
    return Pair(
        f"exists={exists}", (ext,), (target,), (base_with(kit, library),), outside={"store/libl.so.1": library.data},
        symlinks={"base/lib/libl.so.1": "{world}/store/" + ("libl.so.1" if exists else "gone.so.1")},
    )  # fmt: skip


def healthy(kit: Kit) -> Pair:
    """Nothing wrong: a pure dist, one with a library beside it, one that needs the system's."""
    variant = kit.rng.choice(["pure", "beside", "system", "cplusplus"])
    if variant == "pure":
        return Pair(variant, (kit.package("graft", {"helper.py": "x = 1\n"}, "from . import helper\n"),), (), ())
    if variant == "beside":
        library = kit.library("libok.so.1", functions("first"))
        ext = graft(kit, calls("first"), needs=[library], rpath=BESIDE)
        return Pair(variant, (ext,), (base_with(kit, library),), (base_with(kit, library),))
    if variant == "system":
        source = '#include <math.h>\n#include <stdio.h>\ndouble go(double x) { puts(""); return sqrt(x); }\n'
        data = kit.extension(source, flags=("-lm",))
    else:
        data = kit.extension("#include <vector>\nint go() { std::vector<int> v(3); return v.at(1); }\n", cplusplus=True)
    return Pair(variant, (kit.package("graft", {"_ext@": data}, USE),), (), ())


KINDS = {
    "python-tag": python_tag,
    "stable-abi": stable_abi,
    "libc-version": libc_version,
    "libstdcxx-version": libstdcxx_version,
    "missing-file": missing_file,
    "other-machine": other_machine,
    "truncated-file": truncated_file,
    "init-function": init_function,
    "linked-library": linked_library,
    "healthy": healthy,
}
