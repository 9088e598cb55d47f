"""The verdict on one environment: every rule, run on it as it is or as it would be after a plan.

Knows what to run; each rule lives in `checks/`, the loader model in `loader/`, the tables in `rules/`. Touches no
machine: everything is decided from inventories.
"""

from collections.abc import Iterable

from treegraft.environments.checks.dists import check_dists
from treegraft.environments.checks.gpu import check_gpu
from treegraft.environments.checks.imports import check_imports
from treegraft.environments.checks.pairs import check_pairs
from treegraft.environments.checks.places import check_places
from treegraft.environments.checks.strays import check_strays
from treegraft.environments.findings import Finding, in_order
from treegraft.environments.inventory import Inventory
from treegraft.environments.loader.imports import ground_of
from treegraft.environments.loader.world import World, world_of


def check(subject: Inventory | World, *, dists: Iterable[str] | None = None) -> tuple[Finding, ...]:
    """Findings of all rules, blocks first.

    subject: a probed environment, or a planned one (`World`).
    dists: normalised names to judge; None judges all. Findings about the host as a whole are always included.
    A dist whose import fails on this host has at least one finding of level `block` with `finding.dist` == its
    normalised name; a dist that imports has none of the rules `abi.*` at that level.
    """
    world = subject if isinstance(subject, World) else world_of(subject)
    chosen = None if dists is None else frozenset(dists)
    ground = ground_of(world)
    return in_order(
        (
            *check_imports(ground, chosen),
            *check_strays(ground, chosen),
            *check_gpu(world, chosen),
            *check_dists(world, chosen),
            *check_pairs(world, chosen),
            *check_places(world, chosen),
        )
    )
