"""Module-level statements in order: guards, handlers, conditions, ctypes, dlopen flags."""

from collections.abc import Sequence

from inventories import SITE, Recipe, dist, extension, inventory, native

from treegraft.environments.inventory import Inventory, LoadEvent, ModuleLoads, NativeFile
from treegraft.environments.loader.imports import Importer, ground_of
from treegraft.environments.loader.process import Process
from treegraft.environments.loader.world import world_of

Event = tuple[str, str, str, tuple[str, ...]]
BROKEN = extension("a", "_bad", imports=("nowhere",))
LIBRARY = native(f"{SITE}/a/lib/libx.so.1", "a", soname="libx.so.1", exports=("first",))
USER = extension("a", imports=("first",))


def importer(events: Sequence[Event], natives: Sequence[NativeFile] = (BROKEN, LIBRARY, USER)) -> Importer:
    found: Inventory = inventory(Recipe([dist("a")], natives))
    loads = ModuleLoads(
        path=f"{SITE}/a/__init__.py",
        events=tuple(LoadEvent(kind=k, name=n, detail=d, guards=g) for k, n, d, g in events),
    )
    import msgspec

    environment = msgspec.structs.replace(found.environment, python_loads=(loads,))
    ground = ground_of(world_of(msgspec.structs.replace(found, environment=environment)))
    return Importer(ground, Process(ground.catalogue))


def outcome(*events: Event, natives: Sequence[NativeFile] = (BROKEN, LIBRARY, USER)) -> str:
    found = importer(events, natives)
    failure = found.import_module("a")
    return failure.reason if failure is not None else "doubtful" if found.doubtful else "works"


def load(detail: str, *guards: str, name: str = "file:lib/libx.so.1") -> Event:
    return ("load", name, detail, guards)


def use(name: str = "_ext", *guards: str) -> Event:
    return ("from", "a", name, guards)


def test_preloading() -> None:
    assert outcome(load("global"), use()) == "works"
    assert outcome(load("local"), use()) == "dlopen"
    assert outcome(use(), load("global")) == "dlopen"
    assert outcome(load("global", name="file:lib/lib*.so*"), use()) == "works"


def test_handlers_swallow_what_they_name() -> None:
    assert outcome(use("_bad")) == "dlopen"
    assert outcome(use("_bad", "try:1:IM")) == "works"
    assert outcome(use("_bad", "try:1:M")) == "dlopen", "ModuleNotFoundError does not catch what dlopen raises"
    assert outcome(use("_bad", "try:1:O")) == "dlopen"
    assert outcome(load("global", name="libgone.so.1")) == "missing-library"
    assert outcome(load("global", "try:1:O", name="libgone.so.1")) == "works"
    assert outcome(load("global", "try:1:IM", name="libgone.so.1")) == "missing-library"


def test_the_rest_of_a_failed_block_is_skipped_and_its_handler_runs() -> None:
    rest = (use("_bad", "try:1:IM"), load("global", "try:1:IM"), use())
    assert outcome(*rest) == "dlopen"
    handled = (use("_bad", "try:1:IM"), load("global", "except:1"), use())
    assert outcome(*handled) == "works"
    unhandled = (load("global", "except:1"), use())
    assert outcome(*unhandled) == "dlopen"


def test_unknown_conditions_make_doubt_not_failure() -> None:
    assert outcome(use("_bad", "if")) == "doubtful"


def test_version_conditions_are_decided() -> None:
    assert outcome(use("_bad", "python:>=:3.12")) == "works"
    assert outcome(use("_bad", "python:>=:3.11")) == "dlopen"
    assert outcome(use("_bad", "python:!>=:3.12")) == "dlopen"


def test_dlopen_flags_make_extensions_global() -> None:
    giver = extension("a", "_giver", exports=("first",))
    natives = [giver, USER]
    assert outcome(use("_giver"), use(), natives=natives) == "dlopen"
    assert outcome(("flags", "", "global", ()), use("_giver"), use(), natives=natives) == "works"


def test_cycles_end() -> None:
    found = importer([("import", "a", "", ()), ("from", "a", "a", ())])
    assert found.import_module("a") is None


def test_a_failed_import_fails_again_and_can_be_forgotten() -> None:
    found = importer([])
    assert found.import_module("a._bad") is not None
    assert found.import_module("a._bad") is not None
    found.forget("a._bad")
    assert "a._bad" not in found.results
