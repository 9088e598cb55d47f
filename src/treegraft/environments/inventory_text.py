"""An inventory as lines for a terminal. Everything that came from a host is escaped; judges nothing."""

from collections import Counter
from collections.abc import Sequence

from treegraft.environments.escape import terminal as t
from treegraft.environments.inventory import Dist, Environment, Gpu, Host, Inventory

MAX_ROWS = 12
GIB = 1 << 30


def summarise(inventory: Inventory) -> str:
    """A page of text: host, environment, and what could not be found out."""
    lines = [f"{t(inventory.destination)}  ({t(inventory.taken_at)})", *_host(inventory.host)]
    if inventory.environment is not None:
        lines += ["", *_environment(inventory.environment)]
    if inventory.partial:
        lines += ["", f"PARTIAL: {len(inventory.problems)} things could not be found out"]
        lines += _rows([f"{t(p.subject)}: {t(p.message)}" for p in inventory.problems])
    return "\n".join(lines)


def _rows(rows: Sequence[str]) -> list[str]:
    """Indented; the rest of a long list is counted."""
    shown = [f"    {row}" for row in rows[:MAX_ROWS]]
    return [*shown, f"    and {len(rows) - MAX_ROWS} more"] if len(rows) > MAX_ROWS else shown


def _size(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.1f} GiB" if num_bytes >= GIB else f"{num_bytes / (1 << 20):.1f} MiB"


def _host(host: Host) -> list[str]:
    system = host.system
    lines = [
        f"  host      {t(system.hostname)}: {t(system.os_name)}, kernel {t(system.kernel)}, {t(system.machine)}, "
        f"{t(system.libc)} {t(system.libc_version)}",
        f"  machine   {t(system.cpu_model) or 'processor'} x {system.cpu_count}, "
        f"{_size(system.memory_total_bytes)} memory",
    ]
    for filesystem in host.filesystems:
        marks = [word for word, on in (("noexec", filesystem.is_noexec), ("read-only", filesystem.is_readonly)) if on]
        lines.append(
            f"  disk      {t(filesystem.path)}: {_size(filesystem.free_bytes)} free ({t(filesystem.type)})"
            + (", " + ", ".join(marks) if marks else "")
        )
    gpus = host.gpus
    if gpus.devices:
        lines.append(f"  driver    {t(gpus.driver_version)}, runs CUDA up to {t(gpus.driver_cuda_version) or '?'}")
    else:
        lines.append(f"  gpus      none: {t(gpus.detail)}")
    lines += [f"  gpu {gpu.index:<5} {_gpu(gpu)}" for gpu in gpus.devices]
    lines += [f"            {t(line)}" for line in gpus.xid_errors[-3:]]
    lines += [
        f"  in use    GPU {t(p.gpu_uuid)}: {t(p.name)} (pid {p.pid}, {_size(p.memory_bytes)})" for p in gpus.processes
    ]
    lines += [f"  port      {p.port} {t(p.command) or 'in use'}" for p in host.ports]
    tools = [*host.toolkits, *host.package_managers]
    lines += [f"  {t(tool.name):<9} {t(tool.version) or '?'}  {t(tool.path)}" for tool in tools]
    polluting = [*host.loader.library_path, *host.loader.preload]
    if polluting:
        lines.append(f"  loader    LD_LIBRARY_PATH/LD_PRELOAD: {t(':'.join(polluting))}")
    return lines


def _gpu(gpu: Gpu) -> str:
    capability = f"sm_{gpu.compute_capability.replace('.', '')}" if gpu.compute_capability else "sm_?"
    health = gpu.health if not gpu.health_detail else f"{gpu.health} ({t(gpu.health_detail)})"
    return (
        f"{t(gpu.name)}, {capability}, {_size(gpu.memory_used_bytes)} of {_size(gpu.memory_total_bytes)} used, {health}"
    )


def _environment(environment: Environment) -> list[str]:
    python = environment.python
    kind = environment.kind + (", empty" if environment.is_empty else "")
    lines = [
        f"  prefix    {t(environment.prefix)} ({t(kind)})",
        f"  python    {t(python.version) or '?'} {t(python.real_executable) or 'none'}"
        + ("" if python.is_runnable or environment.kind == "folder" else ", does not run"),
        f"  content   {len(environment.dists)} dists, {len(environment.files)} files, "
        f"{_size(sum(file.size for file in environment.files))}, {len(environment.native)} native",
    ]
    for dist in environment.dists:
        marks = _marks(dist)
        if marks:
            lines.append(f"  dist      {t(dist.name)} {t(dist.version)}: {marks}")
            changed = [t(file.path) for file in dist.modified] + [f"{t(path)} (missing)" for path in dist.missing]
            lines += _rows(changed)
    lines += _duplicates(environment)
    if environment.unowned:
        lines.append(f"  unowned   {len(environment.unowned)} files that no dist lists")
        lines += _rows([t(path) for path in environment.unowned])
    shared = sum(file.num_links > 1 for file in environment.files)
    if shared:
        lines.append(f"  links     {shared} files are hard links: editing one edits its twins elsewhere")
    for pth in environment.pth_files:
        lines += [f"  outside   {t(pth.path)} adds {t(path)}" for path in pth.outside_paths]
    archs = Counter(code.arch for native in environment.native for code in native.gpu_code)
    if archs:
        lines.append("  gpu code  " + ", ".join(f"{t(arch)} ({n} files)" for arch, n in sorted(archs.items())))
    lines += [f"  cache     {t(c.path)} ({t(c.kind)}, {_size(c.size_bytes)}): stays here" for c in environment.caches]
    return lines


def _marks(dist: Dist) -> str:
    """What is worth a line about one dist; "" when nothing is."""
    marks = [
        f"{len(dist.modified)} modified" if dist.modified else "",
        f"{len(dist.missing)} missing" if dist.missing else "",
        f"{len(dist.hostile)} RECORD lines point outside" if dist.hostile else "",
        "no RECORD" if not dist.has_record and dist.origin.kind != "editable" else "",
        f"{dist.origin.kind} from {t(dist.origin.url)}"
        if dist.origin.kind not in ("index", "conda", "unknown")
        else "",
    ]
    return ", ".join(mark for mark in marks if mark)


def _duplicates(environment: Environment) -> list[str]:
    counts = Counter(dist.name for dist in environment.dists)
    several = [file for file in environment.files if len(file.owners) > 1]
    lines = [f"  twice     {t(name)} has {n} metadata folders" for name, n in sorted(counts.items()) if n > 1]
    if several:
        lines.append(f"  shared    {len(several)} files are listed by several dists")
        lines += _rows([f"{t(file.path)}: {t(', '.join(file.owners))}" for file in several])
    return lines
