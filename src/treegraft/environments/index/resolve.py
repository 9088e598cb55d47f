"""Asks uv what the index offers for the target's platform. The only file of planning that starts a process."""

from treegraft.environments.inventory import Inventory
from treegraft.environments.plan import PlanRequest
from treegraft.environments.planning.resolution import PatchFolder, Resolution


def resolve(
    request: PlanRequest, *, source: Inventory | PatchFolder, target: Inventory, base: Inventory | None
) -> Resolution:
    """Resolution for `plan.make_plan` with uv's own index options (UV_INDEX_URL, UV_FIND_LINKS, uv.toml ...)."""
    raise NotImplementedError


def read_patch_folder(path: str, take: str, version: str | None) -> PatchFolder:
    """Read a folder of patched modules of dist `take` and compare with the index wheel of `version`."""
    raise NotImplementedError
