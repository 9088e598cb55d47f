"""gpu.*: device code against devices, driver against runtime, health, toolchain."""

import pytest
from inventories import SITE, Recipe, dist, gpu, inventory, native, with_gpus

from treegraft.environments.checks.gpu import runs_on
from treegraft.environments.compatibility import check
from treegraft.environments.findings import Finding
from treegraft.environments.inventory import GpuCode, Inventory, Tool


def of_rule(found: Inventory, rule: str) -> list[Finding]:
    return [f for f in check(found) if f.rule == rule]


def code(*archs: str) -> tuple[GpuCode, ...]:
    return tuple(GpuCode(kind="ptx" if a.startswith("compute") else "cubin", arch=a) for a in archs)


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [
        ("sm_80", "8.6", True),  # same major, lower minor
        ("sm_86", "8.0", False),
        ("sm_86", "9.0", False),
        ("sm_90a", "9.0", True),
        ("sm_90a", "10.0", False),
        ("sm_100a", "10.3", False),  # `a` is for exactly that one
        ("sm_100f", "10.3", True),  # `f` for its family
        ("sm_103f", "10.0", False),
        ("sm_100f", "12.0", False),
        ("sm_120", "12.1", True),
        ("sm_100", "12.0", False),
        ("compute_80", "12.0", True),  # PTX for any later device
        ("compute_120", "9.0", False),
        ("compute_90a", "10.0", False),
        ("compute_90a", "9.0", True),
        ("odd", "9.0", False),
    ],
)
def test_runs_on(arch: str, capability: str, runs: bool) -> None:
    assert runs_on(code(arch)[0], capability) is runs


def test_no_arch_is_judged_file_by_file() -> None:
    """One file of a package lacks the architecture: `no kernel image is available`."""
    natives = [
        native(f"{SITE}/a/lib/libgood.so", "a", gpu_code=code("sm_86", "sm_120")),
        native(f"{SITE}/a/lib/libbad.so", "a", gpu_code=code("sm_86")),
        native(f"{SITE}/a/lib/libptx.so", "a", gpu_code=code("sm_86", "compute_90")),
    ]
    found = inventory(Recipe([dist("a")], natives))
    (finding,) = of_rule(with_gpus(found, gpu("12.0")), "gpu.no-arch")
    assert (finding.file, finding.level, finding.dist) == (f"{SITE}/a/lib/libbad.so", "block", "a")
    assert "sm_86" in finding.evidence
    assert "sm_120" in finding.evidence
    assert of_rule(with_gpus(found, gpu("8.6")), "gpu.no-arch") == []
    assert of_rule(found, "gpu.no-arch") == []


def test_every_device_must_be_served() -> None:
    found = inventory(Recipe([dist("a")], [native(f"{SITE}/a/l.so", "a", gpu_code=code("sm_86"))]))
    (finding,) = of_rule(with_gpus(found, gpu("8.6"), gpu("12.0", 1)), "gpu.no-arch")
    assert "sm_86 (" not in finding.evidence


def test_a_file_for_another_architecture_beside_the_fitting_one_does_not_block() -> None:
    natives = [
        native(f"{SITE}/a/sm90/ops.abi3.so", "a", gpu_code=code("sm_90a")),
        native(f"{SITE}/a/sm100/ops.abi3.so", "a", gpu_code=code("sm_100a")),
    ]
    found = with_gpus(inventory(Recipe([dist("a")], natives)), gpu("9.0"))
    (finding,) = of_rule(found, "gpu.no-arch")
    assert (finding.level, finding.file) == ("info", f"{SITE}/a/sm100/ops.abi3.so")


def cuda(major: int) -> Inventory:
    runtime = native(f"{SITE}/nvidia/lib/libcudart.so.{major}", "nvidia-cuda-runtime", soname=f"libcudart.so.{major}")
    return inventory(Recipe([dist("nvidia-cuda-runtime")], [runtime]))


@pytest.mark.parametrize(
    ("major", "driver", "is_old"),
    [
        (13, "580.95.05", False),
        (13, "570.124.06", True),
        (12, "570.124.06", False),
        (12, "520.61.05", True),
        (13, "580.65.06", False),
    ],
)
def test_driver_too_old(major: int, driver: str, is_old: bool) -> None:
    found = of_rule(with_gpus(cuda(major), gpu(), driver=driver, cuda="12.8"), "gpu.driver-too-old")
    assert [f.level for f in found] == (["block"] if is_old else [])
    if is_old:
        assert found[0].dist == "nvidia-cuda-runtime"
        assert driver in found[0].evidence
        assert ("580.65.06" if major == 13 else "525.60.13") in found[0].remedy


def test_unhealthy_devices() -> None:
    dead = gpu("8.6", 1, health="unusable", health_detail="CUDA error 719")
    found = inventory(Recipe())
    (one,) = of_rule(with_gpus(found, gpu("8.6"), dead), "gpu.unhealthy")
    assert (one.level, "CUDA error 719" in one.evidence) == ("warn", True)
    (all_of_them,) = of_rule(with_gpus(found, dead), "gpu.unhealthy")
    assert all_of_them.level == "block"
    assert len(of_rule(with_gpus(found, gpu(ecc_uncorrected=3)), "gpu.unhealthy")) == 1
    assert of_rule(with_gpus(found, gpu()), "gpu.unhealthy") == []


def test_toolchain_of_jit_packages() -> None:
    flashinfer = [dist("flashinfer-python", top_level=("flashinfer",))]
    (finding,) = of_rule(with_gpus(inventory(Recipe(flashinfer)), gpu()), "gpu.toolchain")
    assert (finding.dist, "nvcc" in finding.evidence, "ninja" in finding.evidence) == ("flashinfer-python", True, True)
    tools = tuple(
        Tool(name=name, path=f"/usr/bin/{name}", version="1", is_on_path=True, how="test")
        for name in ("nvcc", "ninja", "g++")
    )
    complete = with_gpus(inventory(Recipe(flashinfer, host={"build_tools": tools})), gpu())
    assert of_rule(complete, "gpu.toolchain") == []
    assert of_rule(inventory(Recipe(flashinfer)), "gpu.toolchain") == []
