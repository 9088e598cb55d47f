"""Choices from made-up inventories and resolutions: downgrades, flavours, drops, patches, new environments."""

from typing import Any

import msgspec
import pytest
from inventories import SITE, Recipe, dist, extension, inventory, native

from treegraft.environments.findings import Finding
from treegraft.environments.inventory import Dist, Interpreter, Inventory, NativeFile, Origin
from treegraft.environments.plan import Plan, PlanRequest, make_plan
from treegraft.environments.planning.resolution import PatchFolder, Pin, Resolution
from treegraft.errors import UsageError

EMPTY = inventory(Recipe(), "b:/new")


def end(*dists: Dist, natives: tuple[NativeFile, ...] = (), **recipe: Any) -> Inventory:
    return inventory(Recipe(dists, natives, **recipe))


def pins(*rows: tuple[str, str] | tuple[str, str, bool], explanation: str = "") -> Resolution:
    return Resolution(
        satisfiable=True,
        pins=tuple(Pin(name=r[0], version=r[1], on_index=r[2] if len(r) > 2 else True) for r in rows),
        explanation=explanation,
    )


def plan_of(
    source: Inventory | PatchFolder,
    resolution: Resolution,
    *,
    base: Inventory | None = None,
    target: Inventory = EMPTY,
    take: tuple[str, ...] = ("app",),
    keep: tuple[str, ...] = (),
) -> Plan:
    request = PlanRequest(take=take, source="a:/v", target="b:/new", base="b:/base" if base else None, keep=keep)
    return make_plan(request, source=source, target=target, base=base, resolution=resolution)


def actions(plan: Plan) -> dict[str, str]:
    return {d.name: d.action for d in plan.dists}


def of_rule(plan: Plan, rule: str) -> list[Finding]:
    return [f for f in plan.findings if f.rule == rule]


def test_what_the_base_has_is_kept_and_the_rest_comes_from_the_index() -> None:
    source = end(dist("app", requires=("helper", "other")), dist("helper", "2.0"), dist("other"))
    base = end(dist("helper", "1.5"), dist("bystander"))
    plan = plan_of(source, pins(("app", "1.0"), ("helper", "1.5"), ("other", "1.0")), base=base)
    assert actions(plan) == {"app": "source", "bystander": "keep", "helper": "keep", "other": "index"}
    assert {d.name: d.because for d in plan.dists}["other"] == ("app", "other")


def test_what_the_index_lacks_comes_from_the_source() -> None:
    source = end(dist("app", requires=("helper",)), dist("helper", "2.0+local"))
    plan = plan_of(source, pins(("app", "1.0"), ("helper", "2.0+local", False)))
    (helper,) = [d for d in plan.dists if d.name == "helper"]
    assert helper.action == "source"
    assert "the index does not have version 2.0+local" in helper.reason


@pytest.mark.parametrize(("version", "level"), [("1.0", "block"), ("2.0", None), ("3.0", None)])
def test_silent_downgrades_block(version: str, level: str | None) -> None:
    source = end(dist("app", requires=("helper",)), dist("helper", version))
    base = end(dist("helper", "2.0"))
    plan = plan_of(source, pins(("app", "1.0"), ("helper", version)), base=base)
    assert [f.level for f in of_rule(plan, "resolve.downgrade")] == ([level] if level else [])


def test_a_downgrade_that_was_asked_for_only_warns() -> None:
    source = end(dist("app", "1.0"))
    plan = plan_of(source, pins(("app", "1.0")), base=end(dist("app", "2.0")))
    (finding,) = of_rule(plan, "resolve.downgrade")
    assert finding.level == "warn"


def test_an_ancient_release_from_the_index_is_a_downgrade_against_the_source() -> None:
    source = end(dist("app", requires=("helper",)), dist("helper", "5.0"))
    plan = plan_of(source, pins(("app", "1.0"), ("helper", "0.1")))
    (finding,) = of_rule(plan, "resolve.downgrade")
    assert (finding.level, "5.0 of the source down to 0.1" in finding.evidence) == ("block", True)


def test_another_cuda_flavour_from_the_index_blocks() -> None:
    source = end(dist("app", requires=("torch",)))
    base = end(dist("torch", "2.11.0+cu128"))
    plan = plan_of(source, pins(("app", "1.0"), ("torch", "2.11.0+cu130")), base=base)
    (finding,) = of_rule(plan, "resolve.flavour")
    assert finding.level == "block"
    same = plan_of(source, pins(("app", "1.0"), ("torch", "2.11.0+cu128")), base=base)
    assert of_rule(same, "resolve.flavour") == []


def test_an_unmet_resolution_blocks_with_its_reasons() -> None:
    source = end(dist("app", requires=("torch==2.14.1",)), dist("torch", "2.14.1"))
    resolution = Resolution(
        satisfiable=False, explanation="Because app==1.0 depends on torch==2.14.1 and you require ..."
    )
    plan = plan_of(source, resolution, base=end(dist("torch", "2.11.0")), keep=("torch",))
    (finding,) = of_rule(plan, "resolve.unsatisfiable")
    assert (finding.level, finding.dist) == ("block", "app")
    assert "depends on torch==2.14.1" in finding.evidence
    assert "--keep torch" in finding.remedy
    assert plan.is_blocked


def test_offline_and_unseen_wheels_are_said() -> None:
    source = end(dist("app", requires=("fresh",)))
    plan = plan_of(source, pins(("app", "1.0"), ("fresh", "9.0"), explanation="the index cannot be reached"))
    assert [f.level for f in of_rule(plan, "resolve.offline")] == ["warn"]
    (unseen,) = of_rule(plan, "resolve.unseen")
    assert "fresh 9.0" in unseen.evidence
    assert not plan.is_blocked


def core(function: str) -> tuple[NativeFile, ...]:
    """`core` with a library that exports `function`, and its extension."""
    return (
        native(f"{SITE}/core/lib/libcore.so", "core", soname="libcore.so", exports=(function,)),
        extension("core", "_C", needed=("libcore.so",), runpath=("$ORIGIN/lib",)),
    )


CORE_LOADS = {"core": [("from", "core", "_C")]}
USES_CORE = [("import", "core", ""), ("from", "app", "_ext")]


def user(package: str, function: str) -> NativeFile:
    return extension(package, needed=("libcore.so",), imports=(function,))


def test_a_dist_of_the_base_that_the_move_breaks_and_nothing_needs_is_dropped() -> None:
    loads = {**CORE_LOADS, "app": USES_CORE}
    source = end(
        dist("app", requires=("core",)),
        dist("core", "2.0"),
        natives=(*core("new"), user("app", "new")),
        loads=loads,
    )
    side_loads = {**CORE_LOADS, "side": [("import", "core", ""), ("from", "side", "_ext")]}
    base = end(
        dist("core", "1.0"),
        dist("side", requires=("core",)),
        natives=(*core("old"), user("side", "old")),
        loads=side_loads,
    )
    plan = plan_of(source, pins(("app", "1.0"), ("core", "1.0")), base=base)
    assert actions(plan) == {"app": "source", "core": "source", "side": "drop"}
    (side,) = [d for d in plan.dists if d.name == "side"]
    assert "old" in side.evidence[0]
    assert not plan.is_blocked
    kept = plan_of(source, pins(("app", "1.0"), ("core", "1.0")), base=base, keep=("core",))
    assert actions(kept)["side"] == "keep"
    assert of_rule(kept, "resolve.unsatisfiable")


def test_a_fault_that_the_base_had_before_does_not_block() -> None:
    broken = extension("side", imports=("nowhere",))
    base = end(dist("side"), natives=(broken,), loads={"side": [("from", "side", "_ext")]})
    plan = plan_of(end(dist("app")), pins(("app", "1.0")), base=base)
    (finding,) = of_rule(plan, "abi.undefined-symbol")
    assert finding.level == "warn"
    needing = end(dist("app", requires=("side",)), dist("side"))
    mended = plan_of(needing, pins(("app", "1.0"), ("side", "1.0")), base=base)
    assert (actions(mended)["side"], mended.is_blocked) == ("source", False)
    only_required = end(dist("app", requires=("side",)))
    assert plan_of(only_required, pins(("app", "1.0"), ("side", "1.0")), base=base).is_blocked


def test_editables_are_not_moved() -> None:
    editable = dist("app", origin=Origin(kind="editable", url="file:///src/app", how="test"))
    found = of_rule(plan_of(end(editable), pins(("app", "1.0"))), "dist.editable-outside")
    assert found[0].level == "block"


PATCH = PatchFolder(
    path="/patches",
    dist="app",
    version="1.0",
    files={"app/x.py": "1" * 64, "app/new.py": "2" * 64, "app/same.py": "3" * 64},
    sizes={"app/x.py": 100, "app/new.py": 50, "app/same.py": 7},
    index_files={"app/x.py": "0" * 64, "app/same.py": "3" * 64, "app/__init__.py": "4" * 64},
)


def test_patches_go_onto_the_index_wheel() -> None:
    plan = plan_of(PATCH, pins(("app", "1.0")))
    (app,) = plan.dists
    assert (app.action, app.version) == ("patch", "1.0")
    assert app.patched_files == ("app/x.py",)
    assert app.added_files == ("app/new.py",)
    assert plan.bytes_to_move == 150
    assert not plan.is_blocked


@pytest.mark.parametrize(
    ("folder", "base", "word"),
    [
        (PATCH, "1.1", "the base has 1.1"),
        (msgspec.structs.replace(PATCH, version=None, index_files={}), None, "nothing says which version"),
        (msgspec.structs.replace(PATCH, index_files={}), None, "the index has no wheel app==1.0"),
    ],
)
def test_patches_of_another_or_unknown_version_block(folder: PatchFolder, base: str | None, word: str) -> None:
    plan = plan_of(folder, pins(("app", "1.0")), base=end(dist("app", base)) if base else None)
    (finding,) = of_rule(plan, "resolve.patch-base")
    assert (finding.level, word in finding.evidence) == ("block", True)


def test_a_new_environment_takes_the_sources_minor_version() -> None:
    host = msgspec.structs.replace(EMPTY, environment=None)
    interpreter = Interpreter(
        path="/usr/bin/python3.11", real_path="/usr/bin/python3.11", version="3.11.9", implementation="cpython",
        prefix="/usr", has_python_h=False, how="test",
    )  # fmt: skip
    host = msgspec.structs.replace(host, host=msgspec.structs.replace(host.host, interpreters=(interpreter,)))
    plan = plan_of(end(dist("app")), pins(("app", "1.0")), target=host)
    assert actions(plan) == {"app": "source"}
    assert plan.python.startswith("3.11")


def test_files_move_to_the_results_site_packages() -> None:
    """A cp311 extension in a 3.12 base is found not importable."""
    base = end(
        dist("other"),
        python={
            "version": "3.12.1", "extension_suffix": ".cpython-312-x86_64-linux-gnu.so",
            "site_packages": ("lib/python3.12/site-packages",),
        },
    )  # fmt: skip
    source = end(dist("app"), natives=(extension("app"),), loads={"app": [("from", "app", "_ext")]})
    plan = plan_of(source, pins(("app", "1.0")), base=base)
    found = of_rule(plan, "abi.python-tag")
    assert found
    assert all(f.level == "block" and f.file and f.file.startswith("lib/python3.12/") for f in found)


def test_nothing_to_take_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--take"):
        plan_of(end(dist("app")), pins(), take=())
