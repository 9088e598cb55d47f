"""The difference of two environments, as data. Knows no output format (reports/) and fetches nothing."""

import difflib
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import msgspec

from treegraft.environments.inventory import Dist, Environment, Host, Inventory
from treegraft.records import Record

Relation = Literal["same", "other-version", "other-build", "patched", "only-left", "only-right"]
TEXT_SUFFIXES = (".py", ".pyi", ".json", ".toml", ".cfg", ".txt", ".md", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".sh")
IGNORED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
MAX_DIFF_LINES = 2000


class DistDifference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One dist in two environments, left -> right.

    left, right: versions, None where it is not installed. modified, added, removed: paths as in site-packages.
    added_modules: names of the added modules. diffs: path -> unified diff, for what was at hand.
    altered: the sides ("left", "right") whose files differ from their own RECORD.
    """

    name: str
    relation: Relation
    left: str | None
    right: str | None
    altered: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    added_modules: tuple[str, ...] = ()
    diffs: dict[str, str] = {}


class FactDifference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    fact: str
    left: str
    right: str


class EnvironmentDiff(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `treegraft env diff --json` prints. `dists` lists all of either side, by name."""

    KIND: ClassVar[str] = "environment-diff"
    VERSION: ClassVar[int] = 1

    left: str
    right: str
    partial: bool
    host: tuple[FactDifference, ...]
    environment: tuple[FactDifference, ...]
    dists: tuple[DistDifference, ...]


def compare(left: Inventory, right: Inventory) -> EnvironmentDiff:
    """Left against right, without texts. Hosts alone compare as hosts."""
    ours, theirs = left.environment, right.environment
    dists = _dists(ours, theirs) if ours is not None and theirs is not None else ()
    facts = _environments(ours, theirs) if ours is not None and theirs is not None else ()
    return EnvironmentDiff(
        left=left.destination,
        right=right.destination,
        partial=left.partial or right.partial,
        host=tuple(_changed(_host_facts(left.host), _host_facts(right.host))),
        environment=tuple(facts),
        dists=tuple(dists),
    )


def wanted_texts(diff: EnvironmentDiff, side: Literal["left", "right"], environment: Environment) -> tuple[str, ...]:
    """Paths (relative to the prefix) of one side's files whose texts make the unified diffs."""
    root = environment.python.site_packages[0] if environment.python.site_packages else ""
    paths = []
    for dist in diff.dists:
        if dist.relation == "patched":
            only = dist.added if side == "right" else dist.removed
            paths += [f"{root}/{p}" for p in (*dist.modified, *only) if p.endswith(TEXT_SUFFIXES)]
    return tuple(paths)


def with_texts(diff: EnvironmentDiff, left: Mapping[str, str], right: Mapping[str, str]) -> EnvironmentDiff:
    """The same with unified diffs of patched files. left, right: path as in site-packages -> text."""
    dists = []
    for dist in diff.dists:
        diffs = {
            path: text
            for path in (*dist.modified, *dist.added, *dist.removed)
            if dist.relation == "patched" and (text := _unified(path, left.get(path), right.get(path)))
        }
        dists.append(msgspec.structs.replace(dist, diffs=diffs) if diffs else dist)
    return msgspec.structs.replace(diff, dists=tuple(dists))


def _unified(path: str, left: str | None, right: str | None) -> str:
    if left is None and right is None:
        return ""
    lines = difflib.unified_diff(
        (left or "").splitlines(), (right or "").splitlines(), f"a/{path}", f"b/{path}", lineterm=""
    )
    chosen = list(lines)
    more = [f"... {len(chosen) - MAX_DIFF_LINES} more lines"] if len(chosen) > MAX_DIFF_LINES else []
    return "\n".join(chosen[:MAX_DIFF_LINES] + more)


def _dists(left: Environment, right: Environment) -> Iterator[DistDifference]:
    ours, theirs = {d.name: d for d in left.dists}, {d.name: d for d in right.dists}
    our_files, their_files = dist_files(left), dist_files(right)
    for name in sorted({*ours, *theirs}):
        one, other = ours.get(name), theirs.get(name)
        if one is None or other is None:
            yield DistDifference(
                name=name,
                relation="only-left" if other is None else "only-right",
                left=one.version if one else None,
                right=other.version if other else None,
            )
            continue
        yield _dist(one, other, our_files.get(name, {}), their_files.get(name, {}))


def _dist(one: Dist, other: Dist, ours: Mapping[str, str], theirs: Mapping[str, str]) -> DistDifference:
    modified = tuple(sorted(p for p in ours.keys() & theirs.keys() if ours[p].lstrip("+") != theirs[p].lstrip("+")))
    added, removed = tuple(sorted(theirs.keys() - ours.keys())), tuple(sorted(ours.keys() - theirs.keys()))
    altered = tuple(
        side for side, dist, files in (("left", one, ours), ("right", other, theirs)) if _is_altered(dist, files)
    )
    relation: Relation = "same"
    if one.version.partition("+")[0] != other.version.partition("+")[0]:
        relation = "other-version"
    elif one.version != other.version:
        relation = "other-build"
    elif modified or added or removed:
        relation = "patched" if altered else "other-build"
    is_listed = relation in ("patched", "other-build")
    return DistDifference(
        name=one.name,
        relation=relation,
        left=one.version,
        right=other.version,
        altered=altered,
        modified=modified if is_listed else (),
        added=added if is_listed else (),
        removed=removed if is_listed else (),
        added_modules=tuple(module_name(p) for p in added if p.endswith(".py")) if relation == "patched" else (),
    )


def dist_files(environment: Environment) -> dict[str, dict[str, str]]:
    """dist -> path as in site-packages -> sha256; files that nobody owns count to the dist whose package they lie in
    and carry the mark `+` before the hash, as no RECORD lists them."""
    roots = environment.python.site_packages
    owner_of = {top: d.name for d in environment.dists for top in d.top_level}
    found: dict[str, dict[str, str]] = {}
    for entry in environment.files:
        root = next((r for r in roots if entry.path.startswith(r + "/")), None)
        path = entry.path[len(root) + 1 :] if root is not None else entry.path
        if path.rpartition("/")[2] in IGNORED and ".dist-info/" in path:
            continue
        if entry.owners:
            for owner in entry.owners:
                if root is not None:
                    found.setdefault(owner, {})[path] = entry.sha256
        elif root is not None and "/" in path and path.partition("/")[0] in owner_of:
            found.setdefault(owner_of[path.partition("/")[0]], {})[path] = "+" + entry.sha256
    return found


def _is_altered(dist: Dist, files: Mapping[str, str]) -> bool:
    return bool(dist.modified) or bool(dist.missing) or any(h.startswith("+") for h in files.values())


def module_name(path: str) -> str:
    """`a/b/__init__.py` -> `a.b`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _changed(left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[FactDifference]:
    for fact in {**left, **right}:
        one, other = left.get(fact, ""), right.get(fact, "")
        if one != other:
            yield FactDifference(fact=fact, left=one, right=other)


def _environments(left: Environment, right: Environment) -> Iterator[FactDifference]:
    return _changed(_environment_facts(left), _environment_facts(right))


def _host_facts(host: Host) -> dict[str, str]:
    system, gpus = host.system, host.gpus
    tools = {f"tool {t.name}": t.version for t in (*host.toolkits, *host.build_tools, *host.package_managers)}
    kinds = [f"{g.name} sm_{g.compute_capability.replace('.', '')} ({g.health})" for g in gpus.devices]
    return {
        "system": system.os_name,
        "kernel": system.kernel,
        "machine": system.machine,
        "libc": f"{system.libc} {system.libc_version}",
        "libstdc++": max(system.libstdcxx_versions, key=_version_key, default=""),
        "gpus": ", ".join(f"{kinds.count(k)} x {k}" for k in dict.fromkeys(kinds)),
        "driver": gpus.driver_version,
        "driver CUDA": gpus.driver_cuda_version,
        "LD_LIBRARY_PATH": ":".join(host.loader.library_path),
        "LD_PRELOAD": " ".join(host.loader.preload),
        **dict(sorted(tools.items())),
    }


def _version_key(version: str) -> list[int]:
    return [int(n) for n in version.rpartition("_")[2].split(".") if n.isdigit()] if "GLIBCXX" in version else [0]


def _environment_facts(environment: Environment) -> dict[str, str]:
    python = environment.python
    return {
        "kind": environment.kind,
        "python": python.version,
        "soabi": python.soabi,
        "pip": "yes" if environment.has_pip else "no",
        "distributions": str(len(environment.dists)),
    }
