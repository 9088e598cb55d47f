"""The drafter against the published module (PyPI dflash 0.1.0), over rounds with a growing context."""

from pathlib import Path
from typing import Any

import pytest
import torch
from model_feeding import draft, scattered_slots
from tiny_models import TinyShape, write_drafter, write_target
from transformers import DynamicCache, Qwen3Config

from treegraft.models.attention import BlockInputs
from treegraft.models.drafter_block import DrafterModel
from treegraft.models.registry import ModelFiles, load_drafter, load_target

SHAPE = TinyShape(num_layers=4, tie_embeddings=False)
SIZES: dict[str, Any] = {
    "vocab_size": SHAPE.vocab_size,
    "hidden_size": SHAPE.hidden_size,
    "intermediate_size": SHAPE.intermediate_size,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "num_target_layers": 4,
    "block_size": 6,
    "initializer_range": 0.2,
    "architectures": ["DFlashDraftModel"],
    "dflash_config": {"mask_token_id": 23, "target_layer_ids": [1, 3]},
}
MIXED = ["full_attention", "sliding_attention", "full_attention"]
SLIDING = {"use_sliding_window": True, "sliding_window": 5, "layer_types": MIXED}
VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "biases": {"attention_bias": True},
    "sliding, causal as published": SLIDING,
    "sliding, not causal": {**SLIDING, "is_causal": False},
    "sliding layers without a window": {**SLIDING, "use_sliding_window": False},
    "all causal": {"is_causal": True},
    "yarn": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 100.0,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
}


def save_pair(folder: Path, oracle: type, variant: dict[str, Any]) -> tuple[Any, DrafterModel]:
    """The published module with random weights, and ours loaded from the folder it saved."""
    torch.manual_seed(1)
    module = oracle(Qwen3Config(**{**SIZES, **variant}, attn_implementation="sdpa")).eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(0.2 * torch.randn(parameter.shape))
    module.save_pretrained(folder / "drafter")
    return module, load_ours(folder, write_target(folder / "target", SHAPE), folder / "drafter")


def load_ours(_folder: Path, target_folder: Path, drafter_folder: Path) -> DrafterModel:
    target = load_target(ModelFiles("folder", target_folder, "target"), torch.float32, "cpu")
    return load_drafter(ModelFiles("folder", drafter_folder, "drafter"), target, torch.float32, "cpu")


@pytest.mark.parametrize("variant", VARIANTS)
def test_hidden_equals_the_published_module_round_after_round(
    variant: str, dflash_oracle: type, tmp_path: Path
) -> None:
    module, ours = save_pair(tmp_path, dflash_oracle, VARIANTS[variant])
    generator = torch.Generator().manual_seed(2)
    cache, slots, kv = DynamicCache(), scattered_slots(2, 48, 128), ours.allocate_pool(128)
    start = 0
    with torch.inference_mode():
        for committed in (9, 1, 4, 6, 2):
            tapped = torch.randn(2, committed, 64, generator=generator)
            last = torch.randint(23, (2,), generator=generator)
            block = torch.full((2, 6), 23)
            block[:, 0] = last
            expected = module(
                target_hidden=tapped,
                noise_embedding=ours.target.embed(block),
                position_ids=torch.arange(start, start + committed + 6).expand(2, -1),
                past_key_values=cache,
                use_cache=True,
            )
            positions = torch.arange(start, start + committed).expand(2, -1)
            ours.write_context(tapped, positions, slots[:, start : start + committed], kv)
            start += committed
            cache.crop(start)
            hidden = draft(ours, last, start, kv, slots, width=6)
            assert (hidden - expected).abs().max() < 1e-4, f"context of {start}"


def test_context_written_in_pieces_equals_context_written_at_once(dflash_oracle: type, tmp_path: Path) -> None:
    _, ours = save_pair(tmp_path, dflash_oracle, SLIDING)
    tapped, slots = torch.randn(1, 20, 64), scattered_slots(1, 20, 32)
    positions = torch.arange(20)[None]
    whole, pieces = ours.allocate_pool(32), ours.allocate_pool(32)
    with torch.inference_mode():
        ours.write_context(tapped, positions, slots, whole)
        for start, end in ((0, 1), (1, 8), (8, 20)):
            ours.write_context(tapped[:, start:end], positions[:, start:end], slots[:, start:end], pieces)
    assert (whole.keys - pieces.keys).abs().max() < 1e-5
    assert (whole.values - pieces.values).abs().max() < 1e-5


def test_masked_context_and_no_context_are_the_same(tmp_path: Path) -> None:
    target_folder = write_target(tmp_path / "target", SHAPE)
    ours = load_ours(tmp_path, target_folder, write_drafter(tmp_path / "drafter", SHAPE))
    kv = ours.allocate_pool(8)
    last, positions = torch.tensor([3]), torch.arange(5)[None]
    none = torch.zeros(1, 0, dtype=torch.int64)
    slots = torch.arange(1, 4)[None]
    with torch.inference_mode():
        empty = ours.forward(last, BlockInputs(positions, none, none, none.bool()), kv)
        ours.write_context(torch.randn(1, 3, 64), torch.arange(3)[None], slots, kv)
        hidden_context = BlockInputs(positions, slots, torch.arange(3)[None], torch.zeros(1, 3, dtype=torch.bool))
        masked = ours.forward(last, hidden_context, kv)
    assert (empty - masked).abs().max() < 1e-5
    assert ours.logits(empty).shape == (1, 5, SHAPE.vocab_size)


def test_a_block_in_a_batch_equals_the_block_alone(tmp_path: Path) -> None:
    target_folder = write_target(tmp_path / "target", SHAPE)
    ours = load_ours(tmp_path, target_folder, write_drafter(tmp_path / "drafter", SHAPE))
    kv, slots = ours.allocate_pool(32), scattered_slots(2, 12, 32)
    with torch.inference_mode():
        ours.write_context(torch.randn(2, 12, 64), torch.arange(12).expand(2, -1), slots, kv)
        alone = draft(ours, torch.tensor([4]), 7, kv, slots[:1], width=5)
        # The first has 7 committed tokens, the second 12: the first is padded with scratch.
        context = slots.clone()
        context[0, 7:] = 0
        lengths = torch.tensor([[7], [12]])
        inputs = BlockInputs(
            positions=lengths + torch.arange(5),
            context_slots=context,
            context_positions=torch.arange(12).expand(2, -1),
            context_mask=torch.arange(12) < lengths,
        )
        together = ours.forward(torch.tensor([4, 9]), inputs, kv)
    assert (together[0] - alone[0]).abs().max() < 1e-5


def test_scales_and_softcap_of_the_published_config_apply(dflash_oracle: type, tmp_path: Path) -> None:
    extra = {"input_embedding_scale": 3.0, "output_multiplier": 0.5, "final_logit_softcapping": 2.0}
    module, ours = save_pair(tmp_path, dflash_oracle, {"dflash_config": {**SIZES["dflash_config"], **extra}})
    hidden = torch.randn(2, 5, 32)
    head = torch.nn.Linear(32, 24, bias=False)
    with torch.inference_mode():
        head.weight.copy_(ours.target.head.weight)
        expected = module.compute_logits(hidden, head)
        assert (ours.logits(hidden) - expected).abs().max() < 1e-5
        block = torch.full((1, 6), 23)
        block[:, 0] = 4
        scaled = module(
            target_hidden=torch.zeros(1, 0, 64),
            noise_embedding=3.0 * ours.target.embed(block),
            position_ids=torch.arange(6)[None],
        )
        mine = draft(ours, torch.tensor([4]), 0, ours.allocate_pool(2), torch.zeros(1, 0, dtype=torch.int64), width=6)
    assert (mine - scaled).abs().max() < 1e-4
