"""Kinds of fault in symbols: versions, weak ones, visibility, argument types, data. Each kind is healthy at times."""

from worlds.compiling import Native
from worlds.pairs.pair import Kit, Pair, calls, functions
from worlds.wheels import Wheel

BESIDE = "$ORIGIN/../base/lib"  # from graft/_ext to the library of the dist `base`
FULL = "LIBV_1.0 { global: first; local: *; };\nLIBV_2.0 { global: second; } LIBV_1.0;\n"


def base_with(kit: Kit, library: Native, name: str = "base") -> Wheel:
    """The dist that owns a library, in `NAME/lib/`."""
    return kit.package(name, {f"lib/{library.link_name}": library.data})


def graft(kit: Kit, source: str, requires: tuple[str, ...] = ("base",), **link: object) -> Wheel:
    """The dist that is moved: one extension."""
    return kit.package("graft", {"_ext@": kit.extension(source, **link)}, "from . import _ext\n", requires)


def version_script(kit: Kit) -> Pair:
    """Versioned symbols that the target's library defines, lacks, or defines elsewhere."""
    built = kit.library("libv.so.1", functions("first", "second"), version_script=FULL)
    plain = kit.library("libv.so.1", functions("first", "second"))
    only_first = functions("first")
    scripts = {
        "same": (functions("first", "second"), FULL),
        "old-only": (only_first, "LIBV_1.0 { global: first; local: *; };\n"),
        "renamed": (
            functions("first", "second"),
            "LIBV_1.0 { global: first; local: *; };\nLIBV_3.0 { global: second; } LIBV_1.0;\n",
        ),
        "newer-too": (functions("first", "second", "third"), FULL + "LIBV_3.0 { global: third; } LIBV_2.0;\n"),
        "unversioned": (functions("first", "second"), None),
        "in-other-node": (
            functions("first", "second", "third"),
            "LIBV_1.0 { global: first; second; local: *; };\nLIBV_2.0 { global: third; } LIBV_1.0;\n",
        ),
        "unversioned-without": (only_first, None),
    }
    variant = kit.rng.choice(list(scripts))
    source, script = scripts[variant]
    found = kit.library("libv.so.1", source, version_script=script)
    needs_version = kit.chance(0.75)
    uses = kit.rng.choice([("first",), ("second",), ("first", "second")])
    ext = graft(kit, calls(*uses), needs=[built if needs_version else plain], rpath=BESIDE)
    label = f"{variant} uses={'+'.join(uses)} versioned={needs_version}"
    return Pair(label, (ext,), (base_with(kit, found),), (base_with(kit, built),))


HIDDEN_OLD = """
int old_first(void) { return 1; }
int new_first(void) { return 2; }
__asm__(".symver old_first,first@LIBV_1.0");
__asm__(".symver new_first,first@@LIBV_2.0");
"""
HIDDEN_ONLY = 'int old_first(void) { return 1; }\n__asm__(".symver old_first,first@LIBV_1.0");\n'
NODES = "LIBV_1.0 { local: old_first; new_first; };\nLIBV_2.0 { } LIBV_1.0;\n"


def default_version(kit: Kit) -> Pair:
    """Old, hidden versions of a symbol: found by who asks for them, and by few who ask for none."""
    old = kit.library("libv.so.1", functions("first"), version_script="LIBV_1.0 { global: first; local: *; };\n")
    plain = kit.library("libv.so.1", functions("first"))
    built_for = kit.rng.choice(["old", "none"])
    variant = kit.rng.choice(["old-and-new", "hidden-only", "default-new-only"])
    if variant == "old-and-new":
        found = kit.library("libv.so.1", HIDDEN_OLD, version_script=NODES)
    elif variant == "hidden-only":
        found = kit.library("libv.so.1", HIDDEN_ONLY, version_script=NODES)
    else:
        script = "LIBV_1.0 { };\nLIBV_2.0 { global: first; local: *; } LIBV_1.0;\n"
        found = kit.library("libv.so.1", functions("first"), version_script=script)
    ext = graft(kit, calls("first"), needs=[old if built_for == "old" else plain], rpath=BESIDE)
    return Pair(f"{variant} built-for={built_for}", (ext,), (base_with(kit, found),), (base_with(kit, old),))


def weak_symbol(kit: Kit) -> Pair:
    """Weak references may stay open, strong ones may not."""
    built = kit.library("libw.so.1", functions("strong", "maybe"))
    present = kit.rng.choice([("strong", "maybe"), ("strong",), ("maybe",), ("strong",)])
    found = kit.library("libw.so.1", functions(*present))
    is_weak = kit.chance(0.7)
    source = calls("strong", weak=("maybe",)) if is_weak else calls("strong", "maybe")
    ext = graft(kit, source, needs=[built], rpath=BESIDE)
    return Pair(
        f"present={'+'.join(present)} weak={is_weak}", (ext,), (base_with(kit, found),), (base_with(kit, built),)
    )


def weak_version(kit: Kit) -> Pair:
    """A version that only weak references need, of a library that has no such version."""
    built = kit.library("libv.so.1", functions("first", "second"), version_script=FULL)
    found = kit.library("libv.so.1", functions("first"), version_script="LIBV_1.0 { global: first; local: *; };\n")
    is_weak = kit.chance(0.6)
    source = calls("first", weak=("second",)) if is_weak else calls("first", "second")
    ext = graft(kit, source, needs=[built], rpath=BESIDE)
    return Pair(f"weak={is_weak}", (ext,), (base_with(kit, found),), (base_with(kit, built),))


def weak_definition(kit: Kit) -> Pair:
    """A weak definition serves a strong need."""
    is_weak = kit.chance(0.5)
    body = "__attribute__((weak)) int first(void) { return 1; }\n" if is_weak else functions("other")
    built = kit.library("libw.so.1", functions("first"))
    found = kit.library("libw.so.1", body)
    ext = graft(kit, calls("first"), needs=[built], rpath=BESIDE)
    return Pair(f"weak-definition={is_weak}", (ext,), (base_with(kit, found),), (base_with(kit, built),))


ARGUMENTS = ("int", "unsigned int", "long", "const char*")


def argument_type(kit: Kit) -> Pair:
    """C++: a symbol whose mangled name differs by one argument type (the c10_cuda_check_implementation case)."""

    def check(argument: str) -> str:
        line = f"void check_implementation(int error, const char* file, const char* name, {argument} line, bool all)"
        return f"namespace c10 {{ namespace cuda {{ {line}"

    ours, theirs = kit.rng.choice(ARGUMENTS), kit.rng.choice(ARGUMENTS)
    if kit.chance(0.4):
        theirs = ours
    built = kit.library("libc10_toy.so", check(ours) + " {} } }\n", cplusplus=True)
    found = kit.library("libc10_toy.so", check(theirs) + " {} } }\n", cplusplus=True)
    use = f"{check(ours)}; }} }}\nint go() {{ c10::cuda::check_implementation(0, 0, 0, 0, true); return 0; }}\n"
    ext = graft(kit, use, needs=[built], rpath=BESIDE, cplusplus=True)
    return Pair(f"needs={ours} found={theirs}", (ext,), (base_with(kit, found),), (base_with(kit, built),))


def data_symbol(kit: Kit) -> Pair:
    """A variable, resolved at load, never lazily; a thread-local one likewise."""
    keyword = kit.rng.choice(["", "__thread "])
    present = kit.rng.choice(["table", "table", "other"])
    built = kit.library("libd.so.1", f"{keyword}int table = 3;\n")
    found = kit.library("libd.so.1", f"{keyword}int {present} = 3;\n")
    ext = graft(
        kit, f"extern {keyword}int table;\nint* where(void) {{ return &table; }}\n", needs=[built], rpath=BESIDE
    )
    label = f"{keyword.strip() or 'plain'} present={present}"
    return Pair(label, (ext,), (base_with(kit, found),), (base_with(kit, built),))


def hidden_visibility(kit: Kit) -> Pair:
    """A function that is in the file but not for others."""
    visibility = kit.rng.choice(["default", "hidden", "protected", "internal", "default"])
    built = kit.library("libh.so.1", functions("first"))
    body = f'__attribute__((visibility("{visibility}"))) int first(void) {{ return 1; }}\n'
    found = kit.library("libh.so.1", body + "int other(void) { return first(); }\n")
    ext = graft(kit, calls("first"), needs=[built], rpath=BESIDE)
    return Pair(visibility, (ext,), (base_with(kit, found),), (base_with(kit, built),))


def sibling_scope(kit: Kit) -> Pair:
    """A library's open symbol that no library of its own provides, but one of the extension's other needs may."""
    consumer = kit.library("libconsumer.so.1", calls("given"))
    provider = kit.library("libprovider.so.1", functions("given" if kit.chance(0.6) else "other"))
    names_provider = kit.chance(0.6)
    needs = [consumer, provider] if names_provider else [consumer]
    if kit.chance(0.5):
        needs.reverse()
    ext = graft(kit, calls(), needs=needs, rpath=BESIDE)
    files = {f"lib/{n.link_name}": n.data for n in (consumer, provider)}
    target = kit.package("base", files)
    return Pair(f"order={[n.link_name for n in needs]}", (ext,), (target,), (target,))


KINDS = {
    "version-script": version_script,
    "default-version": default_version,
    "weak-symbol": weak_symbol,
    "weak-version": weak_version,
    "weak-definition": weak_definition,
    "argument-type": argument_type,
    "data-symbol": data_symbol,
    "hidden-visibility": hidden_visibility,
    "sibling-scope": sibling_scope,
}
