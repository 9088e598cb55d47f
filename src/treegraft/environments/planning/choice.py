"""One dist of the environment to be built: which end's facts describe it, and why it was chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from treegraft.environments.inventory import Dist, Inventory
from treegraft.environments.planning.resolution import PatchFolder

Action = Literal["keep", "source", "index", "patch", "drop"]


@dataclass(frozen=True)
class Choice:
    """facts: "base" or "source", whose files describe the dist; "" when no end has this version (index only)."""

    name: str
    version: str
    action: Action
    facts: Literal["base", "source", ""]
    reason: str
    evidence: tuple[str, ...] = ()
    because: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ends:
    """Both ends by dist name. `source_dists` is empty for a patch folder."""

    source: Inventory | PatchFolder
    target: Inventory
    base: Inventory | None
    source_dists: Mapping[str, Dist]
    base_dists: Mapping[str, Dist]

    def dist_of(self, choice: Choice) -> Dist | None:
        if choice.facts == "base":
            return self.base_dists.get(choice.name)
        if choice.facts == "source":
            return self.source_dists.get(choice.name)
        return None


def ends_of(source: Inventory | PatchFolder, target: Inventory, base: Inventory | None) -> Ends:
    return Ends(source, target, base, _by_name(source), _by_name(base))


def _by_name(end: Inventory | PatchFolder | None) -> dict[str, Dist]:
    if not isinstance(end, Inventory) or end.environment is None:
        return {}
    return {d.name: d for d in end.environment.dists}


def required_names(dist: Dist, variables: Mapping[str, str]) -> list[str]:
    """Names of the requirements that hold for the interpreter, extras left out."""
    names = []
    for line in dist.requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate(dict(variables)):
            names.append(canonicalize_name(requirement.name))
    return list(dict.fromkeys(names))
