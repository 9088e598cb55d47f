"""The transplant of a patched sglang: what moves, why, and what blocks it."""

from pathlib import Path

import msgspec
import pytest
from inventories import gpu, with_gpus
from transplant import Story
from worlds.venvs import quick_venv

from treegraft import records
from treegraft.environments.findings import Finding
from treegraft.environments.index.resolve import resolve
from treegraft.environments.inventory import Inventory
from treegraft.environments.plan import Plan, PlanRequest, make_plan
from treegraft.environments.probe import probe
from treegraft.environments.reports.plan_text import plan_text, why_tree

pytestmark = pytest.mark.usefixtures("own_index")
OVERLAY = {"sglang", "sgl-kernel", "torch", "torchvision", "triton", "nvidia-cuda-runtime"}


def plan_of(
    story: Story,
    *,
    keep: tuple[str, ...] = (),
    take: tuple[str, ...] = ("sglang",),
    source: Inventory | None = None,
    target: Inventory | None = None,
    base: Inventory | None = None,
) -> Plan:
    source, target, base = source or story.source, target or story.shell, base or story.base
    request = PlanRequest(take=take, source="a:/venv", target="b:/new", base="b:/venv", keep=keep)
    resolution = resolve(request, source=source, target=target, base=base)
    return make_plan(request, source=source, target=target, base=base, resolution=resolution)


def blocks(plan: Plan) -> list[Finding]:
    return [f for f in plan.findings if f.level == "block"]


def names(plan: Plan, action: str) -> set[str]:
    return {d.name for d in plan.dists if d.action == action}


@pytest.fixture(scope="module")
def made() -> list[Plan]:
    return []


@pytest.fixture
def plan(story: Story, made: list[Plan]) -> Plan:
    """The plain one, made once: it needs the index of a test."""
    if not made:
        made.append(plan_of(story))
    return made[0]


def test_exactly_the_overlay_moves(plan: Plan) -> None:
    assert blocks(plan) == []
    assert names(plan, "source") == OVERLAY
    assert names(plan, "index") == {"pydantic-toy"}
    assert names(plan, "drop") == {"nvidia-cuda-runtime-cu12"}
    assert names(plan, "keep") == {"trainer"}


def test_every_dist_says_why(plan: Plan) -> None:
    by_name = {d.name: d for d in plan.dists}
    assert "hand-made changes" in by_name["sglang"].reason
    assert any("2 modified files" in e for e in by_name["sglang"].evidence)
    assert any("4 files that no RECORD lists" in e for e in by_name["sglang"].evidence)
    torch = by_name["torch"]
    assert "c10_cuda_check_implementation" in torch.reason
    assert torch.replaces == "2.11.0+cu128"
    assert torch.because == ("sgl-kernel", "torch")
    assert by_name["triton"].group == "torch"
    assert all(d.because for d in plan.dists if d.action in ("source", "index"))
    tree = why_tree(plan)
    depth = {line.split()[0]: len(line) - len(line.lstrip()) for line in tree}
    assert depth["sglang"] < depth["sgl-kernel"] < depth["torch"] < depth["triton"]
    assert len(tree) == len(OVERLAY) + 1


def test_a_change_of_cuda_flavour_is_said(plan: Plan) -> None:
    said = {f.dist: f for f in plan.findings if f.rule == "resolve.flavour"}
    assert set(said) == {"torch", "torchvision"}
    assert "+cu128 to +cu130" in said["torch"].evidence


def test_driver_that_does_not_run_cuda_13_blocks_with_the_remedy(story: Story) -> None:
    old = with_gpus(story.shell, gpu("12.0"), driver="570.124.06", cuda="12.8")
    plan = plan_of(story, target=old)
    assert {f.rule for f in blocks(plan)} == {"gpu.driver-too-old"}
    assert "torch" in {f.dist for f in blocks(plan)}
    assert all("install driver 580.65.06" in f.remedy and "CUDA 12" in f.remedy for f in blocks(plan))


def test_files_without_code_for_the_targets_gpu_block(story: Story) -> None:
    hopper = with_gpus(story.shell, gpu("9.0"))
    plan = plan_of(story, target=hopper)
    unfit = {f.file for f in blocks(plan) if f.rule == "gpu.no-arch"}
    assert {f"lib/python{v}/site-packages/torch/lib/libc10_cuda.so" for v in [story.toys.python.minor]} < unfit
    assert len(unfit) == 3


def test_keeping_torch_is_explained_as_a_chain(story: Story) -> None:
    plan = plan_of(story, keep=("torch",))
    (unmet,) = [f for f in blocks(plan) if f.rule == "resolve.unsatisfiable"]
    assert unmet.evidence.startswith("sglang -> sgl-kernel: ")
    assert "torch 2.11.0+cu128, which is to be kept" in unmet.evidence
    assert "drop --keep torch" in unmet.remedy
    (symbol,) = [f for f in blocks(plan) if f.rule == "abi.undefined-symbol"]
    assert "torch 2.11.0+cu130" in symbol.remedy
    assert "torch" not in names(plan, "source")


def test_a_broken_source_blocks(story: Story, tmp_path: Path) -> None:
    toys = story.toys
    wheels = [*toys.torch(13), toys.sgl_kernel(13), toys.sglang()]
    venv = quick_venv(tmp_path / "broken", toys.python, wheels)
    (venv.site_packages / "sgl_kernel/common_ops.abi3.so").unlink()
    plan = plan_of(story, source=probe(str(venv.prefix), use_cache=False))
    assert "source.broken" in {f.rule for f in blocks(plan) if f.dist == "sgl-kernel"}


def test_a_source_that_could_not_be_read_blocks(story: Story) -> None:
    """Files that this user may not read cannot be moved; those that RECORD lists without a hash can."""
    environment = story.source.environment
    assert environment is not None
    path = next(e.path for e in environment.files if e.path.endswith("sgl_kernel/__init__.py"))

    def unchecked(**facts: str) -> Inventory:
        dists = (
            msgspec.structs.replace(d, unchecked=(path,)) if d.name == "sgl-kernel" else d for d in environment.dists
        )
        files = (msgspec.structs.replace(e, **facts) if e.path == path else e for e in environment.files)
        changed = msgspec.structs.replace(environment, dists=tuple(dists), files=tuple(files))
        return msgspec.structs.replace(story.source, environment=changed)

    assert blocks(plan_of(story, source=unchecked())) == []
    (found,) = blocks(plan_of(story, source=unchecked(sha256="")))
    assert (found.rule, found.dist, found.file) == ("source.broken", "sgl-kernel", path)


def test_the_base_is_not_written_and_the_plan_is_stable(story: Story) -> None:
    before = {p: p.lstat().st_mtime_ns for p in story.base_venv.prefix.rglob("*")}
    one, two = plan_of(story), plan_of(story)
    assert {p: p.lstat().st_mtime_ns for p in story.base_venv.prefix.rglob("*")} == before
    assert records.canonical_json(one) == records.canonical_json(two)
    assert one.hash == one.computed_hash()
    assert records.from_json(Plan, records.to_json(one)) == one
    changed = msgspec.structs.replace(one, python="3.99.0")
    assert changed.hash != changed.computed_hash()


def test_bytes(story: Story, plan: Plan) -> None:
    moved = [d for d in plan.dists if d.action == "source"]
    assert 0 < plan.bytes_to_move <= sum(d.bytes for d in moved) + 10_000
    assert plan.bytes_present > 0, "triton and sglang share files with the base and themselves by content"
    assert plan.disk_needed_bytes > plan.bytes_to_move
    (fetched,) = [d for d in plan.dists if d.action == "index"]
    wheel = story.index / "pydantic_toy-2.1-py3-none-any.whl"
    (installed,) = [d for d in story.source.environment.dists if d.name == fetched.name]  # type: ignore[union-attr]
    assert fetched.bytes == installed.size_bytes != wheel.stat().st_size, "unpacked, as the source has it"


def test_disk_that_is_too_small_blocks(story: Story) -> None:
    """Of bytes or inodes; of a target that is not there yet, the host's first file system row counts."""
    request = PlanRequest(take=("sglang",), source="a:/venv", target="b:/new", base="b:/venv")
    resolution = resolve(request, source=story.source, target=story.shell, base=story.base)
    shell = story.shell
    assert shell.environment is not None
    assert shell.host.filesystems[0].path == shell.environment.prefix

    def disk_findings(is_there: bool, **facts: int) -> list[Finding]:
        first, *others = shell.host.filesystems
        host = msgspec.structs.replace(shell.host, filesystems=(msgspec.structs.replace(first, **facts), *others))
        environment = shell.environment if is_there else None
        target = msgspec.structs.replace(shell, host=host, environment=environment)
        plan = make_plan(request, source=story.source, target=target, base=story.base, resolution=resolution)
        return [f for f in plan.findings if f.rule == "host.disk" and f.level == "block"]

    for is_there in (True, False):
        assert disk_findings(is_there) == []
        assert "MiB are needed" in disk_findings(is_there, free_bytes=1000)[0].evidence
        assert "inodes free" in disk_findings(is_there, free_inodes=10)[0].evidence
        assert disk_findings(is_there, free_inodes=-1) == []


def test_text(plan: Plan) -> None:
    text = plan_text(plan)
    assert "torch" in text
    assert "why is this here" in text
    assert "\x1b" not in text


def test_unknown_names_block(story: Story) -> None:
    plan = plan_of(story, take=("sglang", "nobody"))
    assert any(f.rule == "resolve.unsatisfiable" and f.dist == "nobody" for f in blocks(plan))
    plan = plan_of(story, keep=("nobody",))
    assert any(f.rule == "resolve.unsatisfiable" and f.dist == "nobody" for f in blocks(plan))
