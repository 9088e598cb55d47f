"""Inventories made of a few words, for tests of what is decided from them. Facts are made up; no machine was asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from treegraft.environments.inventory import (
    Dist,
    Environment,
    FileEntry,
    Gpu,
    Gpus,
    Host,
    Inventory,
    Loader,
    LoadEvent,
    ModuleLoads,
    NativeFile,
    Origin,
    PythonFacts,
    System,
)

SITE = "lib/python3.11/site-packages"
SUFFIX = ".cpython-311-x86_64-linux-gnu.so"
PREFIX = "/env"
LIBC = NativeFile(
    path="/usr/lib/x86_64-linux-gnu/libc.so.6",
    size=1,
    mtime_ns=0,
    machine="x86_64",
    elf_class=64,
    elf_type="shared",
    soname="libc.so.6",
    version_definitions=("libc.so.6", "GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.34"),
    exports=("malloc@@GLIBC_2.2.5", "clock_gettime@@GLIBC_2.17"),
)
LIBSTDCXX = NativeFile(
    path="/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    size=1,
    mtime_ns=0,
    machine="x86_64",
    elf_class=64,
    elf_type="shared",
    soname="libstdc++.so.6",
    version_definitions=("libstdc++.so.6", "GLIBCXX_3.4", "GLIBCXX_3.4.30"),
)
PYTHON = NativeFile(
    path="/usr/bin/python3.11",
    size=1,
    mtime_ns=0,
    machine="x86_64",
    elf_class=64,
    elf_type="executable",
    interpreter="/lib64/ld-linux-x86-64.so.2",
    needed=("libc.so.6",),
    exports=("PyModule_Create2", "PyLong_FromLong"),
)


def native(path: str, owner: str | None = None, **facts: Any) -> NativeFile:
    """An x86-64 shared library of the environment; extension modules get their suffix from their name."""
    defaults: dict[str, Any] = {"machine": "x86_64", "elf_class": 64, "elf_type": "shared", "size": 10, "mtime_ns": 0}
    name = path.rpartition("/")[2]
    for suffix in (SUFFIX, ".abi3.so"):
        if name.endswith(suffix):
            defaults["extension_suffix"] = suffix
    if ".cpython-3" in name and "extension_suffix" not in defaults:
        defaults["extension_suffix"] = name[name.index(".cpython-3") :]
    return NativeFile(path=path, owners=(owner,) if owner else (), **{**defaults, **facts})


def extension(package: str, name: str = "_ext", suffix: str = SUFFIX, **facts: Any) -> NativeFile:
    """Extension module `package.name` of the dist `package`, with its init function."""
    exports = (f"PyInit_{name}", *facts.pop("exports", ()))
    return native(f"{SITE}/{package}/{name}{suffix}", package, exports=exports, **facts)


def entry(path: str, owners: Sequence[str] = (), **facts: Any) -> FileEntry:
    defaults: dict[str, Any] = {
        "size": 10, "sha256": "0" * 64, "mode": 0o644, "mtime_ns": 0, "device": 1, "inode": 1, "num_links": 1,
        "link_target": "",
    }  # fmt: skip
    return FileEntry(path=path, owners=tuple(owners), **{**defaults, **facts})


def dist(name: str, version: str = "1.0", **facts: Any) -> Dist:
    defaults: dict[str, Any] = {
        "raw_name": name, "local": version.partition("+")[2] or None, "installer": "uv", "requested": True,
        "metadata_path": f"{SITE}/{name.replace('-', '_')}-{version}.dist-info", "requires": (),
        "origin": Origin(kind="index", how="test"), "requires_python": "", "provides_extras": (), "tags": (),
        "is_pure": True, "top_level": (name.replace("-", "_"),), "entry_points": (), "num_files": 1, "size_bytes": 10,
        "has_record": True, "modified": (), "missing": (), "unchecked": (), "hostile": (), "how": "test",
    }  # fmt: skip
    return Dist(name=name, version=version, **{**defaults, **facts})


def gpu(capability: str = "9.0", index: int = 0, **facts: Any) -> Gpu:
    defaults: dict[str, Any] = {
        "uuid": f"GPU-{index}", "name": "synthetic", "memory_total_bytes": 1 << 34, "memory_used_bytes": 0,
        "persistence": True, "ecc_uncorrected": 0, "pci_bus": f"0000:0{index}:00.0", "health": "ok",
        "health_detail": "",
    }  # fmt: skip
    return Gpu(index=index, compute_capability=capability, **{**defaults, **facts})


@dataclass
class Recipe:
    """What `inventory` makes: dists, native files and the module-level loads of `package/__init__.py`."""

    dists: Sequence[Dist] = ()
    natives: Sequence[NativeFile] = ()
    files: Sequence[FileEntry] = ()
    loads: Mapping[str, Sequence[tuple[str, str, str]]] = field(default_factory=dict)
    system_libraries: Sequence[NativeFile] = (LIBC, LIBSTDCXX)
    host: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    python: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = PREFIX


def inventory(recipe: Recipe, destination: str = "host:/env") -> Inventory:
    """Every dist gets the file PACKAGE/__init__.py; every native file its entry."""
    files = {f.path: f for f in recipe.files}
    for one in recipe.dists:
        for top in one.top_level:
            path = f"{SITE}/{top}/__init__.py"
            files.setdefault(path, entry(path, (one.name,)))
    for file in recipe.natives:
        files.setdefault(file.path, entry(file.path, file.owners))
    loads = tuple(
        ModuleLoads(
            path=f"{SITE}/{package}/__init__.py",
            events=tuple(LoadEvent(kind=k, name=n, detail=d, guards=()) for k, n, d in events),
        )
        for package, events in recipe.loads.items()
    )
    return Inventory(
        destination=destination,
        taken_at="2026-01-01T00:00:00+00:00",
        treegraft_version="0",
        host=_host(recipe),
        environment=_environment(recipe, tuple(files.values()), loads),
        problems=(),
        partial=False,
    )


def _host(recipe: Recipe) -> Host:
    defaults: dict[str, Any] = {
        "user": "u", "home": "/home/u", "agent_python": "/usr/bin/python3", "agent_python_version": "3.11.7",
        "system": System(how="test", machine="x86_64", libc="glibc", libc_version="2.34", kernel="6"),
        "filesystems": (), "gpus": Gpus(how="test"), "ports": (), "ports_how": "test", "toolkits": (),
        "build_tools": (), "package_managers": (), "interpreters": (), "loader": Loader(how="test"), "variables": {},
        "system_libraries": tuple(recipe.system_libraries),
    }  # fmt: skip
    return Host(**{**defaults, **recipe.host})


def _environment(recipe: Recipe, files: tuple[FileEntry, ...], loads: tuple[ModuleLoads, ...]) -> Environment:
    python = PythonFacts(
        **{
            "how": "test", "executable": f"{recipe.prefix}/bin/python", "real_executable": PYTHON.path,
            "is_runnable": True, "version": "3.11.7", "implementation": "cpython",
            "soabi": "cpython-311-x86_64-linux-gnu", "extension_suffix": SUFFIX, "site_packages": (SITE,),
            "has_python_h": True, "native": (PYTHON,), **recipe.python,
        }
    )  # fmt: skip
    defaults: dict[str, Any] = {
        "prefix": recipe.prefix, "real_prefix": recipe.prefix, "kind": "uv-venv", "is_empty": not recipe.dists,
        "how": "test", "has_pip": False, "python": python, "dists": tuple(recipe.dists), "conda_packages": (),
        "files": files, "unowned": (), "native": tuple(recipe.natives), "links": (), "pth_files": (), "scripts": (),
        "caches": (), "python_loads": loads,
    }  # fmt: skip
    return Environment(**{**defaults, **recipe.environment})


def with_gpus(found: Inventory, *devices: Gpu, driver: str = "580.95.05", cuda: str = "13.0") -> Inventory:
    """The same with GPUs and a driver on its host."""
    gpus = Gpus(how="synthetic", driver_version=driver, driver_cuda_version=cuda, devices=devices)
    return msgspec.structs.replace(found, host=msgspec.structs.replace(found.host, gpus=gpus))
