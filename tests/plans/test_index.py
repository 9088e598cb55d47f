"""Origin check, patch folders and resolution, against a real uv and an index on loopback."""

from pathlib import Path

import pytest
from transplant import ADDED, PATCHED, Story, pydantic_toy
from worlds.wheels import Wheel

from treegraft.environments.compare import module_name
from treegraft.environments.index.origin import check_origins
from treegraft.environments.index.patch import read_patch_folder
from treegraft.environments.index.releases import newest_releases
from treegraft.environments.index.resolve import resolve
from treegraft.environments.index.uv import platform_of
from treegraft.environments.plan import PlanRequest, make_plan
from treegraft.environments.planning.resolution import PatchFolder
from treegraft.errors import UsageError

pytestmark = pytest.mark.usefixtures("own_index")


def test_origin_names_what_the_index_version_lacks(story: Story) -> None:
    report = check_origins(story.source, ("sglang", "pydantic-toy", "torch"))
    by_name = {d.name: d for d in report.dists}
    sglang = by_name["sglang"]
    assert sglang.relation == "patched"
    assert set(sglang.modified) == set(PATCHED)
    assert set(sglang.added) == set(ADDED)
    found = {f.dist: f for f in report.findings()}
    assert "the index version lacks sglang.srt.speculative.dflash_worker" in found["sglang"].evidence
    assert found["sglang"].file == f"{report.site_packages}/{sglang.modified[0]}"
    assert found["sglang"].file in {e.path for e in story.source.environment.files}  # type: ignore[union-attr]
    assert by_name["pydantic-toy"].relation == "identical"
    assert by_name["torch"].relation == "not-on-index"


def test_added_modules_are_looked_for_in_other_releases(story: Story) -> None:
    """Of a release that has one of them, that release is named; of the others, which ones were searched."""
    with_it, without = sorted(ADDED)[:2]
    releases = {"0.5.16": {}, "0.5.18": {with_it: "early = True\n"}, "0.4.0": {}, "0.3.0": {without: ""}}
    wheels = [
        Wheel("sglang", version, {"sglang/__init__.py": "", **files}).build(story.index)
        for version, files in releases.items()
    ]
    try:
        report = check_origins(story.source, ("sglang",))
    finally:
        for wheel in wheels:
            wheel.unlink()
    (sglang,) = report.dists
    assert sglang.releases == ("0.5.18", "0.5.16", "0.4.0"), "the newest three, not 0.3.0"
    assert sglang.first_with == ((module_name(with_it), "0.5.18"),)
    evidence = report.findings()[0].evidence
    assert f"the index version lacks {module_name(with_it)} (release 0.5.18 has it)" in evidence
    assert f"the index version lacks {module_name(without)} (nor is it in 0.5.18, 0.5.16, 0.4.0)" in evidence


def test_releases_that_are_searched(story: Story) -> None:
    """Three, or all that are newer, eight at most; newest first."""
    wheels = [Wheel("many", f"1.{n}", {"many.py": ""}).build(story.index) for n in range(12)]
    system = story.shell.host.system
    platform = platform_of(system.machine, system.libc_version)
    try:
        found = {
            version: newest_releases("many", version, python=story.toys.python.version, platform=platform)
            for version in ("1.7", "1.0")
        }
    finally:
        for wheel in wheels:
            wheel.unlink()
    assert found["1.7"] == ("1.11", "1.10", "1.9", "1.8")
    assert found["1.0"] == tuple(f"1.{n}" for n in range(11, 3, -1))


def test_wheels_are_fetched_once(story: Story) -> None:
    first = check_origins(story.source, ("sglang",))
    (story.index / "sglang-0.5.17-py3-none-any.whl").rename(story.index / "away")
    try:
        assert check_origins(story.source, ("sglang",)) == first
    finally:
        (story.index / "away").rename(story.index / "sglang-0.5.17-py3-none-any.whl")


def test_origin_of_what_is_not_installed(story: Story) -> None:
    with pytest.raises(UsageError, match="nobody is not installed"):
        check_origins(story.source, ("nobody",))


def folder_of_patches(place: Path, version: str | None) -> Path:
    for path, text in {**PATCHED, **ADDED}.items():
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    if version is not None:
        (place / "sglang" / "version.py").write_text(f"__version__ = '{version}'\n")
    return place


def read(story: Story, folder: Path, version: str | None) -> PatchFolder:
    system = story.shell.host.system
    return read_patch_folder(
        folder,
        "sglang",
        version,
        python=story.toys.python.version,
        platform=platform_of(system.machine, system.libc_version),
    )


def test_patch_folder_and_its_plan(story: Story, tmp_path: Path) -> None:
    found = read(story, folder_of_patches(tmp_path / "p", None), "0.5.17")
    assert set(found.files) == {*PATCHED, *ADDED}
    assert "sglang/__init__.py" in found.index_files
    request = PlanRequest(take=("sglang",), source=found.path, target="b:/new", base=None)
    resolution = resolve(request, source=found, target=story.shell, base=None)
    # torch is on no index of this test: the request cannot be met, and it is said why
    assert not resolution.satisfiable
    assert "torch" in resolution.explanation
    plan = make_plan(request, source=found, target=story.shell, base=story.base, resolution=resolution)
    (sglang,) = [d for d in plan.dists if d.name == "sglang"]
    assert (sglang.action, set(sglang.patched_files)) == ("patch", set(PATCHED))
    assert set(sglang.added_files) == set(ADDED)


def test_the_folder_says_its_version(story: Story, tmp_path: Path) -> None:
    assert read(story, folder_of_patches(tmp_path / "p", "0.5.17"), None).version == "0.5.17"
    unknown = read(story, folder_of_patches(tmp_path / "q", None), None)
    assert (unknown.version, unknown.index_files) == (None, {})
    inner = read(story, folder_of_patches(tmp_path / "r", None), "9.9")
    assert inner.index_files == {}


def test_a_folder_without_modules(story: Story, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no Python module"):
        read(story, tmp_path, None)
    with pytest.raises(UsageError, match="is not a folder"):
        read(story, tmp_path / "nowhere", None)


def test_resolution_prefers_the_base_then_the_source_then_the_index(story: Story) -> None:
    request = PlanRequest(take=("sglang",), source="a", target="b", base="b")
    found = resolve(request, source=story.source, target=story.shell, base=story.base)
    versions = {p.name: p.version for p in found.pins}
    assert found.satisfiable
    assert versions["torch"] == "2.11.0+cu128"
    assert versions["pydantic-toy"] == "2.1"
    on_index = {p.name for p in found.pins if p.on_index}
    assert on_index == {"pydantic-toy", "sgl-kernel", "sglang"}
    wheel = story.index / "sglang-0.5.17-py3-none-any.whl"
    assert {p.name: p.bytes for p in found.pins}["sglang"] == wheel.stat().st_size
    assert all(p.bytes > 0 for p in found.pins if p.on_index)
    required = {p.name: p.required_by for p in found.pins}
    assert "sglang" in required["sgl-kernel"]


def test_a_kept_version_that_does_not_fit_is_explained(story: Story, tmp_path: Path) -> None:
    from worlds.venvs import quick_venv

    from treegraft.environments.probe import probe

    old = quick_venv(tmp_path / "old", story.toys.python, [pydantic_toy("1.0")])
    base = probe(str(old.prefix), use_cache=False)
    request = PlanRequest(take=("sglang",), source="a", target="b", base="b", keep=("pydantic-toy",))
    found = resolve(request, source=story.source, target=story.shell, base=base)
    assert not found.satisfiable
    assert "pydantic-toy" in found.explanation
    assert "\n" not in found.explanation
    plan = make_plan(request, source=story.source, target=story.shell, base=base, resolution=found)
    assert any(f.rule == "resolve.unsatisfiable" and f.level == "block" for f in plan.findings)
    assert {d.version for d in plan.dists if d.name == "pydantic-toy"} == {"1.0"}
