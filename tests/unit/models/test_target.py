"""Logits and taps against transformers, in fp32, with and without what lies in the pool already."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from model_feeding import allocate, causal_inputs, feed, scattered_slots
from transformers import LlamaConfig, Qwen2Config, Qwen3Config

from treegraft.models.attention import AttentionInputs
from treegraft.models.registry import ModelFiles, load_target
from treegraft.models.target import TargetModel

SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "attn_implementation": "eager",
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 32}
SLIDING = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
CONFIGS = {
    "llama": lambda: LlamaConfig(**SIZES),
    "llama tied": lambda: LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama biases": lambda: LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama wide heads": lambda: LlamaConfig(**SIZES, head_dim=12),
    "llama all heads": lambda: LlamaConfig(**{**SIZES, "num_key_value_heads": 4}),
    "llama rope llama3": lambda: LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "llama rope linear": lambda: LlamaConfig(
        **SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}
    ),
    "llama rope yarn": lambda: LlamaConfig(**SIZES, rope_parameters=YARN),
    "llama rope yarn mscale": lambda: LlamaConfig(
        **SIZES, rope_parameters={**YARN, "mscale": 1.0, "mscale_all_dim": 0.7, "beta_fast": 16, "truncate": False}
    ),
    "qwen2": lambda: Qwen2Config(**SIZES),
    "qwen2 sliding": lambda: Qwen2Config(**SIZES, **SLIDING),
    "qwen3": lambda: Qwen3Config(**SIZES, head_dim=16),
    "qwen3 biases sliding": lambda: Qwen3Config(**SIZES, **SLIDING, head_dim=16, attention_bias=True),
}
CHUNKINGS = ([24], [1] * 24, [7, 7, 7, 3], [11, 1, 12])
TAPS = (2, 0)

SaveModel = Callable[..., torch.nn.Module]


def load(folder: Path, dtype: torch.dtype = torch.float32) -> TargetModel:
    return load_target(ModelFiles("folder", folder, "tiny"), dtype, "cpu")


def random_ids(batch: int, length: int, vocab_size: int = 61) -> torch.Tensor:
    return torch.randint(vocab_size, (batch, length), generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_transformers(name: str, save_model: SaveModel, tmp_path: Path) -> None:
    reference = save_model(CONFIGS[name]())
    target = load(tmp_path / "model")
    token_ids = random_ids(2, 24)
    with torch.inference_mode():
        expected = reference(token_ids, output_hidden_states=True)
    tapped = torch.cat([expected.hidden_states[tap + 1] for tap in (0, 1)], -1)
    for chunks in CHUNKINGS:
        slots = scattered_slots(2, 24, 64)
        output = feed(target, token_ids, allocate(target, 64), slots, chunks, (0, 1))
        assert (target.logits(output.hidden) - expected.logits).abs().max() < 1e-4, chunks
        assert output.tapped is not None
        assert (output.tapped - tapped).abs().max() < 1e-4


def test_taps_keep_their_order_and_the_last_layer_comes_before_the_final_norm(
    save_model: SaveModel, tmp_path: Path
) -> None:
    save_model(LlamaConfig(**SIZES))
    target = load(tmp_path / "model")
    token_ids, slots = random_ids(1, 6), scattered_slots(1, 6, 16)
    output = feed(target, token_ids, allocate(target, 16), slots, [6], TAPS)
    single = {tap: feed(target, token_ids, allocate(target, 16), slots, [6], (tap,)).tapped for tap in TAPS}
    assert output.tapped is not None
    assert torch.equal(output.tapped, torch.cat([single[2], single[0]], -1))
    normed = torch.nn.functional.rms_norm(single[2], (32,), target.final_norm, target.config.rms_norm_eps)
    assert torch.equal(normed, output.hidden)


def test_a_sequence_in_a_batch_is_not_changed_by_its_neighbours_or_padding(
    save_model: SaveModel, tmp_path: Path
) -> None:
    save_model(Qwen2Config(**SIZES, **SLIDING))
    target = load(tmp_path / "model")
    token_ids, slots = random_ids(3, 9), scattered_slots(3, 9, 64)
    alone = feed(target, token_ids[:1], allocate(target, 64), slots[:1], [9]).hidden
    whole = causal_inputs(slots, 0, 9)
    mask, write_slots = whole.mask.clone(), whole.write_slots.clone()
    mask[2] = False  # a padding sequence: sees nothing, writes to scratch
    write_slots[2] = 0
    inputs = AttentionInputs(whole.positions, write_slots, whole.context_slots, whole.key_positions, mask)
    with torch.inference_mode():
        together = target.forward(token_ids, inputs, allocate(target, 64)).hidden
    assert (together[0] - alone[0]).abs().max() < 1e-5
    assert torch.isfinite(together).all()


def test_a_tree_row_equals_its_path_run_as_a_plain_sequence(save_model: SaveModel, tmp_path: Path) -> None:
    save_model(Qwen3Config(**SIZES, **SLIDING))
    target = load(tmp_path / "model")
    context, slots = random_ids(1, 10), scattered_slots(1, 20, 32)
    kv = allocate(target, 32)
    feed(target, context, kv, slots, [10])
    # Root 5 at position 10; two branches: root -> 8 -> 3 and root -> 9.
    tree, parents, depths = [5, 8, 9, 3], [-1, 0, 0, 1], [0, 1, 1, 2]
    paths = {1: [5, 8], 2: [5, 9], 3: [5, 8, 3]}
    mask = torch.zeros(4, 14, dtype=torch.bool)
    mask[:, :10] = True
    for row in range(4):
        node = row
        while node >= 0:
            mask[row, 10 + node] = True
            node = parents[node]
    positions = torch.tensor([[10 + depth for depth in depths]])
    inputs = AttentionInputs(
        positions=positions,
        write_slots=slots[:, 10:14],
        context_slots=slots[:, :14],
        key_positions=torch.cat([torch.arange(10)[None], positions], 1),
        mask=mask[None],
    )
    with torch.inference_mode():
        rows = target.forward(torch.tensor([tree]), inputs, kv).hidden[0]
    for row, path in paths.items():
        plain = torch.cat([context, torch.tensor([path])], 1)
        count = plain.shape[1]
        expected = feed(target, plain, allocate(target, 32), scattered_slots(1, count, 32, 3), [count]).hidden[0, -1]
        assert (rows[row] - expected).abs().max() < 1e-5


def test_padded_vocabulary_rows_are_cut_from_logits(save_model: SaveModel, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save_model(LlamaConfig(**SIZES))
    file = tmp_path / "model" / "model.safetensors"
    plain = load(tmp_path / "model")
    tensors = load_file(file)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = torch.cat([tensors[name], torch.full((3, 32), 9.0)])
    save_file(tensors, file)
    padded = load(tmp_path / "model")
    hidden = torch.randn(2, 32)
    assert padded.logits(hidden).shape == (2, 61)
    assert torch.equal(padded.logits(hidden), plain.logits(hidden))


def test_bfloat16_runs_and_is_near(save_model: SaveModel, tmp_path: Path) -> None:
    save_model(LlamaConfig(**SIZES))
    token_ids, slots = random_ids(1, 12), scattered_slots(1, 12, 16)
    logits = {}
    for dtype in (torch.float32, torch.bfloat16):
        target = load(tmp_path / "model", dtype)
        assert target.dtype == dtype
        logits[dtype] = target.logits(feed(target, token_ids, allocate(target, 16), slots, [12]).hidden)
        assert logits[dtype].dtype == torch.float32
    spread = logits[torch.float32].std()
    assert (logits[torch.float32] - logits[torch.bfloat16]).abs().mean() < 0.05 * spread
