"""GGUF files as models: logits equal to those of the folder they were made from, faults named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
import tiny_gguf
import torch
from model_feeding import allocate, feed, scattered_slots
from transformers import LlamaConfig, Qwen2Config, Qwen3Config

from treegraft.errors import CheckpointError, ModelError, UnsupportedModelError
from treegraft.models.registry import ModelFiles, check_target, load_config, load_target, load_tokenizer

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
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
SaveModel = Callable[..., torch.nn.Module]


def logits(files: ModelFiles, token_ids: torch.Tensor) -> torch.Tensor:
    target = load_target(files, torch.float32, "cpu")
    count = token_ids.shape[1]
    return target.logits(feed(target, token_ids, allocate(target, 32), scattered_slots(1, count, 32), [count]).hidden)


def weights(model: torch.nn.Module, tied: bool) -> dict[str, torch.Tensor]:
    return {k: v for k, v in model.state_dict().items() if not (tied and k == "lm_head.weight")}


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SIZES),
        LlamaConfig(**SIZES, tie_word_embeddings=True),
        Qwen2Config(**SIZES),
        Qwen3Config(**SIZES, head_dim=16),
    ],
    ids=["llama", "llama tied", "qwen2", "qwen3"],
)
def test_logits_equal_transformers(config: Any, save_model: SaveModel, tmp_path: Path) -> None:
    reference = save_model(config)
    path = tiny_gguf.write_model(tmp_path / "m.gguf", config, weights(reference, config.tie_word_embeddings))
    token_ids = torch.randint(64, (1, 20))
    with torch.inference_mode():
        expected = reference(token_ids).logits
    assert (logits(ModelFiles("gguf", path, "m"), token_ids) - expected).abs().max() < 1e-4


def test_llama3_divisors_are_read_from_their_tensor(save_model: SaveModel, tmp_path: Path) -> None:
    reference = save_model(LlamaConfig(**SIZES, rope_parameters=LLAMA3))
    inv_freq = reference.model.rotary_emb.inv_freq
    plain = 500.0 ** -(torch.arange(0, 16, 2) / 16)
    divisors = plain / inv_freq
    assert divisors.max() > 1.5  # the scaling shows
    path = tiny_gguf.write_model(
        tmp_path / "m.gguf",
        reference.config,
        weights(reference, tied=False),
        extra_tensors={"rope_freqs.weight": divisors.float().numpy()},
    )
    token_ids = torch.randint(64, (1, 20))
    with torch.inference_mode():
        expected = reference(token_ids).logits
    assert (logits(ModelFiles("gguf", path, "m"), token_ids) - expected).abs().max() < 1e-4


@pytest.mark.parametrize("quant", ["F16", "Q8_0", "Q4_1", "BF16"])
def test_quantised_tensors_are_near_what_they_were_made_from(quant: str, save_model: SaveModel, tmp_path: Path) -> None:
    reference = save_model(LlamaConfig(**SIZES))
    kind = gguf.GGMLQuantizationType[quant]
    path = tiny_gguf.write_model(tmp_path / "m.gguf", reference.config, weights(reference, tied=False), quant=kind)
    target = load_target(ModelFiles("gguf", path, "m"), torch.float32, "cpu")
    wanted = reference.state_dict()["model.layers.1.mlp.down_proj.weight"]
    error = (target.layers[1].down.weight - wanted).abs().max() / wanted.abs().max()
    assert error < {"F16": 1e-3, "BF16": 5e-3, "Q8_0": 1e-2, "Q4_1": 0.1}[quant]
    assert target.head.weight.shape == (64, 64)


def write(tmp_path: Path, metadata: dict[str, Any], drop: str | None = None) -> ModelFiles:
    config = LlamaConfig(**SIZES)
    model = {
        "model.embed_tokens.weight": torch.ones(64, 64),
        "model.norm.weight": torch.ones(64),
        "lm_head.weight": torch.ones(64, 64),
    }
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        model |= {prefix + f"{n}_layernorm.weight": torch.ones(64) for n in ("input", "post_attention")}
        model |= {prefix + f"self_attn.{n}_proj.weight": torch.ones(64, 64) for n in ("q", "o")}
        model |= {prefix + f"self_attn.{n}_proj.weight": torch.ones(32, 64) for n in ("k", "v")}
        model |= {prefix + f"mlp.{n}_proj.weight": torch.ones(96, 64) for n in ("gate", "up")}
        model[prefix + "mlp.down_proj.weight"] = torch.ones(64, 96)
    if drop is not None:
        del model[drop]
    return ModelFiles("gguf", tiny_gguf.write_model(tmp_path / "m.gguf", config, model, metadata), "m")


@pytest.mark.parametrize(
    ("metadata", "error", "words"),
    [
        ({"llama.expert_count": 8}, UnsupportedModelError, "mixture of experts"),
        ({"llama.logit_scale": 2.0}, CheckpointError, "llama.logit_scale"),
        ({"llama.rope.scaling.type": "longrope"}, UnsupportedModelError, "'longrope'"),
        ({"llama.rope.dimension_count": 8}, UnsupportedModelError, "rope.dimension_count = 8"),
    ],
)
def test_metadata_that_cannot_be_served_is_named(
    tmp_path: Path, metadata: dict[str, Any], error: type[ModelError], words: str
) -> None:
    with pytest.raises(error) as caught:
        load_config(write(tmp_path, metadata))
    assert words in str(caught.value)


def test_linear_and_yarn_scaling_and_end_tokens_are_read(tmp_path: Path) -> None:
    linear = load_config(write(tmp_path, {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}))
    assert linear.rope_scaling is not None
    assert (linear.rope_scaling.kind, linear.rope_scaling.factor) == ("linear", 2.0)
    metadata = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 16,
        "tokenizer.ggml.eos_token_id": 5,
        "tokenizer.ggml.eot_token_id": 9,
    }
    yarn = load_config(write(tmp_path, metadata))
    assert yarn.rope_scaling is not None
    assert yarn.rope_scaling.original_max_context == 16
    assert yarn.rope_scaling.attention_factor == pytest.approx(1.1386, abs=1e-4)
    assert yarn.eos_token_ids == (5, 9)


def test_a_missing_tensor_is_named_and_a_file_without_tokenizer_serves_ids(tmp_path: Path) -> None:
    files = write(tmp_path, {}, drop="model.layers.1.mlp.up_proj.weight")
    with pytest.raises(CheckpointError, match=r"missing tensor\(s\) model\.layers\.1\.mlp\.up_proj\.weight"):
        check_target(files, load_config(files))
    assert load_tokenizer(files) is None


def test_another_architecture_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    path = tiny_gguf.finish(writer, tmp_path / "m.gguf")
    with pytest.raises(UnsupportedModelError, match="'mamba'"):
        load_config(ModelFiles("gguf", path, "m"))


def test_cut_and_foreign_files_are_named(tmp_path: Path) -> None:
    whole = write(tmp_path, {}).path.read_bytes()
    for content, words in (
        (whole[:-1000], "cut short"),
        (whole[:200], "broken or truncated GGUF header"),
        (b"GGML" + whole[4:], "no GGUF file"),
        (b"", "no GGUF file"),
        (whole[:4] + b"\x09" + whole[5:], "GGUF version 9"),
    ):
        path = tmp_path / "cut.gguf"
        path.write_bytes(content)
        with pytest.raises(ModelError, match=words):
            load_config(ModelFiles("gguf", path, "m"))
