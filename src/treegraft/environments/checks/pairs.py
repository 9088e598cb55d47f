"""Versions that must fit each other: torch with torchvision and torchaudio, CUDA flavours, numpy's C interface,
dists of one indivisible group."""

from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from treegraft.environments.findings import Finding
from treegraft.environments.inventory import Dist
from treegraft.environments.loader.world import World
from treegraft.environments.rules.tables import Group, NumpyMajor, TorchPair, table


def check_pairs(world: World, dists: frozenset[str] | None) -> Iterator[Finding]:
    by_name = {d.name: d for d in world.dists}
    yield from _torch(by_name, dists)
    yield from _groups(by_name, dists)
    yield from _numpy(world, by_name, dists)


def _torch(by_name: dict[str, Dist], dists: frozenset[str] | None) -> Iterator[Finding]:
    torch = by_name.get("torch")
    if torch is None:
        return
    row = next((r for r in table("torch_pairs", TorchPair) if r.torch == minor(torch.version)), None)
    for name in ("torchvision", "torchaudio"):
        other = by_name.get(name)
        if other is None or (dists is not None and name not in dists):
            continue
        wanted = getattr(row, name) if row is not None else None
        if wanted is not None and minor(other.version) != wanted:
            yield _mismatch(other, f"{name} {other.version} with torch {torch.version}", f"install {name} {wanted}.*")
        elif torch.local and other.local and torch.local != other.local:
            yield _mismatch(
                other,
                f"{name} {other.version} was built for {other.local}, torch {torch.version} for {torch.local}",
                f"take torch and {name} from the same index: +{torch.local}",
            )


def _groups(by_name: dict[str, Dist], dists: frozenset[str] | None) -> Iterator[Finding]:
    """Members of a version-locked group (all but torch's, which has its own table) share the release number."""
    for group in table("groups", Group):
        anchor = by_name.get(group.anchor)
        if group.name != "flashinfer" or anchor is None:
            continue
        for name, dist in by_name.items():
            if name == group.anchor or not group.holds(name) or (dists is not None and name not in dists):
                continue
            if _public(dist.version) != _public(anchor.version):
                yield _mismatch(
                    dist,
                    f"{name} {dist.version} with {anchor.name} {anchor.version}: {group.why}",
                    f"install {name}=={_public(anchor.version)}",
                )


def _numpy(world: World, by_name: dict[str, Dist], dists: frozenset[str] | None) -> Iterator[Finding]:
    """A dist with extension modules whose metadata rules out the numpy major that is there."""
    numpy = by_name.get("numpy")
    if numpy is None:
        return
    major = int(minor(numpy.version).partition(".")[0] or 0)
    with_extensions = {o for f in world.native if f.extension_suffix is not None for o in f.owners}
    for dist in by_name.values():
        if dist.name not in with_extensions or (dists is not None and dist.name not in dists):
            continue
        for row in table("numpy_majors", NumpyMajor):
            requirement = _requirement_on(dist, "numpy")
            if requirement is None or major < row.breaks_from:
                continue
            if requirement.specifier.contains(Version(numpy.version), prereleases=True):
                continue
            if not _allows_major(requirement, major):
                yield Finding(
                    rule="abi.numpy-major",
                    level="block",
                    dist=dist.name,
                    evidence=f"{dist.name} {dist.version} has extension modules and requires {requirement}; "
                    f"numpy {numpy.version} is there, whose C interface differs from numpy {row.built_for}'s",
                    remedy=f"install numpy<{row.breaks_from}, or a {dist.name} built for numpy {major}",
                )


def _requirement_on(dist: Dist, name: str) -> Requirement | None:
    for line in dist.requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if canonicalize_name(requirement.name) == name and requirement.marker is None:
            return requirement
    return None


def _allows_major(requirement: Requirement, major: int) -> bool:
    return any(requirement.specifier.contains(f"{major}.{n}.0") for n in range(40))


def _mismatch(dist: Dist, evidence: str, remedy: str) -> Finding:
    return Finding(rule="pair.mismatch", level="block", dist=dist.name, evidence=evidence, remedy=remedy)


def minor(version: str) -> str:
    """`2.11` of `2.11.0+cu130`; the text itself when it is no version."""
    try:
        release = Version(version).release
    except InvalidVersion:
        return version
    return ".".join(str(n) for n in (*release, 0)[:2])


def _public(version: str) -> str:
    return version.partition("+")[0]
