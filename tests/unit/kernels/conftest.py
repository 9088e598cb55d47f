import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(params=["cpu path", "device path"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways through a kernel, on CPU tensors: the one that looks at values and the one that may not."""
    if request.param == "device path":
        for module in ("candidates", "sampling"):
            monkeypatch.setattr(f"treegraft.kernels.{module}.can_wait", lambda _: False)
    return str(request.param)
