"""`treegraft serve`: options, one call, one line. Knows no HTTP and no engine."""

import argparse
import importlib.util
import sys
from typing import TYPE_CHECKING

from treegraft.errors import UsageError

if TYPE_CHECKING:
    from treegraft.server.launch import ServerStart

DEFAULT_MODEL = "smollm2-135m"
NEEDED_MODULES = ("torch", "starlette", "uvicorn")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "serve",
        help="serve a model over OpenAI's HTTP API",
        description="Serve a model: /v1/chat/completions, /v1/completions, /v1/models and /health.",
    )
    parser.add_argument(
        "model", nargs="?", default=DEFAULT_MODEL, metavar="MODEL", help="name, folder, .gguf file or hub id"
    )
    parser.add_argument("--drafter", default="auto", help="folder, hub id, auto or none (default auto)")
    parser.add_argument(
        "--method", default="auto", choices=("auto", "ar", "dflash", "ddtree"), help="decoding method (default auto)"
    )
    parser.add_argument("--budget", type=int, metavar="N", help="nodes verified in a round (default: the device's)")
    parser.add_argument(
        "--backend", default="native", choices=("native", "sglang"), help="this engine, or SGLang (not yet)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=30000, help="0 takes a free one (default 30000)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    parser.add_argument("--max-context", type=int, metavar="N", help="tokens of prompt + answer")
    parser.add_argument("--max-running", type=int, default=16, metavar="N", help="requests decoded together")
    parser.add_argument("--served-model-name", metavar="NAME", help="the name clients use (default MODEL)")
    parser.add_argument("--json", action="store_true", help="print one JSON line when ready")


def run(args: argparse.Namespace) -> int:
    if args.backend != "native":
        raise UsageError(f"backend {args.backend} is not in this version; use --backend native")
    if not 0 <= args.port < 2**16:
        raise UsageError(f"port is {args.port}; expected 0 to 65535")
    missing = [name for name in NEEDED_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"serving needs {', '.join(missing)}; install treegraft[server]")
    from treegraft.engine.config import EngineConfig
    from treegraft.server.launch import serve

    config = EngineConfig(
        model=args.model,
        drafter=None if args.drafter == "none" else args.drafter,
        method=args.method,
        budget=args.budget,
        device=args.device,
        dtype=args.dtype,
        max_context=args.max_context,
        max_running=args.max_running,
    )
    serve(config, args.host, args.port, args.served_model_name, _print_json if args.json else None)
    return 0


def _print_json(started: "ServerStart") -> None:
    from treegraft.records import canonical_json

    sys.stdout.write(canonical_json(started).decode() + "\n")
    sys.stdout.flush()
