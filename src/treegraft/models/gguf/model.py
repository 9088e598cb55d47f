"""A GGUF file as a model: its metadata as ModelConfig, its tensors under their Hugging Face names.

Files of the Llama family hold q and k rows in the pairwise rotary layout; they are brought back to the half-split
layout here, so that nothing behind this file knows of it. No torch: values are NumPy arrays.
"""

import math
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from treegraft.errors import CheckpointError, UnsupportedModelError
from treegraft.models.config import Architecture, ModelConfig, RopeScaling
from treegraft.models.gguf.file import GGUFFile
from treegraft.models.json_fields import MAX_LAYERS

ARCHITECTURES = ("llama", "qwen2", "qwen3")
TENSOR_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
LAYER_TENSOR_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE_DIVISORS = "rope_freqs.weight"
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


class _Keys:
    """The metadata below one architecture's name; remembers what was used."""

    def __init__(self, file: GGUFFile, architecture: str) -> None:
        self.path, self.prefix = file.path, architecture + "."
        self.values = {k.removeprefix(self.prefix): v for k, v in file.metadata.items() if k.startswith(self.prefix)}
        self.used: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.used.add(key)
        return self.values.get(key, default)

    def count(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if not isinstance(value, int) or value < 1:
            raise CheckpointError(f"{self.path} has {self.prefix}{key} = {value!r}; expected a positive whole number")
        return value

    def finish(self) -> None:
        unknown = sorted(k for k, v in self.values.items() if k not in self.used and v not in (0, False, None))
        experts = [key for key in unknown if key.startswith("expert")]
        if experts:
            raise UnsupportedModelError(f"{self.path} is a mixture of experts ({self.prefix}{experts[0]}); dense only")
        if unknown:
            names = ", ".join(self.prefix + key for key in unknown)
            raise CheckpointError(f"{self.path} has unknown metadata {names}, which could change the model's output")


def model_config(file: GGUFFile) -> ModelConfig:
    """ModelConfig from metadata and tensor names (biases and a tied head show in what is there).

    Raises UnsupportedModelError for other architectures, CheckpointError for missing or unknown keys.
    """
    architecture = file.metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{file.path} is a GGUF of architecture {architecture!r}; supported: {', '.join(ARCHITECTURES)}"
        )
    keys = _Keys(file, architecture)
    num_layers, num_heads = keys.count("block_count"), keys.count("attention.head_count")
    if num_layers > MAX_LAYERS:
        raise CheckpointError(f"{file.path} has {keys.prefix}block_count = {num_layers}; expected at most {MAX_LAYERS}")
    hidden_size = keys.count("embedding_length")
    head_dim = keys.count("attention.key_length", hidden_size // num_heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if keys.get(key, head_dim) != head_dim:
            raise UnsupportedModelError(f"{file.path} has {keys.prefix}{key} = {keys.get(key)}; expected {head_dim}")
    embedding = file.tensors.get("token_embd.weight")
    rows = embedding.shape[0] if embedding is not None else 0
    num_tokens = len(file.metadata.get("tokenizer.ggml.tokens") or ()) or rows
    max_context = keys.count("context_length")
    config = ModelConfig(
        architecture=cast(Architecture, architecture),
        hidden_size=hidden_size,
        intermediate_size=keys.count("feed_forward_length"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=keys.count("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        vocab_size=keys.count("vocab_size", num_tokens),
        max_context=max_context,
        rms_norm_eps=float(keys.get("attention.layer_norm_rms_epsilon", 1e-6)),
        rope_theta=float(keys.get("rope.freq_base", 10000.0)),
        rope_scaling=_rope_scaling(file, keys, max_context),
        tie_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_gate.bias" in file.tensors,
        qk_norm=architecture == "qwen3",
        layer_windows=(None,) * num_layers,
        eos_token_ids=_end_token_ids(file),
        bos_token_id=file.metadata.get("tokenizer.ggml.bos_token_id"),
        torch_dtype="float32",
    )
    keys.finish()
    return config


def _end_token_ids(file: GGUFFile) -> tuple[int, ...]:
    found = [file.metadata.get(f"tokenizer.ggml.{key}") for key in END_KEYS]
    return tuple(dict.fromkeys(int(token_id) for token_id in found if token_id is not None))


def _rope_scaling(file: GGUFFile, keys: _Keys, max_context: int) -> RopeScaling | None:
    kind, factor = keys.get("rope.scaling.type", "none"), float(keys.get("rope.scaling.factor", 1.0))
    original = int(keys.get("rope.scaling.original_context_length", max_context))
    keys.get("rope.scaling.finetuned")
    if ROPE_DIVISORS in file.tensors:
        divisors = tuple(float(d) for d in file.read(ROPE_DIVISORS))
        return RopeScaling("llama3", factor, original, frequency_divisors=divisors)
    if kind == "none":
        return None
    if kind == "linear":
        return RopeScaling("linear", factor)
    if kind == "yarn":
        attention_factor = (0.1 * math.log(factor) + 1.0) * float(keys.get("rope.scaling.attn_factor", 1.0))
        return RopeScaling("yarn", factor, original, attention_factor=attention_factor)
    raise UnsupportedModelError(f"{file.path} has rope scaling {kind!r}; supported: none, linear, yarn")


def hugging_face_name(name: str) -> str:
    """model.layers.3.mlp.up_proj.weight for blk.3.ffn_up.weight; an unknown name comes back as it is."""
    stem, _, ending = name.rpartition(".")
    if stem in TENSOR_NAMES:
        return f"{TENSOR_NAMES[stem]}.{ending}"
    parts = stem.split(".")
    if len(parts) == 3 and parts[0] == "blk" and parts[2] in LAYER_TENSOR_NAMES:
        return f"model.layers.{parts[1]}.{LAYER_TENSOR_NAMES[parts[2]]}.{ending}"
    return name


def tensor_names(file: GGUFFile) -> dict[str, str]:
    """Hugging Face name -> GGUF name, the rope divisors (part of the config) left out."""
    return {hugging_face_name(name): name for name in file.tensors if name != ROPE_DIVISORS}


def read_tensor(file: GGUFFile, config: ModelConfig, gguf_name: str) -> npt.NDArray[np.float32]:
    """One tensor in float32 with q and k rows in the half-split rotary layout."""
    values = file.read(gguf_name)
    heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads}.get(gguf_name.split(".")[-2])
    if heads is None or config.architecture != "llama":
        return values
    # Row 2i + j of a head in the file is row i + j * D/2 of the half-split layout.
    pairs = values.reshape(heads, config.head_dim // 2, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
