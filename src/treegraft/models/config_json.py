"""Reads config.json (and generation_config.json) of target and drafter folders into config's types.

Every key is either used, known to change nothing here, or refused by name: a key that is silently ignored is how a
model comes out subtly wrong. Knows no tensor and no torch.
"""

import math
from pathlib import Path
from typing import Any, cast

from treegraft.errors import CheckpointError, DrafterError, UnsupportedModelError
from treegraft.models.config import Architecture, DrafterConfig, HeadConfig, ModelConfig, RopeScaling
from treegraft.models.json_fields import MAX_BLOCK_SIZE, MAX_COUNT, MAX_LAYERS, Fields, read_json, shown

ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}

# Change nothing at inference, whatever their value.
IGNORED_KEYS = frozenset(
    (  # noqa: SIM905 - as a list it takes a line a key
        "_name_or_path architectures attention_dropout auto_map chunk_size_feed_forward do_sample finetuning_task "
        "id2label initializer_range is_llama_config label2id max_length min_length model_type num_beams "
        "output_attentions output_hidden_states pad_token_id prefix pretraining_tp problem_type repetition_penalty "
        "return_dict sep_token_id task_specific_params temperature tokenizer_class top_k top_p torchscript "
        "transformers.js_config transformers_version unsloth_fixed unsloth_version use_cache"
    ).split()
)
DFLASH2_KEYS = ("selector_rank", "selector_top_k", "conv_kernel_size", "conv_group_size")
INT8_KEY, HEAD_KEY, SOFTCAP_KEY = "treegraft_weights", "treegraft_head", "final_logit_softcapping"
INT8_VALUE = "int8-per-row"


def read_target_config(folder: Path) -> ModelConfig:
    """ModelConfig of a Hugging Face folder.

    Raises UnsupportedModelError for an architecture or feature that is not served, CheckpointError for missing,
    unknown or mistyped keys.
    """
    document = read_json(folder / "config.json")
    fields = Fields(document, str(folder / "config.json"))
    architecture = _architecture(document, fields.where)
    shape = _decoder_shape(fields)
    rope_theta, rope_scaling = _rope(fields, shape["max_context"])
    bias = fields.flag("attention_bias", False) if architecture != "qwen2" else True
    mlp_bias = fields.flag("mlp_bias", False) if architecture == "llama" else False
    windows: tuple[int | None, ...] = (None,) * shape["num_layers"]
    if architecture != "llama":
        use_sliding = fields.flag("use_sliding_window", False)
        sliding = _sliding_layers(fields, shape["num_layers"], use_sliding)
        if any(sliding) and not use_sliding:
            raise fields.wrong("use_sliding_window", False, "true, since layer_types has sliding layers")
        windows = _windows(fields, sliding)
    config = ModelConfig(
        architecture=architecture,
        **shape,
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        qkv_bias=bias,
        output_bias=bias and architecture != "qwen2",
        mlp_bias=mlp_bias,
        qk_norm=architecture == "qwen3",
        layer_windows=windows,
        eos_token_ids=_eos_token_ids(fields, folder),
        bos_token_id=fields.raw("bos_token_id", None),
        torch_dtype=fields.text("dtype", fields.text("torch_dtype", "float32")),
    )
    fields.finish(IGNORED_KEYS - {"auto_map"})
    return config


def _names(document: dict[str, Any], where: str) -> list[str]:
    names = document.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CheckpointError(f"{where} has architectures = {shown(repr(names))}; expected a list of names")
    return names


def _architecture(document: dict[str, Any], where: str) -> Architecture:
    names, kind = _names(document, where), document.get("model_type")
    if any("DFlash" in name for name in names):
        raise UnsupportedModelError(f"{where} describes {names[0]}, a drafter; give it as --drafter, not as the model")
    known = [ARCHITECTURES[name] for name in names if name in ARCHITECTURES]
    if not names and kind in ARCHITECTURES.values():
        return cast(Architecture, kind)
    if not known or (kind is not None and kind != known[0]):
        seen = ", ".join(names) or kind or "no architecture"
        raise UnsupportedModelError(
            f"{where} describes {seen} (model_type {kind!r}); supported: {', '.join(ARCHITECTURES)}"
        )
    return known[0]


def _decoder_shape(fields: Fields) -> dict[str, Any]:
    """The sizes that targets and drafters share, checked against each other."""
    hidden_size, num_heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    num_kv_heads = fields.count("num_key_value_heads", num_heads)
    head_dim = fields.count("head_dim", max(hidden_size // num_heads, 1))
    if num_heads % num_kv_heads:
        raise fields.wrong("num_key_value_heads", num_kv_heads, f"a divisor of num_attention_heads = {num_heads}")
    if head_dim % 2:
        raise fields.wrong("head_dim", head_dim, "an even number (rotary embedding turns pairs)")
    return {
        "hidden_size": hidden_size,
        "intermediate_size": fields.count("intermediate_size"),
        "num_layers": fields.count("num_hidden_layers", limit=MAX_LAYERS),
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "vocab_size": fields.count("vocab_size"),
        "max_context": fields.count("max_position_embeddings"),
        "rms_norm_eps": fields.number("rms_norm_eps", 1e-6),
    }


def _rope(fields: Fields, max_context: int) -> tuple[float, RopeScaling | None]:
    """(theta, scaling) from `rope_parameters` (transformers 5) or `rope_theta` + `rope_scaling` (before)."""
    theta = fields.number("rope_theta", 10000.0)
    older, newer = fields.section("rope_scaling"), fields.section("rope_parameters")
    if older.document and newer.document and older.document != newer.document:
        raise CheckpointError(f"{fields.where} has rope_scaling and rope_parameters that differ; keep one of them")
    rope = newer if newer.document else older
    theta = rope.number("rope_theta", theta)
    kind = rope.raw("rope_type", rope.raw("type", "default"))
    rope.used.add("type")
    scaling = rope_scaling(rope, kind, max_context)
    rope.finish()
    return theta, scaling


def rope_scaling(rope: Fields, kind: str, max_context: int) -> RopeScaling | None:
    """The scaling of one kind from its parameters; None for plain rotary embedding."""
    original = rope.count("original_max_position_embeddings", max_context)
    if kind == "default":
        return None
    factor = rope.number("factor")
    if kind == "linear":
        return RopeScaling("linear", factor)
    if kind == "llama3":
        low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
        if high <= low:
            raise rope.wrong("high_freq_factor", high, f"more than low_freq_factor = {low}")
        return RopeScaling("llama3", factor, original, low_freq_factor=low, high_freq_factor=high)
    if kind == "yarn":
        return RopeScaling(
            "yarn",
            factor,
            original,
            beta_fast=rope.number("beta_fast", 32.0),
            beta_slow=rope.number("beta_slow", 1.0),
            attention_factor=_yarn_attention_factor(rope, factor),
            truncate=rope.flag("truncate", True),
        )
    raise UnsupportedModelError(f"{rope.where} has rope_type {kind!r}; supported: default, linear, llama3, yarn")


def _yarn_attention_factor(rope: Fields, factor: float) -> float:
    """0.1 ln(factor) + 1 (arXiv 2309.00071, eq. 22), as a quotient where mscale and mscale_all_dim are given."""

    def mscale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    given, above, below = (
        rope.number(key) if rope.raw(key, None) else None for key in ("attention_factor", "mscale", "mscale_all_dim")
    )
    if given is not None:
        return given
    return mscale(above) / mscale(below) if above and below else mscale(1.0)


def _sliding_layers(fields: Fields, num_layers: int, use_sliding: bool) -> list[bool]:
    """Which layers slide: from `layer_types`, or from `max_window_layers` (the first that many see everything)."""
    first_windowed = fields.raw("max_window_layers", num_layers)
    if type(first_windowed) is not int or first_windowed < 0:
        raise fields.wrong("max_window_layers", first_windowed, "a number of layers")
    types = fields.raw("layer_types", None)
    if types is None:
        has_window = use_sliding and bool(fields.document.get("sliding_window"))
        return [has_window and i >= first_windowed for i in range(num_layers)]
    if not isinstance(types, list) or len(types) != num_layers:
        raise fields.wrong("layer_types", types, f"a list of {num_layers} entries, one a layer")
    unknown = sorted({str(t) for t in types} - {"full_attention", "sliding_attention"})
    if unknown:
        raise UnsupportedModelError(f"{fields.where} has layer type(s) {', '.join(unknown)}; supported: full, sliding")
    return [t == "sliding_attention" for t in types]


def _windows(fields: Fields, sliding: list[bool]) -> tuple[int | None, ...]:
    window = fields.count("sliding_window") if any(sliding) else fields.raw("sliding_window", None)
    return tuple(window if is_sliding else None for is_sliding in sliding)


def _eos_token_ids(fields: Fields, folder: Path) -> tuple[int, ...]:
    """Union of config.json's and generation_config.json's end tokens, in that order."""
    found = [fields.raw("eos_token_id", None)]
    if (folder / "generation_config.json").is_file():
        found.append(read_json(folder / "generation_config.json").get("eos_token_id"))
    ids: list[int] = []
    for value in found:
        for token_id in value if isinstance(value, list) else [value] if value is not None else []:
            if type(token_id) is not int or not 0 <= token_id <= MAX_COUNT:
                raise fields.wrong("eos_token_id", value, "a token id or a list of them")
            ids.append(token_id)
    return tuple(dict.fromkeys(ids))


def read_drafter_config(folder: Path) -> DrafterConfig:
    """DrafterConfig of a folder in the published DFlash layout.

    Raises UnsupportedModelError for DFlash2 (another family), DrafterError for what is no drafter, CheckpointError
    for missing, unknown or mistyped keys.
    """
    document = read_json(folder / "config.json")
    fields = Fields(document, str(folder / "config.json"))
    dflash = fields.section("dflash_config")
    names = _names(document, fields.where)
    second = [key for key in DFLASH2_KEYS if key in document or key in dflash.document]
    if any("DFlash2" in name for name in names) or second:
        raise UnsupportedModelError(
            f"{folder} is a DFlash2 checkpoint ({', '.join(second) or names[0]}); only DFlash drafters are supported"
        )
    if "DFlashDraftModel" not in names and not dflash.document:
        raise DrafterError(f"{folder} describes {', '.join(names) or 'no architecture'}; expected a DFlash drafter")
    shape = _decoder_shape(fields)
    rope_theta, rope_scaling_ = _rope(fields, shape["max_context"])
    num_target_layers = fields.count("num_target_layers")
    use_sliding = fields.flag("use_sliding_window", False)
    sliding = _sliding_layers(fields, shape["num_layers"], use_sliding)
    windows = _windows(fields, [s and use_sliding for s in sliding])
    causal = fields.raw("is_causal", None)
    if causal not in (None, True, False):
        raise fields.wrong("is_causal", causal, "true or false")
    config = DrafterConfig(
        **shape,
        **_block(fields, dflash, num_target_layers, shape["vocab_size"]),
        num_target_layers=num_target_layers,
        rope_theta=rope_theta,
        rope_scaling=rope_scaling_,
        attention_bias=fields.flag("attention_bias", False),
        layer_windows=windows,
        is_causal=tuple(is_sliding if causal is None else bool(causal) for is_sliding in sliding),
        int8_at_rest=_int8_at_rest(fields),
        head=_head(fields),
    )
    for key in ("tie_word_embeddings", "bos_token_id", "eos_token_id", "dtype", "torch_dtype"):
        fields.used.add(key)  # embedding, head and text ends are the target's
    dflash.finish()
    fields.finish(IGNORED_KEYS)
    return config


def _block(fields: Fields, dflash: Fields, num_target_layers: int, vocab_size: int) -> dict[str, Any]:
    """Block and taps; each key may stand in `dflash_config` or at the top."""

    def either(key: str) -> Fields:
        fields.used.add(key)
        return dflash if key in dflash.document else fields

    taps = either("target_layer_ids").raw("target_layer_ids")
    good = isinstance(taps, list) and taps and all(type(t) is int and 0 <= t < num_target_layers for t in taps)
    if not good:
        raise dflash.wrong("target_layer_ids", taps, f"a list of target layers in 0 .. {num_target_layers - 1}")
    mask_token_id = either("mask_token_id").raw("mask_token_id")
    if type(mask_token_id) is not int or not 0 <= mask_token_id < vocab_size:
        raise dflash.wrong("mask_token_id", mask_token_id, f"a token id below vocab_size = {vocab_size}")
    block_size = either("block_size").count("block_size", 16, limit=MAX_BLOCK_SIZE)
    if block_size < 2:
        raise fields.wrong("block_size", block_size, "at least 2 (the last token and one mask)")
    cap = either(SOFTCAP_KEY)
    return {
        "block_size": block_size,
        "mask_token_id": mask_token_id,
        "target_layer_ids": tuple(taps),
        "embedding_scale": either("input_embedding_scale").number("input_embedding_scale", 1.0),
        "logit_scale": either("output_multiplier").number("output_multiplier", 1.0),
        "logit_softcap": cap.number(SOFTCAP_KEY) if cap.raw(SOFTCAP_KEY, None) else None,
    }


def _int8_at_rest(fields: Fields) -> bool:
    value = fields.raw(INT8_KEY, None)
    if value not in (None, INT8_VALUE):
        raise fields.wrong(INT8_KEY, value, repr(INT8_VALUE))
    return value is not None


def _head(fields: Fields) -> HeadConfig | None:
    section = fields.section(HEAD_KEY)
    if not section.document:
        return None
    kind = section.text("kind", "")
    sizes = {key: section.count(key) for key in sorted(section.document) if key != "kind"}
    return HeadConfig(kind, tuple(sizes.items()))
