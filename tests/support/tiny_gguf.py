"""Writes small GGUF files with the `gguf` package: a random model's tensors, and a byte-level BPE tokenizer."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def pairwise(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k in the order that Llama GGUF files have: the halves of a head interleaved."""
    rows = weight.shape[0] // heads
    pairs = [(pair, pair + rows // 2) for pair in range(rows // 2)]
    return weight[[head * rows + row for head in range(heads) for pair in pairs for row in pair]]


def write_model(
    path: Path,
    config: Any,
    tensors: dict[str, torch.Tensor],
    metadata: dict[str, Any] | None = None,
    quant: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    extra_tensors: dict[str, np.ndarray] | None = None,
) -> Path:
    """`config`: of transformers. `metadata` (whole numbers, floats, strings, lists) and tensors by their GGUF names
    come on top."""
    writer = gguf.GGUFWriter(path, config.model_type)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    for key, value in (metadata or {}).items():
        add(writer, key, value)
    for name, tensor in tensors.items():
        stem, _, ending = name.rpartition(".")
        values = tensor.detach().numpy().astype(np.float32)
        if stem in TOP_NAMES:
            own = TOP_NAMES[stem]
        else:
            _, _, layer, *rest = stem.split(".")
            own = f"blk.{layer}.{LAYER_NAMES['.'.join(rest)]}"
            heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
            if config.model_type == "llama" and own.split(".")[-1] in heads:
                values = pairwise(values, heads[own.split(".")[-1]])
        kind = quant if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(f"{own}.{ending}", gguf.quantize(values, kind), raw_dtype=kind)
    for name, values in (extra_tensors or {}).items():
        writer.add_tensor(name, values)
    return finish(writer, path)


def add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def finish(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
