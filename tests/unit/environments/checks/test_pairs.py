"""pair.mismatch and abi.numpy-major."""

import pytest
from inventories import Recipe, dist, extension, inventory

from treegraft.environments.compatibility import check
from treegraft.environments.findings import Finding


def of_rule(recipe: Recipe, rule: str) -> list[Finding]:
    return [f for f in check(inventory(recipe)) if f.rule == rule]


@pytest.mark.parametrize(
    ("torch", "vision", "is_mismatch"),
    [
        ("2.11.0+cu130", "0.26.0+cu130", False),
        ("2.11.0+cu130", "0.26.1", False),
        ("2.11.0+cu130", "0.26.0+cu128", True),
        ("2.11.0", "0.25.0", True),
        ("2.10.0", "0.25.0", False),
        ("9.9.0", "0.25.0", False),  # a pair nobody has looked up
    ],
)
def test_torch_and_torchvision(torch: str, vision: str, is_mismatch: bool) -> None:
    found = of_rule(Recipe([dist("torch", torch), dist("torchvision", vision)]), "pair.mismatch")
    assert [(f.dist, f.level) for f in found] == ([("torchvision", "block")] if is_mismatch else [])


def test_flashinfer_companions() -> None:
    names = ("flashinfer-python", "flashinfer-cubin")
    same = [dist(n, "0.6.15", top_level=()) for n in names]
    assert of_rule(Recipe(same), "pair.mismatch") == []
    other = [same[0], dist("flashinfer-cubin", "0.6.14", top_level=())]
    (finding,) = of_rule(Recipe(other), "pair.mismatch")
    assert (finding.dist, finding.remedy) == ("flashinfer-cubin", "install flashinfer-cubin==0.6.15")


@pytest.mark.parametrize(
    ("numpy", "requires", "is_fault"),
    [
        ("2.4.0", "numpy<2", True),
        ("1.26.4", "numpy<2", False),
        ("2.4.0", "numpy>=1.23", False),
        ("2.4.0", "numpy<2.3", False),
    ],
)
def test_numpy_major(numpy: str, requires: str, is_fault: bool) -> None:
    recipe = Recipe([dist("a", requires=(requires,)), dist("numpy", numpy)], [extension("a")])
    assert [f.level for f in of_rule(recipe, "abi.numpy-major")] == (["block"] if is_fault else [])
    pure = Recipe([dist("a", requires=(requires,)), dist("numpy", numpy)])
    assert of_rule(pure, "abi.numpy-major") == []
