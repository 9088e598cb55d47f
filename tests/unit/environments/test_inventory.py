"""Fingerprints change with what a plan depends on, and with nothing else."""

from typing import Any

import msgspec
import pytest

from treegraft.environments.inventory import (
    Dist,
    Environment,
    FileEntry,
    Gpu,
    Gpus,
    Host,
    Inventory,
    Loader,
    Origin,
    PythonFacts,
    System,
    fingerprint,
)
from treegraft.records import from_json, to_json

FILE = FileEntry(
    path="a.py", size=1, sha256="00", mode=0o644, mtime_ns=1, device=1, inode=1, num_links=1, link_target="",
    owners=("a",),
)  # fmt: skip
DIST = Dist(
    name="a", raw_name="A", version="1", local=None, metadata_path="A-1.dist-info", installer="uv", requested=True,
    origin=Origin(kind="index", how="x"), requires=(), requires_python="", provides_extras=(), tags=(), is_pure=True,
    top_level=("a",), entry_points=(), num_files=1, size_bytes=1, has_record=True, modified=(), missing=(),
    unchecked=(), hostile=(), how="METADATA",
)  # fmt: skip
GPU = Gpu(
    index=0, uuid="GPU-0", name="x", compute_capability="8.6", memory_total_bytes=1, memory_used_bytes=1,
    persistence=True, ecc_uncorrected=0, pci_bus="", health="ok", health_detail="",
)  # fmt: skip
INVENTORY = Inventory(
    destination="b:/v", taken_at="2024-01-01T00:00:00+00:00", treegraft_version="0", problems=(), partial=False,
    host=Host(
        user="u", home="/h", agent_python="p", agent_python_version="3.11.7", filesystems=(), ports=(), ports_how="",
        system=System(how="x", libc="glibc", libc_version="2.36", machine="x86_64"), toolkits=(), build_tools=(),
        gpus=Gpus(how="x", driver_version="580.1", devices=(GPU,)), package_managers=(), interpreters=(),
        loader=Loader(how="x"), variables={}, system_libraries=(),
    ),
    environment=Environment(
        prefix="/v", real_prefix="/v", kind="venv", is_empty=False, how="x", has_pip=False, python=PythonFacts(how="x"),
        dists=(DIST,), conda_packages=(), files=(FILE,), unowned=(), native=(), links=(), pth_files=(), scripts=(),
        caches=(),
    ),
)  # fmt: skip


def changed(path: str, value: Any, root: Any = INVENTORY) -> Any:
    """The inventory with one field, "host.system.libc" or "environment.files.0.mode", set to another value."""
    name, _, rest = path.partition(".")
    if name.isdigit():
        items = list(root)
        items[int(name)] = changed(rest, value, items[int(name)]) if rest else value
        return tuple(items)
    inner = changed(rest, value, getattr(root, name)) if rest else value
    return msgspec.structs.replace(root, **{name: inner})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("environment.files.0.sha256", "11"),
        ("environment.files.0.mode", 0o600),
        ("environment.files.0.path", "b.py"),
        ("environment.dists.0.version", "2"),
        ("environment.prefix", "/w"),
        ("host.system.libc_version", "2.39"),
        ("host.gpus.driver_version", "570.1"),
        ("host.gpus.devices.0.health", "unusable"),
        ("host.loader.library_path", ("/opt/lib",)),
        ("environment", None),
    ],
)
def test_what_matters_changes_the_fingerprint(path: str, value: Any) -> None:
    assert fingerprint(changed(path, value)) != fingerprint(INVENTORY)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("taken_at", "2025-01-01T00:00:00+00:00"),
        ("destination", "user@b:/v"),
        ("environment.files.0.mtime_ns", 9),
        ("environment.files.0.inode", 9),
        ("host.gpus.devices.0.memory_used_bytes", 9),
        ("host.system.memory_available_bytes", 9),
    ],
)
def test_what_does_not_matter_leaves_it(path: str, value: Any) -> None:
    assert fingerprint(changed(path, value)) == fingerprint(INVENTORY)


def test_document_survives_a_round_trip() -> None:
    assert from_json(Inventory, to_json(INVENTORY)) == INVENTORY
