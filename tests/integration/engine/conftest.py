import pytest
import torch
from tiny_models import TinyShape, write_drafter, write_target

from treegraft.engine.config import EngineConfig
from treegraft.engine.engine import Engine

SHAPE = TinyShape(scale=2.0)
DRAFTER_NORM = 0.2


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], scope="session")
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return request.param


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("models") / "target", SHAPE)


@pytest.fixture(scope="session")
def drafter(tmp_path_factory):
    return write_drafter(tmp_path_factory.mktemp("models") / "drafter", SHAPE, norm=DRAFTER_NORM)


@pytest.fixture(scope="session")
def make_engine(target, drafter, device):
    """make_engine(method, budget, **overrides) -> Engine over the tiny pair."""

    def make(method="ddtree", budget=48, **overrides):
        options = {
            "model": str(target),
            "drafter": None if method == "ar" else str(drafter),
            "method": method,
            "budget": None if method == "ar" else budget,
            "device": device,
            "dtype": "float32",
        }
        return Engine(EngineConfig(**(options | overrides)))

    return make


@pytest.fixture(scope="session")
def engines(make_engine):
    """The three methods over the same pair, shared by tests that leave them idle."""
    return {"ar": make_engine("ar"), "dflash": make_engine("dflash", None), "ddtree": make_engine("ddtree")}
