"""Rotary frequencies against transformers for more parameters than whole models are tested with."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from treegraft.models.config import RopeScaling
from treegraft.models.layers import Rope, rope_frequencies, rotate


@pytest.mark.parametrize("head_dim", [8, 64, 128])
@pytest.mark.parametrize("theta", [1e4, 5e5])
@pytest.mark.parametrize(
    ("scaling", "parameters"),
    [
        (RopeScaling("linear", 4.0), {"factor": 4.0}),
        (
            RopeScaling("llama3", 32.0, 8192, low_freq_factor=1.0, high_freq_factor=4.0),
            {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
        ),
        (RopeScaling("yarn", 4.0, 32768), {"factor": 4.0, "original_max_position_embeddings": 32768}),
        (
            RopeScaling("yarn", 8.0, 256, beta_fast=8.0, beta_slow=2.0, truncate=False),
            {
                "factor": 8.0,
                "original_max_position_embeddings": 256,
                "beta_fast": 8.0,
                "beta_slow": 2.0,
                "truncate": False,
            },
        ),
    ],
    ids=["linear", "llama3", "yarn", "yarn untruncated"],
)
def test_frequencies_equal_transformers(
    head_dim: int, theta: float, scaling: RopeScaling, parameters: dict[str, float]
) -> None:
    rope = {"rope_type": scaling.kind, "rope_theta": theta, **parameters}
    config = LlamaConfig(hidden_size=head_dim, num_attention_heads=1, rope_parameters=rope)
    expected, _ = ROPE_INIT_FUNCTIONS[scaling.kind](config, torch.device("cpu"))
    assert torch.allclose(rope_frequencies(head_dim, theta, scaling), expected, rtol=1e-5, atol=0)


def test_rotation_keeps_lengths_and_depends_on_distance_only() -> None:
    rope = Rope(16, 1e4, None, torch.device("cpu"))
    q, k = torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)

    def product(at: int, other: int) -> float:
        turned = [
            rotate(heads, *rope.angles(torch.tensor([[position]]), torch.float32))
            for heads, position in ((q, at), (k, other))
        ]
        assert turned[0].norm().item() == pytest.approx(q.norm().item(), rel=1e-5)
        return float((turned[0] * turned[1]).sum())

    assert product(5, 3) == pytest.approx(product(105, 103), abs=1e-4)
    assert product(5, 3) != pytest.approx(product(5, 4), abs=1e-4)
