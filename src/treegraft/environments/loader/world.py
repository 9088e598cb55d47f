"""An environment as it is, or as it would be: its files, dists, interpreter and the host they would run on.

Knows nothing of rules and of how the parts were chosen; a plan builds one of parts of the base and the source.
"""

from dataclasses import dataclass, field

from treegraft.environments.inventory import (
    Dist,
    FileEntry,
    Host,
    Inventory,
    ModuleLoads,
    NativeFile,
    PythonFacts,
)


@dataclass(frozen=True)
class World:
    """`native` and `files` have paths relative to `prefix`, with owners; host libraries are in `host`.

    origins: dist name -> label of the end it comes from ("" when there is only one).
    providers: other inventories whose exports may be named as "this version would provide it".
    """

    label: str
    prefix: str
    host: Host
    python: PythonFacts
    dists: tuple[Dist, ...]
    files: tuple[FileEntry, ...]
    native: tuple[NativeFile, ...]
    python_loads: tuple[ModuleLoads, ...] = ()
    inventory: Inventory | None = None
    origins: dict[str, str] = field(default_factory=dict)
    providers: tuple[Inventory, ...] = ()
    partial: bool = False


def world_of(inventory: Inventory, providers: tuple[Inventory, ...] = ()) -> World:
    """The probed environment itself. Raises AssertionError for an inventory of a host alone."""
    environment = inventory.environment
    assert environment is not None
    return World(
        label=inventory.destination,
        prefix=environment.prefix,
        host=inventory.host,
        python=environment.python,
        dists=environment.dists,
        files=environment.files,
        native=environment.native,
        python_loads=environment.python_loads,
        inventory=inventory,
        providers=providers,
        partial=inventory.partial,
    )
