"""The prefix on its host: links and shebangs that lead elsewhere, hard links, a polluted loader, one library in two
places, disk, ports, noexec. Knows no dist's versions."""

import posixpath
from collections.abc import Iterator

from treegraft.environments.findings import Finding
from treegraft.environments.inventory import Environment, FileEntry, Inventory, NativeFile
from treegraft.environments.loader.world import World

SERVER_PORT = 30000
LOW_DISK_BYTES = 1 << 30
LOW_INODES = 10_000
MAX_NAMED = 4


def check_places(world: World, dists: frozenset[str] | None) -> Iterator[Finding]:
    if world.inventory is not None and dists is None:
        yield from incomplete(world.inventory)
    environment = world.inventory.environment if world.inventory is not None else None
    if environment is not None and dists is None:
        yield from without_interpreter(environment)
        yield from _scripts(environment)
    yield from _absolute_rpaths(world, dists)
    if dists is None:
        yield from _hard_links(world)
    yield from _polluted(world)
    yield from _twice(world, dists)
    yield from _host(world)


def incomplete(inventory: Inventory) -> Iterator[Finding]:
    """Verdicts rest on what was found: what was not is said with them."""
    if inventory.problems:
        first = inventory.problems[0]
        yield Finding(
            rule="inventory.partial",
            level="warn",
            evidence=f"{len(inventory.problems)} facts about {inventory.destination} are missing, the first one: "
            f"{first.subject}: {first.message}",
            remedy=f"mend what treegraft env probe {inventory.destination} lists: what was not read was not checked",
        )


def without_interpreter(environment: Environment) -> Iterator[Finding]:
    """An environment whose interpreter is gone or does not run; a folder of modules needs none."""
    python = environment.python
    if environment.kind == "folder" or python.is_runnable:
        return
    home = python.pyvenv.get("home", "")
    what = "does not run" if python.real_executable else "leads to no interpreter"
    yield Finding(
        rule="venv.relocation",
        level="block",
        file=python.executable or None,
        evidence=f"{python.executable or environment.prefix + '/bin/python'} {what}"
        + (f"; pyvenv.cfg says home = {home}" if home else ""),
        remedy="make the environment anew on this host (uv venv) and move the dists into it",
    )


def _scripts(environment: Environment) -> Iterator[Finding]:
    strangers = [s for s in environment.scripts if s.kind == "script" and s.shebang and not s.is_inside]
    strangers = [s for s in strangers if "python" in s.shebang and not s.shebang.startswith("/usr/bin/env")]
    if strangers:
        gone = [s for s in strangers if not s.interpreter_exists]
        first = (gone or strangers)[0]
        yield Finding(
            rule="venv.relocation",
            level="warn",
            dist=first.owners[0] if first.owners else None,
            file=first.path,
            evidence=f"{len(strangers)} scripts start an interpreter outside of the environment "
            f"({len(gone)} of them one that does not exist): {first.path} starts {first.shebang}",
            remedy="write the scripts anew from their entry points, or use python -m",
        )


def _absolute_rpaths(world: World, dists: frozenset[str] | None) -> Iterator[Finding]:
    """Search paths that name another environment's folder."""
    by_owner: dict[str | None, list[tuple[NativeFile, str]]] = {}
    for file in world.native:
        for entry in file.rpath + file.runpath:
            if "/site-packages" in entry and entry.startswith("/") and not entry.startswith(world.prefix + "/"):
                by_owner.setdefault(file.owners[0] if file.owners else None, []).append((file, entry))
    for owner, pairs in by_owner.items():
        if dists is None or owner in dists:
            yield Finding(
                rule="venv.relocation",
                level="info",
                dist=owner,
                file=pairs[0][0].path,
                evidence=f"{len(pairs)} search paths lead into another environment: {pairs[0][1]}",
                remedy="use a build whose search paths are relative ($ORIGIN)",
            )


def _hard_links(world: World) -> Iterator[Finding]:
    """uv links files from its cache: editing one in place edits it in every environment."""
    linked = [e for e in world.files if e.num_links > 1 and not e.link_target]
    modified = {c.path for d in world.dists for c in d.modified}
    for files, level in (([e for e in linked if e.path in modified], "warn"), (linked, "info")):
        if files:
            yield _hard_link(files, level)
            return


def _hard_link(files: list[FileEntry], level: str) -> Finding:
    names = ", ".join(e.path for e in files[:MAX_NAMED])
    edited = "edited files" if level == "warn" else "files"
    return Finding(
        rule="venv.hardlink-shared",
        level="warn" if level == "warn" else "info",
        file=files[0].path,
        evidence=f"{len(files)} {edited} are hard links that other environments share: {names}",
        remedy="never edit in place: replace the file, or install with UV_LINK_MODE=copy",
    )


def _polluted(world: World) -> Iterator[Finding]:
    loader = world.host.loader
    own = {name for f in world.native for name in (f.soname, posixpath.basename(f.path)) if name}
    for folder in loader.library_path:
        shadowing = sorted(
            posixpath.basename(f.path)
            for f in world.host.system_libraries
            if posixpath.dirname(f.path) == folder.rstrip("/") and {f.soname, posixpath.basename(f.path)} & own
        )
        what = f" and has {', '.join(shadowing[:MAX_NAMED])}, which the environment ships too" if shadowing else ""
        yield Finding(
            rule="loader.polluted",
            level="warn" if shadowing else "info",
            evidence=f"LD_LIBRARY_PATH holds {folder}{what}",
            remedy="start the server without LD_LIBRARY_PATH",
        )
    for library in loader.preload:
        yield Finding(
            rule="loader.polluted",
            level="warn",
            evidence=f"{library} is preloaded into every process (LD_PRELOAD or /etc/ld.so.preload)",
            remedy="start the server without it",
        )
    conda = world.host.variables.get("CONDA_PREFIX")
    if conda and not world.prefix.startswith(conda):
        yield Finding(
            rule="loader.polluted",
            level="warn",
            evidence=f"the conda environment {conda} is active",
            remedy="deactivate it before using this environment",
        )


def _twice(world: World, dists: frozenset[str] | None) -> Iterator[Finding]:
    """One SONAME from two dists: whichever is loaded first serves both. And two majors of an NVIDIA library: a process
    that loads both has two CUDA runtimes that do not know of each other."""
    yield from _two_majors(world, dists)
    hashes = {e.path: e.sha256 for e in world.files}
    by_soname: dict[str, list[NativeFile]] = {}
    for file in world.native:
        if file.soname and file.owners and file.extension_suffix is None:
            by_soname.setdefault(file.soname, []).append(file)
    for soname, files in by_soname.items():
        owners = list(dict.fromkeys(f.owners[0] for f in files))
        if len(owners) > 1 and (dists is None or dists & set(owners)):
            is_same = len({hashes.get(f.path, f.path) for f in files}) == 1
            places = ", ".join(f"{f.path} ({f.owners[0]})" for f in files[:MAX_NAMED])
            yield Finding(
                rule="loader.twice",
                level="info" if is_same else "warn",
                dist=owners[0],
                file=files[0].path,
                evidence=f"{soname} is there {len(files)} times: {places}; the first one loaded serves all",
                remedy=f"keep one of {', '.join(owners)}, or import them in the order that was tested",
            )


def _two_majors(world: World, dists: frozenset[str] | None) -> Iterator[Finding]:
    families: dict[str, dict[str, NativeFile]] = {}
    for file in world.native:
        if file.soname and file.owners and file.owners[0].startswith("nvidia-"):
            families.setdefault(file.soname.partition(".so")[0], {})[file.soname] = file
    for sonames in families.values():
        owners = {f.owners[0] for f in sonames.values()}
        if len(sonames) > 1 and len(owners) > 1 and (dists is None or dists & owners):
            first = next(iter(sonames.values()))
            yield Finding(
                rule="loader.twice",
                level="warn",
                dist=first.owners[0],
                file=first.path,
                evidence=f"{' and '.join(sorted(sonames))} are both there, of {' and '.join(sorted(owners))}",
                remedy="keep the major that torch is built for",
            )


def _host(world: World) -> Iterator[Finding]:
    filesystem = next((f for f in world.host.filesystems if f.path == world.prefix), None)
    if filesystem is not None and filesystem.is_noexec:
        yield Finding(
            rule="host.noexec",
            level="block",
            file=world.prefix,
            evidence=f"{filesystem.mount_point} ({filesystem.type}) is mounted noexec: nothing there can run",
            remedy="put the environment on another filesystem, or remount this one with exec",
        )
    if filesystem is not None and (filesystem.free_bytes < LOW_DISK_BYTES or 0 <= filesystem.free_inodes < LOW_INODES):
        yield Finding(
            rule="host.disk",
            level="warn",
            file=world.prefix,
            evidence=f"{filesystem.mount_point} has {filesystem.free_bytes >> 20} MiB and {filesystem.free_inodes} "
            "inodes free",
            remedy="free some space (uv cache prune, old environments)",
        )
    for port in world.host.ports:
        if port.port == SERVER_PORT:
            who = f" by {port.command} (pid {port.pid})" if port.pid else ""
            yield Finding(
                rule="host.port-busy",
                level="warn",
                evidence=f"port {port.port} is in use on {port.address}{who}",
                remedy="choose another port for the server, or stop that service first",
            )
