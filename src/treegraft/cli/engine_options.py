"""Options of the commands that build an engine in this process, and the config made from them. Knows no command."""

import argparse
import importlib.util
from typing import TYPE_CHECKING, Any

from treegraft.errors import UsageError

if TYPE_CHECKING:
    from treegraft.engine.config import EngineConfig
    from treegraft.engine.request import SamplingParams

DEFAULT_MODEL = "smollm2-135m"
ENGINE_MODULES = ("torch", "safetensors", "tokenizers", "jinja2", "gguf", "huggingface_hub")


def require_engine() -> None:
    """Raises UsageError that names what the extra `engine` would bring; the base install runs `env` only."""
    missing = [name for name in ENGINE_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"this command needs {', '.join(missing)}; install treegraft[engine]")


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine")
    group.add_argument("--model", default=DEFAULT_MODEL, help="embedded name, hub id, folder or .gguf (%(default)s)")
    group.add_argument(
        "--drafter", default="auto", help="auto (the packaged one, if there is one), none, or a folder (%(default)s)"
    )
    group.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (%(default)s)")
    group.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16 (%(default)s)")
    group.add_argument("--max-context", type=int, metavar="N", help="tokens of prompt and answer (the model's limit)")


def add_method_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("speculation")
    group.add_argument(
        "--method", default="auto", choices=("auto", "ar", "dflash", "ddtree"), help="how tokens are made (%(default)s)"
    )
    group.add_argument("--budget", type=int, metavar="N", help="draft nodes a round (the device's default)")


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument("--max-tokens", type=int, default=256, metavar="N", help="longest answer (%(default)s)")
    group.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 is argmax (%(default)s)")
    group.add_argument("--top-k", type=int, default=0, metavar="K", help="keep the K likeliest tokens (0: off)")
    group.add_argument("--top-p", type=float, default=1.0, metavar="P", help="keep this share of the mass (1: off)")
    group.add_argument("--min-p", type=float, default=0.0, metavar="P", help="drop below P of the likeliest (0: off)")
    group.add_argument("--seed", type=int, metavar="N", help="key of the noise; random and reported when not given")
    group.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text; may repeat")
    group.add_argument("--ignore-eos", action="store_true", help="go on after an end-of-text token")


def engine_config(args: argparse.Namespace, **changes: Any) -> "EngineConfig":
    """The config of the options; `changes` win. Raises UsageError for values that no engine can have."""
    from treegraft.engine.config import EngineConfig

    values = {
        "model": args.model,
        "drafter": None if args.drafter == "none" else args.drafter,
        "method": getattr(args, "method", "auto"),
        "budget": getattr(args, "budget", None),
        "device": args.device,
        "dtype": args.dtype,
        "max_context": args.max_context,
    }
    return EngineConfig(**{**values, **changes})


def sampling_params(args: argparse.Namespace) -> "SamplingParams":
    """With its seed drawn. Raises UsageError that names the value out of range."""
    from treegraft.engine.request import SamplingParams

    return SamplingParams(
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        seed=args.seed,
        stop=tuple(args.stop),
        ignore_eos=args.ignore_eos,
    ).with_seed()
