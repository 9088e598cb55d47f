"""Who would provide what: shown by an inventory or a table, never guessed."""

import pytest
from inventories import SITE, Recipe, dist, inventory, native

from treegraft.environments.checks.providers import exporters, function_stem, runtime_remedy, soname_remedy
from treegraft.environments.loader.world import world_of

OTHER = inventory(
    Recipe(
        [dist("b", "2.0")],
        [native(f"{SITE}/b/libb.so.3", "b", soname="libb.so.3", exports=("f@@B_2.0", "f@B_1.0", "g"))],
    ),
    "a:/v",
)
WORLD = world_of(inventory(Recipe()), (OTHER,))


@pytest.mark.parametrize(
    ("symbol", "is_known"),
    [("g", True), ("f", True), ("f@B_2.0", True), ("f@B_1.0", True), ("f@B_3.0", False), ("gg", False)],
)
def test_exporters(symbol: str, is_known: bool) -> None:
    assert exporters(WORLD, symbol) == (["b 2.0 (a:/v)"] if is_known else [])


@pytest.mark.parametrize(
    ("mangled", "stem"),
    [
        ("_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib", "_ZN3c104cuda29c10_cuda_check_implementationE"),
        ("_ZNK2at6Tensor4sizeEl", "_ZNK2at6Tensor4sizeE"),
        ("_Z3fooi", "_Z3foo"),
        ("_ZN2at6TensorC1Ev", None),  # a constructor
        ("_ZNSt6vectorIiSaIiEE9push_backEOi", None),
        ("cudaMalloc", None),
    ],
)
def test_function_stem(mangled: str, stem: str | None) -> None:
    assert function_stem(mangled) == stem


def test_remedies() -> None:
    assert soname_remedy(WORLD, "libb.so.3") == "install b 2.0 (a:/v), which ships libb.so.3"
    assert "nvidia-cuda-runtime" in soname_remedy(WORLD, "libcudart.so.13")
    assert "on the host" in soname_remedy(WORLD, "libcuda.so.1")
    assert "RPATH" in soname_remedy(WORLD, "libnobody.so.9")
    assert "GCC 13.2" in runtime_remedy("GLIBCXX_3.4.32")
    assert "2.38 (Ubuntu 24.04, RHEL 10 or later)" in runtime_remedy("GLIBC_2.38")
    assert "LIBFOO_1.2" in runtime_remedy("LIBFOO_1.2")
