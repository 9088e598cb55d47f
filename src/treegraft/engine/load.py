"""Builds what an engine runs from its config: files, models, tokenizer, limits; and says what it chose.

Knows no request. Every value that was "auto" or None gets one line in EngineInfo.decisions.
"""

from dataclasses import dataclass

import torch

from treegraft.engine.config import MAX_SPECULATING, EngineConfig, EngineInfo, resolve_method
from treegraft.engine.drafting import SpeculationPlan
from treegraft.errors import UsageError
from treegraft.models import registry
from treegraft.models.config import DrafterConfig, ModelConfig
from treegraft.models.drafter_block import DrafterModel
from treegraft.models.target import TargetModel
from treegraft.models.tokenizer import Tokenizer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CPU_MAX_CONTEXT = 8192
# Of the memory free once the models are loaded: the rest is for activations and logits.
GPU_POOL_SHARE = 0.6


@dataclass(frozen=True)
class LoadedEngine:
    info: EngineInfo
    plan: SpeculationPlan
    target: TargetModel
    drafter: DrafterModel | None
    tokenizer: Tokenizer | None
    stop_ids: tuple[int, ...]


def load(config: EngineConfig) -> LoadedEngine:
    """Resolve and load everything. Raises the errors that Engine names."""
    decisions: list[str] = []
    device = _device(config.device, decisions)
    files = registry.resolve(config.model)
    model_config = registry.load_config(files)
    dtype = _dtype(config.dtype, device, model_config, decisions)
    drafter_files = None
    if config.method != "ar" and config.drafter is not None:
        drafter_files = registry.resolve_drafter(config.drafter, files)
        if config.drafter == "auto":
            decisions.append(f"drafter: {drafter_files.name if drafter_files else 'none known for this model'}")
    # What cannot work is refused before weights are read.
    resolve_method(config, drafter_files is not None, device.type, block_size=2)
    target = registry.load_target(files, dtype, device, model_config)
    drafter = registry.load_drafter(drafter_files, target, dtype, device) if drafter_files is not None else None
    target.pack()
    if drafter is not None:
        drafter.pack()
    block_size = drafter.config.block_size if drafter is not None else 0
    method, budget = resolve_method(config, drafter is not None, device.type, block_size)
    max_speculating = None
    if config.method == "auto":
        decisions.append(
            f"method auto: {method}" + (f" with a budget of {budget} nodes" if drafter else ", no drafter")
        )
        if drafter is not None and config.budget is None:
            max_speculating = MAX_SPECULATING[device.type]
        if max_speculating is not None:
            decisions.append(f"method auto: more than {max_speculating} requests at a time decode without speculation")
    elif config.budget is None and method == "ddtree":
        decisions.append(f"budget: {budget} nodes, the default of a {device.type} device")
    drafter_context = drafter.config.max_context if drafter is not None else 0
    plan = SpeculationPlan(method, budget, block_size, drafter_context, max_speculating)
    tokenizer = registry.load_tokenizer(files)
    if tokenizer is not None and tokenizer.vocab_size > model_config.vocab_size:
        decisions.append(
            f"tokenizer: {tokenizer.vocab_size} ids for a vocabulary of {model_config.vocab_size}; prompts that hold "
            "one beyond it will be refused"
        )
    max_context = _max_context(config, model_config, device)
    info = EngineInfo(
        model=files.name,
        drafter=drafter_files.name if drafter_files is not None else None,
        method=method,
        budget=None if method == "ar" else budget,
        block_size=block_size or None,
        device=str(device),
        dtype=str(dtype).removeprefix("torch."),
        max_context=max_context,
        vocab_size=model_config.vocab_size,
        num_slots=_num_slots(config, max_context, plan, target, drafter),
        decisions=tuple(decisions),
    )
    stop_ids = set(model_config.eos_token_ids)
    if tokenizer is not None:
        stop_ids |= set(tokenizer.eos_token_ids)
    return LoadedEngine(info, plan, target, drafter, tokenizer, tuple(sorted(stop_ids)))


def _device(name: str, decisions: list[str]) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        decisions.append(f"device auto: {name}")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"device is {name!r}; expected auto, cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"device is {name!r}; expected auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"device is {name!r}; this machine has {torch.cuda.device_count()} usable CUDA devices")
    return device


def _dtype(name: str, device: torch.device, config: ModelConfig, decisions: list[str]) -> torch.dtype:
    if name == "auto":
        name = "float32" if device.type == "cpu" else config.torch_dtype
        name = name if name in ("bfloat16", "float16") else ("float32" if device.type == "cpu" else "bfloat16")
        decisions.append(f"dtype auto: {name}")
    if name not in DTYPES:
        raise UsageError(f"dtype is {name!r}; expected auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def _max_context(config: EngineConfig, model: ModelConfig, device: torch.device) -> int:
    if config.max_context is None:
        return min(model.max_context, CPU_MAX_CONTEXT) if device.type == "cpu" else model.max_context
    if config.max_context > model.max_context:
        raise UsageError(f"max_context is {config.max_context}; the model's own limit is {model.max_context} tokens")
    return config.max_context


def _num_slots(
    config: EngineConfig,
    max_context: int,
    plan: SpeculationPlan,
    target: TargetModel,
    drafter: DrafterModel | None,
) -> int:
    """Slots of the pool. One full context and one round always fit; slot 0 is scratch."""
    needed = max_context + plan.rows_per_round + 1
    if config.num_slots is not None:
        if config.num_slots < needed:
            raise UsageError(
                f"num_slots is {config.num_slots}; a context of {max_context} tokens and a round of "
                f"{plan.rows_per_round} rows need at least {needed}; lower max_context or raise num_slots"
            )
        return config.num_slots
    wanted = max_context + config.max_running * plan.rows_per_round + 1
    if target.device.type == "cpu":
        return wanted
    layers: list[ModelConfig | DrafterConfig] = [target.config]
    if drafter is not None:
        layers.append(drafter.config)
    values_per_slot = sum(2 * c.num_layers * c.num_kv_heads * c.head_dim for c in layers)
    free_bytes, _ = torch.cuda.mem_get_info(target.device)
    fitting = int(free_bytes * GPU_POOL_SHARE) // (values_per_slot * target.dtype.itemsize)
    if fitting < needed:
        raise UsageError(
            f"{free_bytes >> 20} MiB of GPU memory are free: room for {fitting} tokens of K/V, but a context of "
            f"{max_context} tokens needs {needed}; lower max_context"
        )
    return min(fitting, max(wanted, config.max_running * max_context))
