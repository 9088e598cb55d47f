"""An installed dist against the index wheel of its version: identical, patched, or with modules the wheel lacks."""

import posixpath
from typing import ClassVar, Literal

import msgspec

from treegraft.environments.compare import module_name
from treegraft.environments.findings import Finding
from treegraft.environments.index.releases import newest_releases
from treegraft.environments.index.stubs import is_plain
from treegraft.environments.index.uv import platform_of
from treegraft.environments.index.wheel import fetch_wheel
from treegraft.environments.inventory import Dist, Inventory
from treegraft.errors import DownloadError, UsageError
from treegraft.records import Record

GENERATED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "WHEEL")
Relation = Literal["identical", "patched", "not-on-index"]


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """modified: files with other contents than the wheel's. added: files the wheel lacks; `added_modules` their
    module names. releases: other releases that were searched for these; first_with: (module, the oldest of them that
    has it). missing: files of the wheel that are not there. Paths are as in site-packages."""

    name: str
    version: str
    relation: Relation
    modified: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    added_modules: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()
    first_with: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    detail: str = ""

    def finding(self, site_packages: str) -> Finding:
        """The same as a finding of a check. site_packages: relative to the prefix."""
        what = f"{self.name} {self.version}"
        if self.relation == "identical":
            evidence, remedy = f"{what} is identical to the index version", "none"
        elif self.relation == "not-on-index":
            evidence, remedy = self.detail, "move the dist as it is (action source)"
        else:
            facts = [f"the index version lacks {m}{self._elsewhere(m)}" for m in self.added_modules]
            facts += [f"{p} differs" for p in self.modified] + [f"{p} is gone" for p in self.missing]
            facts += [f"{p} is added" for p in self.added if not p.endswith(".py")]
            evidence = f"{what} is patched: {'; '.join(facts)}"
            remedy = "a reinstall would undo this: move the dist as it is (action source)"
        return Finding(
            rule="dist.modified" if self.relation == "patched" else "dist.origin",
            level="info" if self.relation == "identical" else "warn",
            dist=self.name,
            file=next((posixpath.join(site_packages, p) for p in (*self.modified, *self.added, *self.missing)), None),
            evidence=evidence,
            remedy=remedy,
        )

    def _elsewhere(self, module: str) -> str:
        if not self.releases:
            return ""
        release = dict(self.first_with).get(module)
        return f" (release {release} has it)" if release else f" (nor is it in {', '.join(self.releases)})"


class OriginReport(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    KIND: ClassVar[str] = "environment-origin"
    VERSION: ClassVar[int] = 1

    environment: str
    site_packages: str  # relative to the prefix
    dists: tuple[Origin, ...]

    def findings(self) -> tuple[Finding, ...]:
        return tuple(origin.finding(self.site_packages) for origin in self.dists)


def check_origins(inventory: Inventory, names: tuple[str, ...]) -> OriginReport:
    """Compare the named dists with the index. Raises UsageError for a name that is not installed; a version that the
    index does not have is a result, not an error."""
    environment = inventory.environment
    if environment is None:
        raise UsageError(f"{inventory.destination} names no environment")
    by_name = {d.name: d for d in environment.dists}
    unknown = [n for n in names if n not in by_name]
    if unknown:
        raise UsageError(f"{', '.join(unknown)} is not installed in {inventory.destination}; see treegraft env probe")
    return OriginReport(
        environment=inventory.destination,
        site_packages=next(iter(environment.python.site_packages), ""),
        dists=tuple(_check(inventory, by_name[n]) for n in names),
    )


def _check(inventory: Inventory, dist: Dist) -> Origin:
    environment = inventory.environment
    assert environment is not None
    system = inventory.host.system
    if not is_plain(dist):
        return Origin(name=dist.name, version=dist.version, relation="not-on-index", detail="no valid name and version")
    python, platform = environment.python.version, platform_of(system.machine, system.libc_version)
    try:
        wheel = fetch_wheel(dist.name, dist.version, python=python, platform=platform)
    except DownloadError as error:
        return Origin(name=dist.name, version=dist.version, relation="not-on-index", detail=str(error))
    origin = compare_files(dist, installed_files(inventory, dist), wheel.files)
    return _searched(origin, python, platform) if origin.added_modules else origin


def _searched(origin: Origin, python: str, platform: str) -> Origin:
    """The same with what other releases say of the added modules. A release without a wheel for the platform says
    nothing."""
    releases: list[str] = []
    first: dict[str, str] = {}
    for release in newest_releases(origin.name, origin.version, python=python, platform=platform):
        try:
            files = fetch_wheel(origin.name, release, python=python, platform=platform).files
        except DownloadError:
            continue
        releases.append(release)
        modules = {module_name(path) for path in files if path.endswith(".py")}
        first |= {module: release for module in origin.added_modules if module in modules}
    return msgspec.structs.replace(origin, releases=tuple(releases), first_with=tuple(sorted(first.items())))


def installed_files(inventory: Inventory, dist: Dist) -> dict[str, str]:
    """Path as in site-packages -> sha256 of the dist's own files and of files nobody owns inside its packages."""
    environment = inventory.environment
    assert environment is not None
    roots = environment.python.site_packages
    packages = set(dist.top_level)
    found = {}
    for entry in environment.files:
        root = next((r for r in roots if entry.path.startswith(r + "/")), None)
        if root is None or not entry.sha256:
            continue
        path = entry.path[len(root) + 1 :]
        is_inside = not entry.owners and "/" in path and path.partition("/")[0] in packages
        if dist.name in entry.owners or is_inside:
            found[path] = entry.sha256
    return found


def compare_files(dist: Dist, installed: dict[str, str], wheel: dict[str, str]) -> Origin:
    """Pure comparison; what installers generate is left out on both sides."""
    ours = {p: h for p, h in installed.items() if not _is_generated(p)}
    theirs = {p: h for p, h in wheel.items() if not _is_generated(p)}
    modified = tuple(sorted(p for p in ours.keys() & theirs.keys() if ours[p] != theirs[p]))
    added = tuple(sorted(ours.keys() - theirs.keys()))
    missing = tuple(sorted(theirs.keys() - ours.keys()))
    return Origin(
        name=dist.name,
        version=dist.version,
        relation="patched" if modified or added or missing else "identical",
        modified=modified,
        added=added,
        added_modules=tuple(module_name(p) for p in added if p.endswith(".py")),
        missing=missing,
    )


def _is_generated(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return (folder.endswith(".dist-info") and name in GENERATED) or path.endswith(".pyc") or ".data/" in path
