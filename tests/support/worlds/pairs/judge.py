"""Asks treegraft for its verdict on each dist of a pair and compares it with what Python really does.

Knows both sides; does not know how pairs are made. Two questions are put: `check`, on the result environment as it
lies on disk, and `plan`, on the result as it would be, before anything is moved.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from worlds.pairs.lay_out import Import, LaidOut, import_dist
from worlds.venvs import Venv

from treegraft.environments.compatibility import check
from treegraft.environments.ends import libraries_wanted_by
from treegraft.environments.findings import Finding
from treegraft.environments.index.resolve import resolve
from treegraft.environments.inventory import Inventory
from treegraft.environments.plan import Plan, PlanRequest, make_plan
from treegraft.environments.planning.result import package_files
from treegraft.environments.probe import probe


@dataclass(frozen=True)
class Verdict:
    """On one dist. `blocks`: the blocking findings about it, as text. It is wrong when they disagree with `real`."""

    question: str
    dist: str
    real: Import
    blocks: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        return self.real.works != bool(self.blocks)


def judge_check(laid: LaidOut) -> Iterator[Verdict]:
    """One verdict for each dist of the result environment."""
    with process_variables(laid.variables):
        inventory = probe(str(laid.result.prefix), use_cache=False)
    findings = check(inventory)
    for wheel in laid.pair.result():
        real = import_dist(wheel, laid.result, laid.variables)
        yield Verdict("check", wheel.name, real, blocks_on(findings, wheel.name))


def judge_plan(laid: LaidOut) -> Iterator[Verdict]:
    """One verdict for each dist of the environment that a plan would build, built here by hand as the plan says.

    A source that is itself broken blocks whatever the result does (source.broken), and a kept dist that was broken
    before does not block: neither is judged.
    """
    names = tuple(wheel.name for wheel in laid.pair.moved)
    request = PlanRequest(take=names, source=str(laid.source.prefix), target=str(laid.target.prefix))
    empty_index = laid.world / "simple"
    empty_index.mkdir()
    with process_variables(laid.variables):
        source = probe(request.source, use_cache=False)
        target = probe(request.target, use_cache=False, sonames=libraries_wanted_by(source))
    with process_variables({"UV_DEFAULT_INDEX": empty_index.as_uri(), "UV_NO_CONFIG": "1"}):
        resolution = resolve(request, source=source, target=target, base=None)
    plan = make_plan(request, source=source, target=target, base=None, resolution=resolution)
    planned = build_by_hand(plan, laid, source)
    wheels = {wheel.name: wheel for wheel in (*laid.pair.target, *laid.pair.source_only, *laid.pair.moved)}
    for dist in plan.dists:
        before = laid.source if dist.action == "source" else laid.target
        wheel = wheels[dist.name]
        if dist.action == "drop" or not import_dist(wheel, before, laid.variables).works:
            continue
        real = import_dist(wheel, planned, laid.variables)
        findings = tuple(f for f in plan.findings if f.rule != "source.broken")
        yield Verdict("plan", dist.name, real, blocks_on(findings, dist.name))


def build_by_hand(plan: Plan, laid: LaidOut, source: Inventory) -> Venv:
    """A copy of the target with the files of every `source` dist laid over it, their namesakes removed before."""
    planned = replace(laid.target, prefix=laid.world / "planned")
    shutil.copytree(laid.target.prefix, planned.prefix, symlinks=True)
    assert source.environment is not None
    for dist in plan.dists:
        assert dist.action in ("keep", "source", "drop"), dist
        if dist.action != "keep":
            for wheel in laid.pair.target:
                if wheel.name == dist.name:
                    for path in {path.split("/")[0] for path in wheel.contents()}:
                        shutil.rmtree(planned.site_packages / path)
        if dist.action == "source":
            for path in package_files(source.environment, {dist.name}):
                place = planned.prefix / path
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(laid.source.prefix / path, place, follow_symlinks=False)
    return planned


def blocks_on(findings: tuple[Finding, ...], dist: str) -> tuple[str, ...]:
    return tuple(f"{f.rule} {f.file}: {f.evidence}" for f in findings if f.level == "block" and f.dist == dist)


@contextmanager
def process_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """This process's variables for the time of a probe: the loader's are those of the shell that asks."""
    names = {"LD_LIBRARY_PATH", "LD_PRELOAD", *variables}
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


def fresh(folder: Path) -> Path:
    """The folder, emptied."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
