"""What the user asked of a plan, and which Python the result has. Knows no dist."""

import msgspec

from treegraft.environments.inventory import Inventory
from treegraft.environments.planning.resolution import PatchFolder
from treegraft.errors import UsageError


class PlanRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """take, keep: normalised dist names. source, target, base: as given (`HOST:PATH`)."""

    take: tuple[str, ...]
    source: str
    target: str
    base: str | None = None
    keep: tuple[str, ...] = ()


def effective_base(target: Inventory, base: Inventory | None) -> Inventory | None:
    """The environment whose dists are kept: the base, or what is already at the target."""
    if base is not None:
        return base
    environment = target.environment
    return target if environment is not None and not environment.is_empty else None


def result_python(source: Inventory | PatchFolder | None, target: Inventory, base: Inventory | None) -> str:
    """Version of the interpreter that the result runs on: the base's, the target's, else the source's minor as the
    target host has it. Raises UsageError when none is known."""
    for end in (effective_base(target, base), target):
        if end is not None and end.environment is not None and end.environment.python.version:
            return end.environment.python.version
    if isinstance(source, Inventory) and source.environment is not None:
        minor = ".".join(source.environment.python.version.split(".")[:2])
        fitting = [i.version for i in target.host.interpreters if i.version.startswith(minor + ".")]
        if fitting:
            return fitting[0]
        if source.environment.python.version:
            return source.environment.python.version
    for interpreter in target.host.interpreters:
        return interpreter.version
    raise UsageError(f"no Python is known for {target.destination}; name an environment there with --base")
