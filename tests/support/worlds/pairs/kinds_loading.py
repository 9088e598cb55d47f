"""Kinds of fault in what is loaded already: preloading by ctypes, importing a parent first, one SONAME twice."""

from worlds.pairs.kinds_symbols import BESIDE, base_with
from worlds.pairs.pair import Kit, Pair, calls, functions

CDLL = (
    "import ctypes, os\n"
    "ctypes.CDLL(os.path.join(os.path.dirname(__file__), {path}){mode})\n"
)  # fmt: skip
GLOBAL = ", mode=ctypes.RTLD_GLOBAL"


def preload(kit: Kit) -> Pair:
    """A package loads a library by ctypes before its extension, which names it as NEEDED, or does not."""
    library = kit.library("libp.so.1", functions("first"))
    is_global, names_it = kit.chance(0.5), kit.chance(0.5)
    order = kit.rng.choice(["before", "before", "after", "never"])
    load = CDLL.format(path='"lib", "libp.so.1"', mode=GLOBAL if is_global else "")
    use = "from . import _ext\n"
    init = {"before": load + use, "after": use + load, "never": use}[order]
    data = kit.extension(calls("first"), needs=[library] if names_it else [])
    wheel = kit.package("graft", {"_ext@": data, "lib/libp.so.1": library.data}, init)
    return Pair(f"global={is_global} names-it={names_it} order={order}", (wheel,), (), ())


def parent_import(kit: Kit) -> Pair:
    """The extension finds a library only because another package was imported first (import torch)."""
    core = kit.library("libcore.so", functions("core_call"))
    core_ext = kit.extension(calls("core_call"), module="_C", needs=[core], rpath="$ORIGIN/lib")
    parent_loads = kit.chance(0.8)
    parent = kit.package(
        "torchtoy", {"_C@": core_ext, "lib/libcore.so": core.data}, "from . import _C\n" if parent_loads else ""
    )
    order = kit.rng.choice(["before", "before", "after", "never"])
    use, first = "from . import _ext\n", "import torchtoy\n"
    init = {"before": first + use, "after": use + first, "never": use}[order]
    names_it = kit.chance(0.8)
    data = kit.extension(calls("core_call"), needs=[core] if names_it else [])
    wheel = kit.package("graft", {"_ext@": data}, init, requires=("torchtoy",))
    label = f"parent-loads={parent_loads} order={order} names-it={names_it}"
    return Pair(label, (wheel,), (parent,), (parent,))


def broken_parent(kit: Kit) -> Pair:
    """What imports a package that does not import does not import either."""
    library = kit.library("libq.so.1", functions("first"))
    is_broken, is_imported = kit.chance(0.6), kit.rng.choice(["plain", "from", "guarded", "no"])
    found = kit.library("libq.so.1", functions("other")) if is_broken else library
    parent_ext = kit.extension(calls("first"), needs=[library], rpath="$ORIGIN/lib")
    parent = kit.package("torchtoy", {"_ext@": parent_ext, "lib/libq.so.1": found.data}, "from . import _ext\n")
    healthy = kit.package("torchtoy", {"_ext@": parent_ext, "lib/libq.so.1": library.data}, "from . import _ext\n")
    init = {
        "plain": "import torchtoy\n",
        "from": "from torchtoy import _ext\n",
        "guarded": "try:\n    import torchtoy\nexcept ImportError:\n    torchtoy = None\n",
        "no": "",
    }[is_imported]
    wheel = kit.package("graft", {"_ext@": kit.extension(calls())}, init + "from . import _ext\n")
    return Pair(f"broken={is_broken} imported={is_imported}", (wheel,), (parent,), (healthy,))


def same_soname_twice(kit: Kit) -> Pair:
    """Two dists carry one SONAME; who comes first decides for both."""
    new = kit.library("libshared.so.1", functions("old_call", "new_call"))
    old = kit.library("libshared.so.1", functions("old_call"))
    same_soname = kit.chance(0.8)
    other_lib = old if same_soname else kit.library("libshared-old.so.1", functions("old_call"))
    other_ext = kit.extension(calls("old_call"), needs=[other_lib], rpath="$ORIGIN/lib")
    other = kit.package(
        "other", {"_ext@": other_ext, f"lib/{other_lib.link_name}": other_lib.data}, "from . import _ext\n"
    )
    imports_first = kit.chance(0.7)
    uses = kit.rng.choice(["old_call", "new_call", "new_call"])
    data = kit.extension(calls(uses), needs=[new], rpath="$ORIGIN/lib", old_rpath=kit.chance(0.3))
    init = ("import other\n" if imports_first else "") + "from . import _ext\n"
    wheel = kit.package("graft", {"_ext@": data, "lib/libshared.so.1": new.data}, init)
    return Pair(f"same={same_soname} first={imports_first} uses={uses}", (wheel,), (other,), ())


def interposition(kit: Kit) -> Pair:
    """LD_PRELOAD gives a symbol that no library has, or has it in a library that nobody preloads."""
    giver = kit.library("libgiver.so", functions("given"))
    is_set = kit.chance(0.5)
    gives = kit.chance(0.7)
    data = giver.data if gives else kit.library("libgiver.so", functions("other")).data
    wheel = kit.package("graft", {"_ext@": kit.extension(calls("given"))}, "from . import _ext\n")
    return Pair(
        f"set={is_set} gives={gives}", (wheel,), (), (), outside={"pre/libgiver.so": data},
        preload=("{world}/pre/libgiver.so",) if is_set else (),
    )  # fmt: skip


def loaded_by_name(kit: Kit) -> Pair:
    """ctypes.CDLL of a bare SONAME: found by LD_LIBRARY_PATH or not; the failure may be swallowed."""
    library = kit.library("libname.so.2", functions("first"))
    is_set, swallowed = kit.chance(0.5), kit.chance(0.5)
    load = f'ctypes.CDLL("libname.so.2"{GLOBAL})\n'
    guard = f"import ctypes\ntry:\n    {load}except OSError:\n    pass\n" if swallowed else f"import ctypes\n{load}"
    needs_it = kit.chance(0.6)
    data = kit.extension(calls("first") if needs_it else calls())
    wheel = kit.package("graft", {"_ext@": data}, guard + "from . import _ext\n")
    return Pair(
        f"set={is_set} swallowed={swallowed} needs={needs_it}", (wheel,), (), (),
        outside={"opt/libname.so.2": library.data}, library_path=("{world}/opt",) if is_set else (),
    )  # fmt: skip


def two_extensions(kit: Kit) -> Pair:
    """The first extension of a package loads the library that the second needs but cannot find."""
    library = kit.library("libboth.so.1", functions("first"))
    first = kit.extension(calls("first"), module="_a", needs=[library], rpath="$ORIGIN/lib")
    second = kit.extension(calls("first"), module="_b", needs=[library])
    order = kit.rng.choice(["ab", "ba", "a", "b"])
    init = "".join(f"from . import _{letter}\n" for letter in order)
    files = {"_a@": first, "_b@": second, "lib/libboth.so.1": library.data}
    if order == "a":
        del files["_b@"]
    return Pair(f"order={order}", (kit.package("graft", files, init),), (), ())


def base_moves_along(kit: Kit) -> Pair:
    """The library's dist is of another build in the target; it moves along, or stays."""
    ours = kit.library("libcore.so", functions("core_call", "core_new"))
    theirs = kit.library("libcore.so", functions("core_call"))
    uses = kit.rng.choice(["core_call", "core_new", "core_new"])
    data = kit.extension(calls(uses), needs=[ours], rpath=BESIDE)
    wheel = kit.package("graft", {"_ext@": data}, "from . import _ext\n", requires=("base",))
    source, target = base_with(kit, ours), base_with(kit, theirs)
    moves = kit.chance(0.5)
    moved = (wheel, source) if moves else (wheel,)
    return Pair(f"uses={uses} moves={moves}", moved, (target,), () if moves else (source,))


KINDS = {
    "preload": preload,
    "parent-import": parent_import,
    "broken-parent": broken_parent,
    "same-soname-twice": same_soname_twice,
    "interposition": interposition,
    "loaded-by-name": loaded_by_name,
    "two-extensions": two_extensions,
    "base-moves-along": base_moves_along,
}
