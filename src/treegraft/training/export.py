"""A trained drafter as a folder in the published layout: bf16 with the head, bf16 for stock servers, int8 for shipping.

Knows the layout's keys and the run folder's files; quantising is models.int8_at_rest's.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from treegraft.errors import TrainingError, UsageError
from treegraft.models.config import DrafterConfig, RopeScaling
from treegraft.models.config_json import HEAD_KEY, read_drafter_config
from treegraft.models.int8_at_rest import quantise_folder
from treegraft.training import checkpoint
from treegraft.training.build import served_tensors
from treegraft.training.card import read_card, write_card
from treegraft.training.network import DrafterNetwork

DRAFTER = "drafter"  # folder in a run with the config.json of what it trains
FORMATS = ("bf16", "stock", "int8")


def document(config: DrafterConfig) -> dict[str, Any]:
    """config.json in the published layout; the head's key is ours."""
    plain: dict[str, Any] = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": config.block_size,
        "num_target_layers": config.num_target_layers,
        "dflash_config": {
            "mask_token_id": config.mask_token_id,
            "target_layer_ids": list(config.target_layer_ids),
        },
        "num_hidden_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": _rope_scaling(config.rope_scaling),
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_context,
        "attention_bias": config.attention_bias,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "layer_types": ["full_attention"] * config.num_layers,
        "sliding_window": None,
        "use_sliding_window": False,
        "torch_dtype": "bfloat16",
    }
    if config.head is not None:
        plain[HEAD_KEY] = {"kind": config.head.kind, **dict(config.head.sizes)}
    return plain


def _rope_scaling(scaling: RopeScaling | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    plain: dict[str, Any] = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind == "llama3":
        plain |= {
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_max_context,
        }
    elif scaling.kind == "yarn":
        plain |= {
            "beta_fast": scaling.beta_fast,
            "beta_slow": scaling.beta_slow,
            "attention_factor": scaling.attention_factor,
            "original_max_position_embeddings": scaling.original_max_context,
        }
    return plain


def write_drafter(network: DrafterNetwork, folder: Path) -> None:
    """config.json and model.safetensors in bf16, the head included."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: t.to("cpu", torch.bfloat16).contiguous() for name, t in served_tensors(network).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    text = json.dumps(document(network.config), indent=2) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")


def write_config(config: DrafterConfig, run_folder: Path) -> None:
    """Keep the drafter's config.json in the run, so that it can be exported without its target."""
    folder = run_folder / DRAFTER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(document(config), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise TrainingError(f"{folder} cannot be written: {error.strerror}") from error


def trained_network(run_folder: Path) -> DrafterNetwork:
    """The run's last checkpoint as a network in float32 on CPU. Raises TrainingError when there is none."""
    weights = run_folder / checkpoint.FOLDER / checkpoint.WEIGHTS
    if not weights.is_file():
        raise TrainingError(f"{run_folder} has no checkpoint; train first: treegraft train run CONFIG.toml")
    config = read_drafter_config(run_folder / DRAFTER)
    state = checkpoint.read_weights(weights)
    network = DrafterNetwork(config, torch.device("cpu"))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(state[f"master.{name}"])
    return network


def export(run_folder: Path, output: Path, form: str) -> int:
    """Write the run's drafter and its card to `output`; the weights' size in bytes.

    form: "bf16" (with the head), "stock" (bf16 without our keys, for other DFLASH servers) or "int8" (as it ships).
    Raises UsageError for another form or an output that exists, TrainingError for a run without a checkpoint.
    """
    if form not in FORMATS:
        raise UsageError(f"format is {form!r}; expected one of {', '.join(FORMATS)}")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UsageError(f"{output} exists and is not empty; choose a new folder")
    network = trained_network(run_folder)
    card = msgspec.structs.replace(read_card(run_folder / DRAFTER), weights="int8" if form == "int8" else "bf16")
    if form == "stock":
        network.drop_head()
        card = msgspec.structs.replace(card, head="none")
    part = output.with_name(output.name + ".part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        if form == "int8":
            with tempfile.TemporaryDirectory() as temporary:
                write_drafter(network, Path(temporary))
                quantise_folder(Path(temporary), part)
        else:
            write_drafter(network, part)
        write_card(card, part)
        part.replace(output)  # an empty folder gives way
    except (OSError, SafetensorError, TrainingError) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise TrainingError(f"{output} cannot be written: {error}") from error
    return (output / "model.safetensors").stat().st_size
