"""From a training configuration to a target and its untrained drafter: config, network and optimiser."""

from pathlib import Path

import torch

from treegraft.errors import DrafterError, UsageError
from treegraft.models import registry
from treegraft.models.config import DrafterConfig, HeadConfig
from treegraft.models.drafter_block import DrafterModel
from treegraft.models.head import KIND, WIDTH, ConditionalHead
from treegraft.models.target import TargetModel
from treegraft.models.tokenizer import Tokenizer
from treegraft.training.config import TrainConfig
from treegraft.training.network import DrafterNetwork, DraftLayer, can_copy_target, copy_target
from treegraft.training.optimiser import Optimiser, Rates
from treegraft.training.parallel import own_device

NUM_TAPS = 4


def load_target(config: TrainConfig) -> tuple[TargetModel, Tokenizer | None]:
    """The target where and as config says, and its tokenizer when it has one; on this process' GPU under torchrun.
    Raises UsageError for another dtype, and what models.registry raises."""
    name = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    name = own_device(name)
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    default = "bfloat16" if name.startswith("cuda") else "float32"
    dtype = default if config.dtype == "auto" else config.dtype
    if dtype not in dtypes:
        raise UsageError(f"dtype is {config.dtype!r}; expected auto, float32 or bfloat16")
    files = registry.resolve(config.target)
    return registry.load_target(files, dtypes[dtype], torch.device(name)), registry.load_tokenizer(files)


def drafter_config(config: TrainConfig, target: TargetModel, tokenizer: Tokenizer | None) -> DrafterConfig:
    """The drafter's config: layers like the target's, within what config.drafter asks. Raises UsageError for taps the
    target does not have and for a mask token outside of its vocabulary."""
    its, shape = target.config, config.drafter
    taps = shape.taps or spread_taps(its.num_layers)
    if not all(0 <= tap < its.num_layers for tap in taps):
        raise UsageError(f"drafter.taps is {list(taps)}; the target has layers 0 to {its.num_layers - 1}")
    mask = shape.mask_token_id if shape.mask_token_id >= 0 else pick_mask_token(its.vocab_size, tokenizer)
    if mask >= its.vocab_size:
        raise UsageError(f"drafter.mask_token_id is {mask}; the target has tokens 0 to {its.vocab_size - 1}")
    return DrafterConfig(
        block_size=shape.block_size,
        mask_token_id=mask,
        target_layer_ids=tuple(taps),
        num_target_layers=its.num_layers,
        hidden_size=its.hidden_size,
        intermediate_size=its.intermediate_size,
        num_layers=shape.num_layers,
        num_heads=its.num_heads,
        num_kv_heads=its.num_kv_heads,
        head_dim=its.head_dim,
        vocab_size=its.vocab_size,
        max_context=its.max_context,
        rms_norm_eps=its.rms_norm_eps,
        rope_theta=its.rope_theta,
        rope_scaling=its.rope_scaling,
        attention_bias=False,
        layer_windows=(None,) * shape.num_layers,
        is_causal=(False,) * shape.num_layers,
        head=HeadConfig(KIND, ((WIDTH, shape.head_width),)) if shape.head_width else None,
    )


def spread_taps(num_layers: int) -> tuple[int, ...]:
    """NUM_TAPS layers from the second to the third last, evenly; fewer where there are not so many."""
    last = max(num_layers - 3, 0)
    first = min(1, last)
    return tuple(sorted({round(first + (last - first) * i / (NUM_TAPS - 1)) for i in range(NUM_TAPS)}))


def pick_mask_token(vocab_size: int, tokenizer: Tokenizer | None) -> int:
    """A special token that no text ends or begins with: the last one; without any, the vocabulary's last token."""
    if tokenizer is None:
        return vocab_size - 1
    special = [i for i, token in tokenizer.pipeline.get_added_tokens_decoder().items() if token.special]
    used = {tokenizer.pipeline.token_to_id(text) for text in tokenizer.special_tokens.values()}
    free = [i for i in special if i not in used and i < vocab_size]
    return max(free, default=vocab_size - 1)


def build_network(config: TrainConfig, drafter: DrafterConfig, target: TargetModel) -> DrafterNetwork:
    """The network with its initial weights, in the target's dtype. Raises UsageError or DrafterError when
    drafter.initial does not fit."""
    torch.manual_seed(config.run.seed)
    network = DrafterNetwork(drafter, target.device)
    initial = config.drafter.initial
    if initial == "target":
        if not can_copy_target(drafter, target):
            raise UsageError("drafter.initial is 'target', but the drafter's layers have other shapes; use 'random'")
        copy_target(network, target)
    elif initial != "random":
        copy_drafter(network, Path(initial), target)
    if config.run.head_only:
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(name.startswith("head_"))
    return network.to(target.dtype)


def copy_drafter(network: DrafterNetwork, folder: Path, target: TargetModel) -> None:
    """Start from a drafter folder of the same shape; its head too when both have one of the same size. Raises
    DrafterError that names what differs."""
    files = registry.ModelFiles("folder", folder, str(folder))
    source = registry.load_drafter(files, target, torch.float32, target.device)
    ours, its = network.config, source.config
    names = (
        "block_size",
        "mask_token_id",
        "target_layer_ids",
        "num_layers",
        "intermediate_size",
        "num_heads",
        "head_dim",
    )
    differing = [n for n in names if getattr(ours, n) != getattr(its, n)]
    if differing:
        pairs = ", ".join(f"{n} {getattr(its, n)} against {getattr(ours, n)}" for n in differing)
        raise DrafterError(f"drafter {folder} cannot be the start: {pairs}")
    with torch.no_grad():
        network.fc.copy_(source.fc.weight)
        network.hidden_norm.copy_(source.hidden_norm)
        network.norm.copy_(source.final_norm)
        for layer, weights in zip(network.layers, source.layers, strict=True):
            assert isinstance(layer, DraftLayer)
            assert weights.qk_norm is not None
            H = layer.sizes[0]
            layer.input_norm.copy_(weights.input_norm)
            layer.mlp_norm.copy_(weights.mlp_norm)
            layer.q_norm.copy_(weights.qk_norm[0])
            layer.k_norm.copy_(weights.qk_norm[H])
            for name in ("qkv", "output", "gate_up", "down"):
                getattr(layer, name).copy_(getattr(weights, name).weight)
        if network.has_head and source.head is not None and source.config.head == ours.head:
            network.head_hidden.copy_(source.head.hidden_proj)
            network.head_parent.copy_(source.head.parent_proj)
            network.head_output.copy_(source.head.output)


def build_optimiser(config: TrainConfig, network: DrafterNetwork) -> Optimiser:
    run, c = config.run, network.config
    D = c.head_dim
    splits = {
        "qkv": (c.num_heads * D, c.num_kv_heads * D, c.num_kv_heads * D),
        "gate_up": (c.intermediate_size, c.intermediate_size),
    }
    if c.head is not None:
        width = c.head.size(WIDTH)
        splits |= {"head_hidden": (width, width), "head_parent": (width, width)}
    rates = Rates(run.learning_rate, run.adam_learning_rate, run.weight_decay, run.clip)
    return Optimiser(network, rates, run.optimiser == "muon", splits)


def served_tensors(network: DrafterNetwork) -> dict[str, torch.Tensor]:
    """The network's weights under the published names (and the head's own), as they are."""
    c = network.config
    q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    tensors: dict[str, torch.Tensor] = {
        "fc.weight": network.fc,
        "hidden_norm.weight": network.hidden_norm,
        "norm.weight": network.norm,
    }
    for i, layer in enumerate(network.layers):
        assert isinstance(layer, DraftLayer)
        gate, up = layer.gate_up.chunk(2)
        own: dict[str, torch.Tensor] = {
            "input_layernorm": layer.input_norm,
            "post_attention_layernorm": layer.mlp_norm,
            "self_attn.q_norm": layer.q_norm,
            "self_attn.k_norm": layer.k_norm,
            "self_attn.q_proj": layer.qkv[:q],
            "self_attn.k_proj": layer.qkv[q : q + kv],
            "self_attn.v_proj": layer.qkv[q + kv :],
            "self_attn.o_proj": layer.output,
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": layer.down,
        }
        tensors |= {f"layers.{i}.{name}.weight": tensor for name, tensor in own.items()}
    if network.has_head:
        tensors |= {
            "head.hidden.weight": network.head_hidden,
            "head.parent.weight": network.head_parent,
            "head.output.weight": network.head_output,
        }
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}


def served_model(network: DrafterNetwork, target: TargetModel) -> DrafterModel:
    """The same weights as the engine serves them, for checks while training."""
    tensors = served_tensors(network)
    head = None
    if network.config.head is not None:
        head = ConditionalHead(network.config.head, tensors.__getitem__, target.embed, target.head.weight.__getitem__)
    return DrafterModel(network.config, tensors.__getitem__, target, head)
