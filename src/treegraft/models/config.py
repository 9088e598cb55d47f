"""What a target and a drafter look like, as numbers. Knows no file format (config_json and gguf/ read those) and
no torch: deploy reads these without it."""

from dataclasses import dataclass
from typing import Literal

Architecture = Literal["llama", "qwen2", "qwen3"]


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched. Fields that a kind does not use keep their defaults.

    linear: positions / factor. llama3: low and high frequencies apart, smooth between (`low_freq_factor`,
    `high_freq_factor`, `original_max_context`). yarn (arXiv 2309.00071): ramp between `beta_fast` and `beta_slow`
    rotations; cos and sin times `attention_factor`. `frequency_divisors` (GGUF): one divisor a frequency, which
    replaces the formula of llama3.
    """

    kind: Literal["llama3", "yarn", "linear"]
    factor: float
    original_max_context: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0
    truncate: bool = True
    frequency_divisors: tuple[float, ...] = ()


@dataclass(frozen=True)
class ModelConfig:
    """A dense decoder. `layer_windows[i]`: the tokens that layer i sees (itself included), None for all of them.
    `vocab_size` is what logits have; the checkpoint's embedding may have more (padded) rows."""

    architecture: Architecture
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    tie_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    layer_windows: tuple[int | None, ...]
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    torch_dtype: str


@dataclass(frozen=True)
class HeadConfig:
    """The conditional head that training adds to a drafter (key `treegraft_head`): what kind, and its sizes."""

    kind: str
    sizes: tuple[tuple[str, int], ...] = ()

    def size(self, name: str) -> int:
        """The named size. KeyError when the kind has none of that name (ours to fix)."""
        return dict(self.sizes)[name]


@dataclass(frozen=True)
class DrafterConfig:
    """A DFlash drafter: `num_layers` decoder layers that see the target's tapped hidden states as context.

    target_layer_ids: taps, counted from 0 (the residual stream after that layer). is_causal[i]: whether layer i is
    causal inside the block (published full-attention layers are not). int8_at_rest: matrices lie in the file as int8
    with one scale a row (see int8_at_rest).
    """

    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    attention_bias: bool
    layer_windows: tuple[int | None, ...]
    is_causal: tuple[bool, ...]
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    logit_softcap: float | None = None
    int8_at_rest: bool = False
    head: HeadConfig | None = None
