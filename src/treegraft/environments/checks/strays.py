"""Native files that no import reaches: executables and libraries that something may load later. Warnings only."""

from collections.abc import Iterator

from treegraft.environments.checks.imports import version_rule
from treegraft.environments.checks.providers import runtime_remedy
from treegraft.environments.findings import Finding
from treegraft.environments.inventory import NativeFile
from treegraft.environments.loader.imports import Ground


def check_strays(ground: Ground, dists: frozenset[str] | None) -> Iterator[Finding]:
    """`abi.machine`, `abi.libc` and `abi.libstdcxx` of files that are not extension modules."""
    runtimes = {
        file.soname: frozenset(file.version_definitions)
        for file in ground.world.host.system_libraries
        if file.soname and file.version_definitions
    }
    for file in ground.world.native:
        owner = file.owners[0] if file.owners else None
        if file.extension_suffix is not None or (dists is not None and owner not in dists):
            continue
        if file.elf_type not in ("shared", "executable"):
            continue
        if ground.catalogue.is_foreign(file):
            if file.path.endswith(".so") or ".so." in file.path:
                yield _foreign(ground, file, owner)
            continue
        yield from _versions(file, owner, runtimes)


def _foreign(ground: Ground, file: NativeFile, owner: str | None) -> Finding:
    return Finding(
        rule="abi.machine",
        level="warn",
        dist=owner,
        file=file.path,
        evidence=f"{file.path} is for {file.machine}, {file.elf_class} bit; Python is {ground.catalogue.machine}",
        remedy="none while nothing loads it; else install the build for this machine",
    )


def _versions(file: NativeFile, owner: str | None, runtimes: dict[str, frozenset[str]]) -> Iterator[Finding]:
    for library, versions in file.version_needs.items():
        for version in versions:
            rule = version_rule(library, version)
            if library in runtimes and version not in runtimes[library] and rule != "abi.symbol-version":
                yield Finding(
                    rule=rule,
                    level="warn",
                    dist=owner,
                    file=file.path,
                    evidence=f"{file.path} needs version {version} of {library}, which this host's does not define",
                    remedy=runtime_remedy(version),
                )
