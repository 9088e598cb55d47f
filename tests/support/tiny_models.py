"""Tiny random targets and DFlash drafters as real folders (config.json + safetensors), deterministic by seed.

With a vocabulary of a few tokens the wide tree of a random, undecided drafter (`norm` well below 1) is often right, so
that acceptance, scattered paths and rejections all happen. A target of scale 0.6 says one token for ever; one of scale
2 wanders through its vocabulary and minds what it read where.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file


@dataclass(frozen=True)
class TinyShape:
    architecture: str = "llama"
    vocab_size: int = 24
    hidden_size: int = 32
    intermediate_size: int = 48
    num_layers: int = 3
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 8
    max_context: int = 512
    tie_embeddings: bool = True
    sliding_window: int | None = None
    eos_token_id: int | None = None
    seed: int = 0
    # Larger: sharper distributions, so that texts at T = 0 wander less into ties.
    scale: float = 0.6


def _layer_tensors(
    prefix: str, shape: TinyShape, generator: torch.Generator, has_qk_norm: bool
) -> dict[str, torch.Tensor]:
    def random(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator) * shape.scale / size[-1] ** 0.5 * 2

    hidden, heads, kv = (
        shape.hidden_size,
        shape.num_heads * shape.head_dim,
        shape.num_kv_heads * shape.head_dim,
    )
    tensors = {
        "input_layernorm.weight": 1 + 0.1 * torch.randn(hidden, generator=generator),
        "post_attention_layernorm.weight": 1 + 0.1 * torch.randn(hidden, generator=generator),
        "self_attn.q_proj.weight": random(heads, hidden),
        "self_attn.k_proj.weight": random(kv, hidden),
        "self_attn.v_proj.weight": random(kv, hidden),
        "self_attn.o_proj.weight": random(hidden, heads),
        "mlp.gate_proj.weight": random(shape.intermediate_size, hidden),
        "mlp.up_proj.weight": random(shape.intermediate_size, hidden),
        "mlp.down_proj.weight": random(hidden, shape.intermediate_size),
    }
    if has_qk_norm:
        tensors["self_attn.q_norm.weight"] = torch.ones(shape.head_dim)
        tensors["self_attn.k_norm.weight"] = torch.ones(shape.head_dim)
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def write_target(folder: Path, shape: TinyShape) -> Path:
    """A Hugging Face folder with random weights and no tokenizer."""
    assert shape.architecture in ("llama", "qwen3")
    generator = torch.Generator().manual_seed(shape.seed)
    tensors = {"model.embed_tokens.weight": torch.randn(shape.vocab_size, shape.hidden_size, generator=generator)}
    for layer in range(shape.num_layers):
        tensors |= _layer_tensors(f"model.layers.{layer}", shape, generator, shape.architecture == "qwen3")
    tensors["model.norm.weight"] = torch.ones(shape.hidden_size)
    if not shape.tie_embeddings:
        tensors["lm_head.weight"] = torch.randn(shape.vocab_size, shape.hidden_size, generator=generator)
    name = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}[shape.architecture]
    config = _config(shape) | {"architectures": [name], "model_type": shape.architecture}
    if shape.eos_token_id is not None:
        config["eos_token_id"] = shape.eos_token_id
    return _write(folder, config, tensors)


def write_drafter(
    folder: Path, target: TinyShape, block_size: int = 5, num_layers: int = 2, seed: int = 1, norm: float = 1.0
) -> Path:
    """A random DFlash drafter for `target`, in the published layout; mask token: the vocabulary's last. norm: weight of
    its final norm, by which its logits shrink."""
    shape = replace(target, num_layers=num_layers, seed=seed, architecture="qwen3")
    generator = torch.Generator().manual_seed(seed)
    taps = [0, target.num_layers - 1]
    tensors = {
        "fc.weight": torch.randn(shape.hidden_size, len(taps) * shape.hidden_size, generator=generator) / 8,
        "hidden_norm.weight": torch.ones(shape.hidden_size),
        "norm.weight": torch.full((shape.hidden_size,), norm),
    }
    for layer in range(num_layers):
        tensors |= _layer_tensors(f"layers.{layer}", shape, generator, has_qk_norm=True)
    config = _config(shape) | {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": block_size,
        "num_target_layers": target.num_layers,
        "dflash_config": {"mask_token_id": shape.vocab_size - 1, "target_layer_ids": taps},
        "layer_types": ["full_attention"] * num_layers,
        "sliding_window": None,
        "use_sliding_window": False,
        "attention_bias": False,
    }
    return _write(folder, config, tensors)


def write_constant_pair(folder: Path, shape: TinyShape, token: int, block_size: int = 5) -> tuple[Path, Path]:
    """A target that always says `token`, and a drafter that copies it: every node on the spine is accepted.

    Layers add nothing; embeddings share a direction that the token's head row answers to most.
    """
    target = write_target(folder / "target", shape)
    drafter = write_drafter(folder / "drafter", shape, block_size)
    for path in (target, drafter):
        tensors = _load(path)
        for name in tensors:
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                tensors[name] = torch.zeros_like(tensors[name])
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            if name in tensors:
                tensors[name] = 0.01 * tensors[name] + 1
                tensors[name][token] += 1
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return target, drafter


def _config(shape: TinyShape) -> dict[str, object]:
    config: dict[str, object] = {
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.max_context,
        "tie_word_embeddings": shape.tie_embeddings,
        "torch_dtype": "float32",
    }
    if shape.sliding_window is not None:
        assert shape.architecture == "qwen3"
        config |= {
            "sliding_window": shape.sliding_window,
            "use_sliding_window": True,
            "max_window_layers": 1,
            "layer_types": ["full_attention"] + ["sliding_attention"] * (shape.num_layers - 1),
        }
    return config


def _write(folder: Path, config: dict[str, object], tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _load(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")
