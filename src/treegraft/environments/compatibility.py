"""The verdict on one environment: every rule, run on it as it is or as it would be after a plan.

Knows what to run; each rule lives in `checks/`, the loader model in `loader/`, the tables in `rules/`. Touches no
machine: everything is decided from inventories.
"""

from collections.abc import Iterable

from treegraft.environments.findings import Finding, in_order
from treegraft.environments.inventory import Inventory
from treegraft.environments.loader.world import World


def check(subject: Inventory | World, *, dists: Iterable[str] | None = None) -> tuple[Finding, ...]:
    """Findings of all rules, blocks first.

    subject: a probed environment, or a planned one (`World`).
    dists: normalised names to judge; None judges all. Findings about the host as a whole are always included.
    A dist whose import fails on this host has at least one finding of level `block` with `finding.dist` == its
    normalised name; a dist that imports has none of the rules `abi.*`.
    """
    raise NotImplementedError
