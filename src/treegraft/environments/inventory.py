"""What was found on a host and in an environment: frozen facts, each group saying how it is known.

Does not know how facts are gathered (agent/), transported (connect, probe) or judged (rules/, compatibility).

Paths inside an environment are relative to its prefix, POSIX style; paths elsewhere are absolute. A name that
is not UTF-8 appears with its odd bytes written as `\\udcXX`. Sizes are bytes, times nanoseconds since 1970.
"""

import hashlib
from typing import ClassVar

import msgspec

from treegraft.environments.native_facts import Fact as Fact
from treegraft.environments.native_facts import GpuCode as GpuCode
from treegraft.environments.native_facts import NativeFile as NativeFile
from treegraft.records import Record


class Problem(Fact, frozen=True, kw_only=True):
    """Something that could not be found out; its presence makes the inventory partial."""

    subject: str  # a path, command or fact group
    message: str


# ---- host


class System(Fact, frozen=True, kw_only=True):
    how: str
    hostname: str = ""
    os_name: str = ""  # "Ubuntu 24.04.1 LTS"
    os_id: str = ""  # "ubuntu"
    os_version: str = ""
    kernel: str = ""
    machine: str = ""  # x86_64, aarch64
    libc: str = ""  # glibc | musl | ""
    libc_version: str = ""  # "2.39"
    libstdcxx_path: str | None = None
    libstdcxx_versions: tuple[str, ...] = ()  # GLIBCXX_*, CXXABI_* that the host's libstdc++ defines
    cpu_model: str = ""
    cpu_count: int = 0
    cpu_flags: tuple[str, ...] = ()
    memory_total_bytes: int = 0
    memory_available_bytes: int = 0
    shm_bytes: int = 0


class Filesystem(Fact, frozen=True, kw_only=True):
    how: str
    path: str  # the path asked about (the prefix, home, /tmp, ...)
    mount_point: str
    type: str
    device: str
    total_bytes: int
    free_bytes: int  # for the user who asks
    free_inodes: int  # -1 where they are not counted (btrfs)
    is_noexec: bool
    is_readonly: bool


class Gpu(Fact, frozen=True, kw_only=True):
    index: int
    uuid: str
    name: str
    compute_capability: str  # "8.6"; "" when unknown
    memory_total_bytes: int
    memory_used_bytes: int
    persistence: bool | None
    ecc_uncorrected: int | None
    pci_bus: str
    health: str  # ok | unusable | unknown
    health_detail: str  # the error, as CUDA or nvidia-smi names it
    mig: bool = False


class GpuProcess(Fact, frozen=True, kw_only=True):
    pid: int
    name: str
    gpu_uuid: str
    memory_bytes: int


class Gpus(Fact, frozen=True, kw_only=True):
    how: str
    driver_version: str = ""  # "580.82.07"; "" without a driver
    driver_cuda_version: str = ""  # the newest CUDA the driver runs: "13.0"
    devices: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    xid_errors: tuple[str, ...] = ()  # kernel log lines
    detail: str = ""  # why there is nothing, or what failed


class Port(Fact, frozen=True, kw_only=True):
    """A listening TCP port. `pid` and `command` only where the user may see them; commands are redacted."""

    port: int
    address: str
    pid: int | None = None
    command: str = ""


class Tool(Fact, frozen=True, kw_only=True):
    """A compiler, CUDA toolkit, build tool or package manager that was found."""

    name: str  # nvcc, gcc, g++, clang, ninja, cmake, uv, pip, conda, mamba, poetry, pipx ...
    path: str
    version: str
    is_on_path: bool
    how: str


class Interpreter(Fact, frozen=True, kw_only=True):
    path: str
    real_path: str
    version: str  # "3.11.7"
    implementation: str  # cpython
    prefix: str
    has_python_h: bool
    how: str


class CachedLibrary(Fact, frozen=True, kw_only=True, array_like=True):
    """One line of the loader's cache."""

    soname: str
    path: str
    kind: str  # "libc6,x86-64"


class Loader(Fact, frozen=True, kw_only=True):
    """What the dynamic loader of a non-interactive shell will use."""

    how: str
    library_path: tuple[str, ...] = ()  # LD_LIBRARY_PATH
    preload: tuple[str, ...] = ()  # LD_PRELOAD and /etc/ld.so.preload
    cache: tuple[CachedLibrary, ...] = ()


class Host(Fact, frozen=True, kw_only=True):
    user: str
    home: str
    agent_python: str  # the interpreter that ran the agent
    agent_python_version: str
    system: System
    filesystems: tuple[Filesystem, ...]
    gpus: Gpus
    ports: tuple[Port, ...]
    ports_how: str
    toolkits: tuple[Tool, ...]  # CUDA toolkits
    build_tools: tuple[Tool, ...]
    package_managers: tuple[Tool, ...]
    interpreters: tuple[Interpreter, ...]
    loader: Loader
    variables: dict[str, str]  # allow-listed and redacted
    system_libraries: tuple[NativeFile, ...]  # outside the prefix, absolute paths: what its files need, transitively,
    # the C and C++ runtimes, the driver's libraries, and sonames that were asked for


# ---- environment


class PythonFacts(Fact, frozen=True, kw_only=True):
    """The environment's interpreter. Without a runnable one only what pyvenv.cfg and folder names say."""

    how: str
    executable: str = ""  # absolute, as it lies in the environment
    real_executable: str = ""  # after all links; "" when it leads nowhere
    is_runnable: bool = False
    version: str = ""  # "3.11.7"
    implementation: str = ""  # cpython
    abi_flags: str = ""
    soabi: str = ""  # "cpython-311-x86_64-linux-gnu"
    extension_suffix: str = ""
    is_free_threaded: bool = False
    is_debug: bool = False
    base_prefix: str = ""
    include_dir: str = ""
    has_python_h: bool = False
    site_packages: tuple[str, ...] = ()  # relative to the prefix when inside it
    pyvenv: dict[str, str] = msgspec.field(default_factory=dict)  # keys in lower case
    includes_system_site: bool = False
    native: tuple[NativeFile, ...] = ()  # the executable and its libpython, absolute paths


class Origin(Fact, frozen=True, kw_only=True):
    kind: str  # index | editable | directory | archive | vcs | conda | unknown
    url: str = ""  # redacted
    revision: str = ""
    how: str


class EntryPoint(Fact, frozen=True, kw_only=True, array_like=True):
    group: str
    name: str
    value: str


class ChangedFile(Fact, frozen=True, kw_only=True):
    path: str
    recorded: str  # "sha256=<hex>" as RECORD says
    found: str


class Dist(Fact, frozen=True, kw_only=True):
    """One *.dist-info (or *.egg-info) folder. Two of one name are duplicate metadata: both are listed."""

    name: str  # normalised: lower case, runs of -_. become -
    raw_name: str
    version: str
    local: str | None  # "cu130" of 2.11.0+cu130
    metadata_path: str
    installer: str  # pip, uv, conda, "" unknown
    requested: bool
    origin: Origin
    requires: tuple[str, ...]  # Requires-Dist, as written
    requires_python: str
    provides_extras: tuple[str, ...]
    tags: tuple[str, ...]  # of WHEEL
    is_pure: bool | None
    top_level: tuple[str, ...]  # importable names, from its files
    entry_points: tuple[EntryPoint, ...]
    num_files: int  # listed, without byte code
    size_bytes: int
    has_record: bool
    modified: tuple[ChangedFile, ...]
    missing: tuple[str, ...]
    unchecked: tuple[str, ...]  # listed without a hash, or unreadable
    hostile: tuple[str, ...]  # RECORD lines that point outside the prefix; never followed
    how: str


class CondaPackage(Fact, frozen=True, kw_only=True):
    name: str
    version: str
    build: str
    channel: str


class FileEntry(Fact, frozen=True, kw_only=True, array_like=True):
    """One file or symbolic link. Byte code (`__pycache__`) is left out."""

    path: str
    size: int
    sha256: str  # hex; "" for unreadable files and for links, but of what a link to a file outside leads to
    mode: int
    mtime_ns: int
    device: int
    inode: int
    num_links: int  # > 1: a hard link; editing it edits the others
    link_target: str  # as written; "" for files
    owners: tuple[str, ...]  # normalised dist names, "conda:NAME" for conda packages; () = unowned, 2+ = multi-owned


class Link(Fact, frozen=True, kw_only=True):
    path: str
    target: str  # as written
    resolved: str
    exists: bool
    is_inside: bool


class PthFile(Fact, frozen=True, kw_only=True):
    path: str
    lines: tuple[str, ...]
    outside_paths: tuple[str, ...]
    executes: bool  # has a line that starts with "import"


class Script(Fact, frozen=True, kw_only=True):
    """A file of bin/."""

    path: str
    kind: str  # script | binary | link
    shebang: str  # without "#!"
    interpreter_exists: bool
    is_inside: bool  # its interpreter (or link target) lies in this prefix
    owners: tuple[str, ...]


class LoadEvent(Fact, frozen=True, array_like=True):
    """One thing that importing a module does; the words are those of agent/python_loads.py."""

    kind: str  # import | from | load | flags
    name: str
    detail: str
    guards: tuple[str, ...]


class ModuleLoads(Fact, frozen=True, kw_only=True):
    """What one Python file loads at module level, in order."""

    path: str
    events: tuple[LoadEvent, ...]


class CacheFolder(Fact, frozen=True, kw_only=True):
    """Compiled for this very machine and environment: never to be copied."""

    path: str  # absolute
    kind: str  # triton | flashinfer | torch_extensions | torchinductor | nv_compute | bytecode
    size_bytes: int
    num_files: int


class Environment(Fact, frozen=True, kw_only=True):
    prefix: str  # absolute, as asked for
    real_prefix: str
    kind: str  # uv-venv | venv | virtualenv | conda | interpreter | folder
    is_empty: bool  # no dist but pip, setuptools and wheel
    how: str
    has_pip: bool
    python: PythonFacts
    dists: tuple[Dist, ...]
    conda_packages: tuple[CondaPackage, ...]
    files: tuple[FileEntry, ...]
    unowned: tuple[str, ...]  # in site-packages, owned by no dist
    native: tuple[NativeFile, ...]
    links: tuple[Link, ...]
    pth_files: tuple[PthFile, ...]
    scripts: tuple[Script, ...]
    caches: tuple[CacheFolder, ...]
    python_loads: tuple[ModuleLoads, ...] = ()  # of the first modules that importing a dist runs


class Inventory(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A host, and one environment on it unless only the host was asked for."""

    KIND: ClassVar[str] = "environment-inventory"
    VERSION: ClassVar[int] = 1

    destination: str  # as typed: "b:/srv/venv"
    taken_at: str  # ISO 8601, UTC
    treegraft_version: str
    host: Host
    environment: Environment | None
    problems: tuple[Problem, ...]
    partial: bool  # there are problems


def fingerprint(inventory: Inventory) -> str:
    """sha256 (hex) over what a plan depends on; leaves out clocks, free space, processes and file times."""
    host = inventory.host
    system, gpus, environment = host.system, host.gpus, inventory.environment
    facts: list[object] = [
        [system.machine, system.libc, system.libc_version, system.os_id, system.os_version],
        [gpus.driver_version, gpus.driver_cuda_version],
        [[g.uuid, g.compute_capability, g.health] for g in gpus.devices],
        [host.loader.library_path, host.loader.preload],
    ]
    if environment is not None:
        facts.append([environment.prefix, environment.kind, environment.python.version, environment.python.soabi])
        facts.append([environment.python.real_executable, environment.python.pyvenv])
        facts.append(sorted([d.name, d.version, d.metadata_path] for d in environment.dists))
        facts.append(sorted([f.path, f.sha256, f.mode, f.link_target] for f in environment.files))
    return hashlib.sha256(msgspec.json.encode(facts, order="deterministic")).hexdigest()
