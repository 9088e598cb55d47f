"""GPU rules: does each file carry code for the devices, is the driver new enough, are devices healthy, can JIT
packages compile. Knows no import; a host without devices has no finding here."""

import re
from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from treegraft.environments.findings import Finding
from treegraft.environments.inventory import GpuCode, Host, NativeFile
from treegraft.environments.loader.world import World
from treegraft.environments.rules.tables import CudaDriver, GpuFamily, JitPackage, table

ARCH = re.compile(r"^(?:sm|compute)_(\d+)([af]?)$")
ARCH_IN_PATH = re.compile(r"(?:^|[/_.\-])(?:sm_?\d{2,3}|hopper|blackwell)", re.IGNORECASE)
CUDART = re.compile(r"^libcudart\.so\.(\d+)")
NEED_NAMES = {
    "nvcc": ("nvcc",),
    "ninja": ("ninja", "ninja-build"),
    "c-compiler": ("gcc", "cc", "clang"),
    "cxx-compiler": ("g++", "c++", "clang++"),
}


def runs_on(code: GpuCode, capability: str) -> bool:
    """Whether device code runs on a device of compute capability `8.6`.

    Cubin: same major, minor not above the device's; `a` on exactly that one; `f` on its family. PTX: any later device;
    not for `a` and `f`, which PTX keeps to the device or family. Source: the gpu_families table.
    """
    match = ARCH.match(code.arch)
    if match is None or "." not in capability:
        return False
    number, variant = int(match[1]), match[2]
    device = int(capability.replace(".", ""))
    if variant == "a":
        return number == device
    if variant == "f":
        family = next((r for r in table("gpu_families", GpuFamily) if r.arch == match[1]), None)
        return str(device) in family.members if family is not None else number // 10 == device // 10 <= device
    if code.kind == "ptx":
        return number <= device
    return number // 10 == device // 10 and number <= device


def check_gpu(world: World, dists: frozenset[str] | None) -> Iterator[Finding]:
    yield from _health(world.host)
    if not world.host.gpus.devices and not world.host.gpus.driver_version:
        return
    yield from _driver(world, dists)
    yield from _architectures(world, dists)
    yield from _toolchain(world, dists)


def _health(host: Host) -> Iterator[Finding]:
    devices = host.gpus.devices
    sick = [g for g in devices if g.health == "unusable" or (g.ecc_uncorrected or 0) > 0]
    for gpu in sick:
        xid = next((line for line in host.gpus.xid_errors if gpu.pci_bus and gpu.pci_bus.lower() in line.lower()), "")
        detail = gpu.health_detail or f"{gpu.ecc_uncorrected} uncorrected ECC errors"
        yield Finding(
            rule="gpu.unhealthy",
            level="block" if len(sick) == len(devices) else "warn",
            evidence=f"GPU {gpu.index} ({gpu.name}) is unusable: {detail}{'; ' + xid if xid else ''}",
            remedy=f"leave GPU {gpu.index} out (CUDA_VISIBLE_DEVICES), reset it or restart the host",
        )


def _driver(world: World, dists: frozenset[str] | None) -> Iterator[Finding]:
    driver = _version(world.host.gpus.driver_version)
    if driver is None:
        return
    wanted: dict[int, list[tuple[str | None, NativeFile]]] = {}
    for file in world.native:
        owner = file.owners[0] if file.owners else None
        for name in {file.soname or "", *file.needed}:
            match = CUDART.match(name)
            if match and (dists is None or owner in dists):
                wanted.setdefault(int(match[1]), []).append((owner, file))
    for major, files in sorted(wanted.items()):
        row = next((r for r in table("cuda_drivers", CudaDriver) if r.cuda_major == major), None)
        if row is None or driver >= Version(row.min_driver):
            continue
        owners: list[str | None] = [*sorted({o for o, _ in files if o})]
        for owner in owners or [None]:
            first = next(f for o, f in files if o == owner)
            yield Finding(
                rule="gpu.driver-too-old",
                level="block",
                dist=owner,
                file=first.path,
                evidence=f"{first.path} needs CUDA {major}; driver {world.host.gpus.driver_version} "
                f"(CUDA {world.host.gpus.driver_cuda_version or '?'}) is older than {row.min_driver}",
                remedy=f"install driver {row.min_driver} or later on the host, or take builds for CUDA "
                f"{_newest_cuda(driver)}",
            )


def _newest_cuda(driver: Version) -> str:
    fitting = [r.cuda_major for r in table("cuda_drivers", CudaDriver) if driver >= Version(r.min_driver)]
    return str(max(fitting)) if fitting else "11"


def _architectures(world: World, dists: frozenset[str] | None) -> Iterator[Finding]:
    """One finding a file. A file that is named after another architecture, beside one that fits, is not for us."""
    capabilities = sorted({g.compute_capability for g in world.host.gpus.devices if g.compute_capability})
    fitting_by_name: dict[tuple[tuple[str, ...], str], bool] = {}
    unfit: list[tuple[NativeFile, list[str]]] = []
    for file in world.native:
        if not file.gpu_code or (dists is not None and not dists & set(file.owners)):
            continue
        lacking = [c for c in capabilities if not any(runs_on(code, c) for code in file.gpu_code)]
        if lacking:
            unfit.append((file, lacking))
        else:
            fitting_by_name[file.owners, _without_arch(file.path)] = True
    for file, lacking in unfit:
        has_twin = fitting_by_name.get((file.owners, _without_arch(file.path)), False)
        is_named = ARCH_IN_PATH.search(file.path) is not None
        found = ", ".join(dict.fromkeys(code.arch for code in file.gpu_code))
        devices = ", ".join(
            f"sm_{c.replace('.', '')} ({next(g.name for g in world.host.gpus.devices if g.compute_capability == c)})"
            for c in lacking
        )
        yield Finding(
            rule="gpu.no-arch",
            level="info" if has_twin else "warn" if is_named else "block",
            dist=file.owners[0] if file.owners else None,
            file=file.path,
            evidence=f"{file.path} has code for {found}; nothing in it runs on {devices}",
            remedy="none: another file of the package is for this device"
            if has_twin
            else f"use a build with code for {', '.join('sm_' + c.replace('.', '') for c in lacking)} or older PTX",
        )


def _without_arch(path: str) -> str:
    return re.sub(r"(sm_?|compute_?)\d{2,3}[af]?", "sm", path, flags=re.IGNORECASE)


def _toolchain(world: World, dists: frozenset[str] | None) -> Iterator[Finding]:
    if not world.host.gpus.devices:
        return
    present = {tool.name for tool in (*world.host.build_tools, *world.host.toolkits)}
    in_environment = {d.name for d in world.dists}
    scripts = {entry.path.rpartition("/")[2] for entry in world.files if entry.path.startswith("bin/")}
    for row in table("jit_packages", JitPackage):
        if row.dist not in in_environment or (dists is not None and row.dist not in dists):
            continue
        lacking = []
        for need in row.needs:
            if need == "python-h":
                found = world.python.has_python_h
            else:
                found = any(n in present or n in scripts for n in NEED_NAMES[need])
            if not found:
                lacking.append(need)
        if lacking:
            yield Finding(
                rule="gpu.toolchain",
                level="warn",
                dist=row.dist,
                evidence=f"{row.dist} {row.why}; the host lacks {', '.join(lacking)}",
                remedy=f"install {', '.join(lacking)} on the host, or bring the compiled kernels along",
            )


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
