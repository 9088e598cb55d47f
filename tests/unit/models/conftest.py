"""One thread for all model tests, and a tiny Hugging Face model written by transformers itself."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def save_model(tmp_path: Path) -> Callable[..., torch.nn.Module]:
    """save_model(config, **save_options) -> the random transformers model saved in tmp_path / "model"."""
    from transformers import AutoModelForCausalLM, PreTrainedConfig

    def save(config: PreTrainedConfig, **options: object) -> torch.nn.Module:
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" in name or name.endswith("bias"):  # ones and zeros by default: would show nothing
                    parameter.add_(0.2 * torch.randn(parameter.shape))
        model.save_pretrained(tmp_path / "model", **options)
        return model

    return save


def require(module: str) -> None:
    """Skip without an oracle's package; where CI=true nothing of that kind is skipped."""
    import importlib.util
    import os

    if importlib.util.find_spec(module) is None:
        reason = f"{module} is not installed (pip install --no-deps {module})"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture
def dflash_oracle() -> type:
    require("dflash")
    from dflash.model import DFlashDraftModel

    return DFlashDraftModel
