"""The whole story on two hosts: what is found, what would have to move and why, and the two ways it can end."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from story_hosts import NEW_DRIVER, OLD_DRIVER, World, listing, set_driver, site_packages, uv_venv
from transplant import ADDED, PATCHED, Toys, pydantic_toy

OVERLAY = {"sglang", "sgl-kernel", "torch", "torchvision", "triton", "nvidia-cuda-runtime"}
MODULES = [
    f"sglang.srt.speculative.{name}" for name in ("ddtree_utils", "dflash_info", "dflash_utils", "dflash_worker")
]
IMPORT = "import sglang.srt.speculative.dflash_worker, sgl_kernel, torchvision, trainer"


@pytest.mark.parametrize("driver", [NEW_DRIVER, OLD_DRIVER], ids=["runs-cuda-13", "does-not"])
def test_the_story(world: World, driver: tuple[str, str], tmp_path: Path) -> None:
    set_driver(world.b, driver)
    serving, training = world.path(world.a, "serve/venv"), world.path(world.b, "train/venv")
    before = listing(world.a.folder), listing(world.b.folder)

    runs = driver == NEW_DRIVER
    if runs:  # nothing of this depends on the driver
        look_around(world, serving, training)
        compare_both(world, serving, training)
        ask_the_index(world, serving)
    plan = make_plan(world, serving, training, tmp_path / "plan.json", exit_code=0 if runs else 3)

    assert (listing(world.a.folder), listing(world.b.folder)) == before, "reading and planning change nothing"
    assert actions(plan, "source") == OVERLAY
    explain_overlay(plan)
    assert any(f["rule"] == "host.port-busy" for f in plan["findings"])
    blocking = [f for f in plan["findings"] if f["level"] == "block"]
    if runs:
        assert blocking == []
        move_by_hand(world, plan)
    else:
        assert {f["rule"] for f in blocking} == {"gpu.driver-too-old"}
        assert {"torch"} <= {f["dist"] for f in blocking} <= OVERLAY
        assert all("install driver 580.65.06" in f["remedy"] and "CUDA 12" in f["remedy"] for f in blocking)


def look_around(world: World, serving: str, training: str) -> None:
    """What a person would find out in an hour: the dead GPU, the patches, no pip, no uv, the busy port."""
    a = json.loads(world.treegraft("probe", serving, "--json"))
    dead = [g["index"] for g in a["host"]["gpus"]["devices"] if g["health"] == "unusable"]
    assert dead == [1]
    assert not a["environment"]["has_pip"]
    assert a["environment"]["kind"] == "uv-venv"
    dists = {d["name"]: d for d in a["environment"]["dists"]}
    assert dists["torch"]["local"] == "cu130"
    assert {m["path"].split("site-packages/")[1] for m in dists["sglang"]["modified"]} == set(PATCHED)
    assert {path.split("site-packages/")[1] for path in a["environment"]["unowned"]} == set(ADDED)

    b = json.loads(world.treegraft("probe", training, "--json"))
    assert {d["local"] for d in b["environment"]["dists"] if d["name"] == "torch"} == {"cu128"}
    assert "uv" not in {tool["name"] for tool in b["host"]["package_managers"]}
    assert {g["compute_capability"] for g in b["host"]["gpus"]["devices"]} == {"12.0"}
    assert [p["gpu_uuid"] for p in b["host"]["gpus"]["processes"]] == [b["host"]["gpus"]["devices"][0]["uuid"]]
    (service,) = [p for p in b["host"]["ports"] if p["port"] == 30000]
    assert "ddtree_service.py" in service["command"]

    shell = json.loads(world.treegraft("probe", world.path(world.b, "empty/venv"), "--json"))
    assert shell["environment"]["is_empty"]
    assert not shell["environment"]["has_pip"]


def compare_both(world: World, serving: str, training: str) -> None:
    """A against B: other builds of torch, a patched sglang with its patches shown."""
    difference = json.loads(world.treegraft("diff", serving, training, "--json"))
    dists = {d["name"]: d for d in difference["dists"]}
    assert {dists["torch"]["left"], dists["torch"]["right"]} == {"2.11.0+cu130", "2.11.0+cu128"}
    assert dists["torch"]["relation"] != "same"
    assert dists["sgl-kernel"]["relation"] == "only-left"
    assert dists["trainer"]["relation"] == "only-right"


def ask_the_index(world: World, serving: str) -> None:
    """The release of that version lacks the modules: reinstalling would lose them."""
    report = json.loads(world.treegraft("check", serving, "--against-index", "sglang", "--json"))
    evidence = " ".join(f["evidence"] for f in report["findings"] if f["dist"] == "sglang")
    for module in MODULES:
        assert f"the index version lacks {module}" in evidence


def make_plan(
    world: World, serving: str, training: str, out: Path, *, exit_code: int, **options: str
) -> dict[str, Any]:
    words = ["plan", "--take", "sglang", "--from", serving, "--to", world.path(world.b, "ddtree/venv")]
    words += ["--base", training, "--out", str(out)]
    for name, value in options.items():
        words += [f"--{name}", value]
    text = world.treegraft(*words, exit_code=exit_code)
    assert "sglang" in text
    plan: dict[str, Any] = json.loads(out.read_text())
    return plan


def actions(plan: dict[str, Any], action: str) -> set[str]:
    return {d["name"] for d in plan["dists"] if d["action"] == action}


def explain_overlay(plan: dict[str, Any]) -> None:
    """Each dist says why it moves: the patches, the symbol, the group."""
    dists = {d["name"]: d for d in plan["dists"]}
    assert "hand-made changes" in dists["sglang"]["reason"]
    assert "c10_cuda_check_implementation" in dists["torch"]["reason"]
    assert dists["torch"]["replaces"] == "2.11.0+cu128"
    assert dists["torch"]["because"] == ["sgl-kernel", "torch"]
    assert all(dists[name]["because"] for name in OVERLAY)
    assert dists["trainer"]["action"] == "keep"


def move_by_hand(world: World, plan: dict[str, Any]) -> None:
    """What the plan names is enough and needed: the result imports on B, and does not without the torch group."""
    assert hand_made(world, actions(plan, "source") | actions(plan, "index"), plan) == ""
    error = hand_made(world, {"sglang", "sgl-kernel", "pydantic-toy"}, plan)
    assert "undefined symbol: _ZN3c104cuda29c10_cuda_check_implementation" in error or "libcudart.so.13" in error


def hand_made(world: World, names: set[str], plan: dict[str, Any]) -> str:
    """Copy B's training environment, lay these dists of A over it, import on B; what Python says."""
    python = world.toys.python
    target = world.b.folder / "by-hand"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(world.b.folder / "train" / "venv", target, symlinks=True)
    there = site_packages(world.b, "by-hand", python)
    here = site_packages(world.a, "serve/venv", python)
    dropped = actions(plan, "drop") if "torch" in names else set()
    for info in [*there.glob("*.dist-info")]:
        if name_of(info) in names | dropped:
            for line in (info / "RECORD").read_text().splitlines():
                (there / line.split(",")[0]).unlink(missing_ok=True)
    for info in here.glob("*.dist-info"):
        if name_of(info) in names:
            paths = [line.split(",")[0] for line in (info / "RECORD").read_text().splitlines()]
            for path in [*paths, *(ADDED if name_of(info) == "sglang" else ())]:
                (there / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(here / path, there / path)
    program = f"try:\n    {IMPORT}\nexcept ImportError as error:\n    print(error)\n"
    return world.b.run(str(world.b.home / "by-hand" / "bin" / "python"), "-B", "-c", program)


def name_of(info: Path) -> str:
    return info.name.split("-")[0].replace("_", "-")


def test_keeping_torch_is_blocked_by_the_symbol(world: World, tmp_path: Path) -> None:
    set_driver(world.b, NEW_DRIVER)
    serving, training = world.path(world.a, "serve/venv"), world.path(world.b, "train/venv")
    plan = make_plan(world, serving, training, tmp_path / "plan.json", exit_code=3, keep="torch")
    symbols = [f for f in plan["findings"] if f["rule"] == "abi.undefined-symbol" and f["level"] == "block"]
    assert {f["dist"] for f in symbols} >= {"sgl-kernel"}
    assert "_ZN3c104cuda29c10_cuda_check_implementation" in symbols[0]["evidence"]
    assert "torch 2.11.0+cu130" in symbols[0]["remedy"]
    (chain,) = [f for f in plan["findings"] if f["rule"] == "resolve.unsatisfiable"]
    assert chain["evidence"].startswith("sglang -> sgl-kernel")


def test_files_for_sm_86_alone_are_unfit(world: World, tmp_path: Path) -> None:
    """A's own build has no code for Blackwell: every file of it that would be moved is named."""
    set_driver(world.b, NEW_DRIVER)
    old = Toys(world.toys.compiler, world.toys.python, ("sm_86",))
    uv_venv(
        world.a, "old/venv", old.python, [*old.torch(13), old.sgl_kernel(13), old.sglang(), pydantic_toy()], tmp_path
    )
    source, training = world.path(world.a, "old/venv"), world.path(world.b, "train/venv")
    plan = make_plan(world, source, training, tmp_path / "plan.json", exit_code=3)
    unfit = {f["file"].split("site-packages/")[1] for f in plan["findings"] if f["rule"] == "gpu.no-arch"}
    assert unfit == {
        "sgl_kernel/common_ops.abi3.so",
        "torch/lib/libc10_cuda.so",
        f"torchvision/_C{old.python.extension_suffix}",
    }
    assert all("sm_120" in f["evidence"] for f in plan["findings"] if f["rule"] == "gpu.no-arch")


def test_a_folder_of_modules_is_patched_onto_the_index_wheel(world: World, tmp_path: Path) -> None:
    """Patches alone are not a package: they go onto the wheel of the version they were made from, or nowhere."""
    set_driver(world.b, NEW_DRIVER)
    folder = tmp_path / "patches"
    for path, text in {**PATCHED, **ADDED}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    base = [*world.toys.torch(13), world.toys.sgl_kernel(13), pydantic_toy()]
    uv_venv(world.b, "patch-base", world.toys.python, base, tmp_path)
    out = tmp_path / "plan.json"
    words = ["plan", "--from", str(folder), "--to", world.path(world.b, "ddtree/venv")]
    words += ["--base", world.path(world.b, "patch-base")]
    world.treegraft(*words, "--take", "sglang==0.5.17", "--out", str(out))
    (patched,) = [d for d in json.loads(out.read_text())["dists"] if d["action"] == "patch"]
    assert patched["name"] == "sglang"
    assert set(patched["patched_files"]) == set(PATCHED)
    assert set(patched["added_files"]) == set(ADDED)
    world.treegraft(*words, "--take", "sglang==0.5.16", "--out", str(out), exit_code=3)
    assert any(
        f["rule"].startswith("resolve.") and f["level"] == "block" for f in json.loads(out.read_text())["findings"]
    )
