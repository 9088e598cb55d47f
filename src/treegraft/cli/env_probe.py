"""`treegraft env probe HOST:PATH`: the inventory of a host and an environment, as text, JSON or a file."""

import argparse
from pathlib import Path

from treegraft.cli.output import add_json_option, print_json, print_text


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "probe",
        help="list what a host and an environment have, changing nothing",
        description="Reads a host and one of its Python environments over your ssh, leaving nothing there.",
    )
    parser.add_argument("environment", metavar="HOST:PATH", help="an environment, or a local path")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the whole inventory (JSON) to FILE")
    parser.add_argument("--host-only", action="store_true", help="look at the host alone (HOST: is enough)")
    parser.add_argument("--no-cache", action="store_true", help="read every file again, and remember nothing")
    parser.add_argument("--python", metavar="PATH", help="interpreter on the host to use, in place of searching one")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """0 also for a partial inventory: it says so itself."""
    from treegraft import logs, records
    from treegraft.environments.inventory_text import summarise
    from treegraft.environments.probe import probe
    from treegraft.errors import UsageError

    with logs.progress(label="reading", unit="B") as bar:
        bar.unit_scale = True
        inventory = probe(
            args.environment,
            host_only=args.host_only,
            use_cache=not args.no_cache,
            interpreter=args.python,
            on_progress=lambda num_bytes, _files: bar.update(num_bytes - bar.n),
        )
    if args.out is not None:
        try:
            args.out.write_text(records.to_json(inventory), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--out {args.out} cannot be written ({error.strerror})") from error
    if args.json:
        print_json(records.to_builtins(inventory))
    else:
        print_text(summarise(inventory))
    return 0
