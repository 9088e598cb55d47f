"""What a failing import needs, and which source dist has it. Reads native facts only; decides nothing."""

from dataclasses import dataclass

from treegraft.environments.inventory import Inventory
from treegraft.environments.loader.imports import ImportFailure
from treegraft.environments.planning.resolution import PatchFolder


@dataclass(frozen=True)
class Need:
    """kind: soname | symbol | version | module. `what` for people."""

    dist: str
    file: str
    kind: str
    name: str
    library: str = ""

    @property
    def what(self) -> str:
        return f"version {self.name} of {self.library}" if self.kind == "version" else self.name


def needs_of(dist: str, failure: ImportFailure) -> list[Need]:
    """The needs behind one failure; none for a damaged or foreign file."""
    if failure.reason == "missing-module":
        return [Need(dist, " -> ".join(failure.chain), "module", failure.detail)]
    if failure.reason == "missing-library":
        return [Need(dist, failure.path, "soname", failure.detail)]
    kinds = {"missing-soname": "soname", "undefined-symbol": "symbol", "version": "version"}
    return [
        Need(dist, p.library.file.path, kinds[p.kind], p.name, p.detail if p.kind == "version" else "")
        for p in failure.problems
        if p.kind in kinds
    ]


def provider_in(source: Inventory | PatchFolder, need: Need) -> str | None:
    """The source dist whose file meets the need; None when none does."""
    if not isinstance(source, Inventory) or source.environment is None:
        return None
    if need.kind == "module":
        return next((d.name for d in source.environment.dists if need.name in d.top_level), None)
    for file in source.environment.native:
        if not file.owners:
            continue
        if need.kind == "soname":
            hit = need.name in (file.soname, file.path.rpartition("/")[2])
        elif need.kind == "version":
            hit = need.library == file.soname and need.name in file.version_definitions
        else:
            name, at, version = need.name.partition("@")
            wanted = (need.name, f"{name}@@{version}") if at else (name,)
            hit = any(w in file.exports or w in file.weak_exports for w in wanted)
            if not at and not hit:
                start = name + "@@"
                hit = any(e.startswith(start) for e in file.exports)
        if hit and need.dist not in file.owners:
            return file.owners[0]
    return None


def soname_links(source: Inventory) -> dict[str, dict[str, list[str]]]:
    """dist -> other dist -> SONAMEs that files of the first need and files of the second are."""
    environment = source.environment
    if environment is None:
        return {}
    owner_of: dict[str, str] = {}
    for file in environment.native:
        if file.owners:
            for name in (file.soname, file.path.rpartition("/")[2]):
                if name:
                    owner_of.setdefault(name, file.owners[0])
    links: dict[str, dict[str, list[str]]] = {}
    for file in environment.native:
        for needed in file.needed:
            other = owner_of.get(needed)
            for owner in file.owners:
                if other is not None and other != owner:
                    sonames = links.setdefault(owner, {}).setdefault(other, [])
                    if needed not in sonames:
                        sonames.append(needed)
    return links
