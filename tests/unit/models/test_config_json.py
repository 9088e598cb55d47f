"""Every config key is used, known to be harmless, or refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from treegraft.errors import CheckpointError, DrafterError, ModelError, UnsupportedModelError
from treegraft.models.config import RopeScaling
from treegraft.models.config_json import read_drafter_config, read_target_config

BASE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}
LLAMA = {**BASE, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}
QWEN2 = {**BASE, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
QWEN3 = {**BASE, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 16}
DRAFTER = {
    **BASE,
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "block_size": 8,
    "num_target_layers": 6,
    "dflash_config": {"mask_token_id": 49, "target_layer_ids": [1, 4]},
}


def write(folder: Path, document: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(document))
    return folder


def test_both_spellings_of_rope_and_dtype_are_read(tmp_path: Path) -> None:
    older = {**LLAMA, "rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}, "torch_dtype": "bfloat16"}
    parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}
    newer = {**LLAMA, "rope_parameters": parameters, "dtype": "bfloat16"}
    first, second = (read_target_config(write(tmp_path, document)) for document in (older, newer))
    assert first == second
    assert first.rope_theta == 500.0
    assert first.rope_scaling == RopeScaling("linear", 2.0)
    assert first.torch_dtype == "bfloat16"


def test_architectures_differ_in_their_flags_only(tmp_path: Path) -> None:
    biases = {"attention_bias": True}
    llama = read_target_config(write(tmp_path, {**LLAMA, **biases, "mlp_bias": True}))
    assert (llama.qkv_bias, llama.output_bias, llama.mlp_bias, llama.qk_norm) == (True, True, True, False)
    qwen2 = read_target_config(write(tmp_path, QWEN2))
    assert (qwen2.qkv_bias, qwen2.output_bias, qwen2.mlp_bias, qwen2.qk_norm) == (True, False, False, False)
    qwen3 = read_target_config(write(tmp_path, {**QWEN3, **biases}))
    assert (qwen3.qkv_bias, qwen3.output_bias, qwen3.mlp_bias, qwen3.qk_norm) == (True, True, False, True)
    assert (llama.head_dim, qwen3.head_dim) == (8, 16)


def test_windows_from_layer_types_or_from_max_window_layers(tmp_path: Path) -> None:
    sliding = {**QWEN2, "use_sliding_window": True, "sliding_window": 7}
    assert read_target_config(write(tmp_path, {**sliding, "max_window_layers": 2})).layer_windows == (None, None, 7)
    types = ["sliding_attention", "full_attention", "sliding_attention"]
    assert read_target_config(write(tmp_path, {**sliding, "layer_types": types})).layer_windows == (7, None, 7)
    off = {**sliding, "use_sliding_window": False, "max_window_layers": 1}
    assert read_target_config(write(tmp_path, off)).layer_windows == (None, None, None)


def test_end_tokens_come_from_both_files(tmp_path: Path) -> None:
    write(tmp_path, {**LLAMA, "eos_token_id": 2})
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 2, 9], "top_p": 0.9}))
    assert read_target_config(tmp_path).eos_token_ids == (2, 7, 9)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"logit_scale": 2.0}, CheckpointError, "logit_scale"),
        ({"zeta": None, "alpha": 1}, CheckpointError, "alpha, zeta"),
        ({"sliding_window": 4}, CheckpointError, "sliding_window"),  # Llama has none: nobody would apply it
        ({"auto_map": {"AutoModel": "code.Model"}}, CheckpointError, "auto_map"),
        ({"hidden_act": "gelu"}, UnsupportedModelError, "hidden_act = 'gelu'"),
        ({"quantization_config": {"bits": 4}}, UnsupportedModelError, "quantization_config"),
        ({"partial_rotary_factor": 0.5}, UnsupportedModelError, "partial_rotary_factor"),
        ({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe"}, UnsupportedModelError, "Qwen3Moe"),
        ({"architectures": ["MambaForCausalLM"]}, UnsupportedModelError, "MambaForCausalLM"),
        ({"model_type": "qwen2"}, UnsupportedModelError, "model_type 'qwen2'"),
        ({"architectures": ["DFlashDraftModel"]}, UnsupportedModelError, "--drafter"),
        ({"hidden_size": None}, CheckpointError, "hidden_size = None"),
        ({"hidden_size": "32"}, CheckpointError, "hidden_size = '32'"),
        ({"num_hidden_layers": 0}, CheckpointError, "num_hidden_layers = 0"),
        ({"num_hidden_layers": True}, CheckpointError, "num_hidden_layers = True"),
        ({"num_key_value_heads": 3}, CheckpointError, "num_key_value_heads = 3"),
        ({"head_dim": 7}, CheckpointError, "head_dim = 7"),
        ({"rms_norm_eps": -1}, CheckpointError, "rms_norm_eps = -1"),
        ({"eos_token_id": "</s>"}, CheckpointError, "eos_token_id"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, UnsupportedModelError, "'dynamic'"),
        ({"rope_scaling": {"type": "linear"}}, CheckpointError, "factor"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "odd": 1}}, CheckpointError, "odd"),
        ({"rope_scaling": "linear"}, CheckpointError, "rope_scaling = 'linear'"),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"}},
            CheckpointError,
            "rope_scaling and rope_parameters",
        ),
    ],
)
def test_what_cannot_be_served_is_named(
    tmp_path: Path, change: dict[str, Any], error: type[ModelError], words: str
) -> None:
    with pytest.raises(error) as caught:
        read_target_config(write(tmp_path, {**LLAMA, **change}))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    with pytest.raises(CheckpointError, match=f"no key '{key}'"):
        read_target_config(write(tmp_path, {k: v for k, v in LLAMA.items() if k != key}))


@pytest.mark.parametrize("text", ["{", "[]", "\xff"])
def test_a_config_that_is_no_json_object_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"config\.json") as caught:
        read_target_config(tmp_path)
    assert "\n" not in str(caught.value)


def test_sliding_layers_without_sliding_switched_on_are_refused(tmp_path: Path) -> None:
    document = {**QWEN2, "layer_types": ["full_attention"] * 2 + ["sliding_attention"], "sliding_window": 4}
    with pytest.raises(CheckpointError, match="use_sliding_window"):
        read_target_config(write(tmp_path, document))


def test_a_drafter_in_the_published_layout(tmp_path: Path) -> None:
    published = {
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
        "layer_types": ["full_attention"] * 3,
        "max_window_layers": 3,
        "sliding_window": None,
        "use_sliding_window": False,
    }
    config = read_drafter_config(write(tmp_path, {**DRAFTER, **published}))
    assert (config.block_size, config.mask_token_id, config.target_layer_ids) == (8, 49, (1, 4))
    assert config.is_causal == (False, False, False)
    assert config.head is None
    assert not config.int8_at_rest


def test_taps_and_mask_may_stand_at_the_top(tmp_path: Path) -> None:
    document = {k: v for k, v in DRAFTER.items() if k != "dflash_config"}
    config = read_drafter_config(write(tmp_path, {**document, "mask_token_id": 5, "target_layer_ids": [0]}))
    assert (config.mask_token_id, config.target_layer_ids) == (5, (0,))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"architectures": ["DFlash2DraftModel"]}, UnsupportedModelError, "DFlash2"),
        ({"dflash_config": {**DRAFTER["dflash_config"], "selector_rank": 8}}, UnsupportedModelError, "DFlash2"),
        ({"architectures": ["LlamaForCausalLM"], "dflash_config": None}, DrafterError, "LlamaForCausalLM"),
        ({"dflash_config": {"mask_token_id": 49, "target_layer_ids": [1, 6]}}, CheckpointError, "[1, 6]"),
        ({"dflash_config": {"mask_token_id": 50, "target_layer_ids": [1]}}, CheckpointError, "mask_token_id = 50"),
        ({"dflash_config": {"target_layer_ids": [1]}}, CheckpointError, "mask_token_id"),
        ({"dflash_config": {**DRAFTER["dflash_config"], "odd": 1}}, CheckpointError, "odd"),
        ({"block_size": 1}, CheckpointError, "block_size = 1"),
        ({"num_target_layers": None}, CheckpointError, "num_target_layers"),
        ({"treegraft_weights": "int3"}, CheckpointError, "treegraft_weights = 'int3'"),
        ({"treegraft_extra": 1}, CheckpointError, "treegraft_extra"),
    ],
)
def test_a_drafter_that_cannot_work_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], error: type[ModelError], words: str
) -> None:
    with pytest.raises(error) as caught:
        read_drafter_config(write(tmp_path, {**DRAFTER, **change}))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
