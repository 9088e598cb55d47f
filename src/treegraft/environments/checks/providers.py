"""Who would provide a symbol or a library: only what some inventory at hand or a rule table shows, never a guess."""

from treegraft.environments.inventory import Inventory
from treegraft.environments.loader.library import Library, split_symbol
from treegraft.environments.loader.world import World
from treegraft.environments.rules.tables import Glibc, Libstdcxx, Soname, table


def exporters(world: World, symbol: str) -> list[str]:
    """`torch 2.11.0+cu130 (a:/venv)` for each dist of the other ends whose file exports the symbol."""
    name, version, _ = split_symbol(symbol)
    wanted = {symbol, name + "@@" + version} if version else None
    found = []
    for inventory in world.providers:
        environment = inventory.environment
        if environment is None:
            continue
        for file in environment.native:
            for exported in (file.exports, file.weak_exports):
                hit = any(e in wanted for e in exported) if wanted else _has_plain(exported, name)
                if hit and file.owners:
                    found.append(_dist_label(inventory, file.owners[0]))
                    break
    return list(dict.fromkeys(found))


def similar(scope: tuple[Library, ...], symbol: str) -> list[str]:
    """C++ symbols of the scope with the same qualified name and other argument types, with their file."""
    stem = function_stem(split_symbol(symbol)[0])
    if stem is None:
        return []
    found = []
    for library in scope:
        for exported in library.file.exports + library.file.weak_exports:
            if exported.startswith(stem) and exported != symbol:
                found.append(f"{library.path.rpartition('/')[2]} has {split_symbol(exported)[0]}")
    return found[:3]


def function_stem(mangled: str) -> str | None:
    """The part of an Itanium C++ name that names the function: `_ZN3c104cuda1fE` of `_ZN3c104cuda1fEiPKc`.

    None for what is not a plain function name (templates and operators included). Itanium C++ ABI, section 5.1.
    """
    nested = mangled.startswith("_ZN")
    if not nested and not (mangled.startswith("_Z") and mangled[2:3].isdigit()):
        return None
    at = 3 if nested else 2
    if nested and mangled[at : at + 1] == "K":
        at += 1
    while at < len(mangled) and mangled[at].isdigit():
        end = at
        while end < len(mangled) and mangled[end].isdigit():
            end += 1
        at = end + int(mangled[at:end])
        if not nested:
            return mangled[:at] if at < len(mangled) else None
    return mangled[: at + 1] if nested and mangled[at : at + 1] == "E" else None


def is_shipped(world: World, soname: str) -> bool:
    """Whether a dist of the other ends or of the index is known to ship the library."""
    at_hand = any(
        file.owners and soname in (file.soname, file.path.rpartition("/")[2])
        for inventory in world.providers
        if inventory.environment is not None
        for file in inventory.environment.native
    )
    return at_hand or any(r.soname == soname and r.dists for r in table("sonames", Soname))


def soname_remedy(world: World, soname: str) -> str:
    """What to do about a library that is not found."""
    for inventory in world.providers:
        environment = inventory.environment
        for file in environment.native if environment is not None else ():
            if soname in (file.soname, file.path.rpartition("/")[2]) and file.owners:
                return f"install {_dist_label(inventory, file.owners[0])}, which ships {soname}"
    row = next((r for r in table("sonames", Soname) if r.soname == soname), None)
    if row is not None and row.dists:
        return f"install {' or '.join(row.dists)}, which ships {soname}"
    if row is not None and row.system_package:
        return f"install {row.system_package} on the host, which provides {soname}"
    return f"put {soname} where the file's RPATH or RUNPATH points, or into a folder that the loader searches"


def runtime_remedy(version: str) -> str:
    """What provides a GLIBC_ or GLIBCXX_ version."""
    if version.startswith("GLIBC_"):
        number = _numbers(version.partition("_")[2])
        fitting = [r for r in table("glibc", Glibc) if _numbers(r.version) >= number]
        systems = ", ".join(fitting[0].systems) if fitting else ""
        wanted = version.partition("_")[2] + (f" ({systems} or later)" if systems else "")
        return f"take a build for an older glibc (a lower manylinux tag), or a host with glibc >= {wanted}"
    row = next((r for r in table("libstdcxx", Libstdcxx) if r.version == version), None)
    if row is not None:
        return f"use a libstdc++.so.6 of GCC {row.gcc} or later, or a build made with an older compiler"
    return f"use a build of the library that defines {version}"


def _dist_label(inventory: Inventory, name: str) -> str:
    environment = inventory.environment
    assert environment is not None
    version = next((d.version for d in environment.dists if d.name == name), "")
    return f"{name} {version} ({inventory.destination})".replace("  ", " ")


def _has_plain(exports: tuple[str, ...], name: str) -> bool:
    return any(e == name or e.startswith(name + "@@") for e in exports)


def _numbers(version: str) -> list[int]:
    return [int(n) for n in version.split(".") if n.isdigit()]
