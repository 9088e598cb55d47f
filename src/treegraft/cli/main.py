"""The `treegraft` command: finds the command's module, runs it, turns errors into one line and an exit code.

Knows each command's name and one line about it, none of its options. Only the module of the command that is asked
for is imported, so that `--help` and `env` never load torch.
"""

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from treegraft import __version__, logs, settings
from treegraft.errors import TreegraftError


@dataclass(frozen=True)
class Command:
    """module exports `add_parser(subparsers)` (options only) and `run(args) -> int`."""

    module: str
    summary: str


COMMANDS: dict[str, Command] = {
    "pull": Command("treegraft.cli.pull", "fetch a model into the cache, or check a local one"),
    "generate": Command("treegraft.cli.generate", "complete one prompt in this process"),
    "serve": Command("treegraft.cli.serve", "start the OpenAI-compatible server"),
    "bench": Command("treegraft.cli.bench", "measure methods or servers against each other; compare and report"),
    "train": Command("treegraft.cli.train", "make, evaluate and export drafters"),
    "env": Command("treegraft.cli.env", "probe, check, compare and plan Python environments on GPU hosts"),
}


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser with the options of `command`; of all others it knows only the names."""
    parser = argparse.ArgumentParser(
        prog="treegraft",
        description="Draft-tree speculative decoding for LLM servers, and their environments on GPU hosts.",
        epilog="Exit codes: 0 fine, 1 failed, 2 usage, 3 blocked by findings, 4 the world changed since the plan.",
    )
    parser.add_argument("--version", action="version", version=f"treegraft {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, entry_of in COMMANDS.items():
        if name == command:
            importlib.import_module(entry_of.module).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=entry_of.summary, add_help=False)
    return parser


def main(argv: Sequence[str]) -> int:
    """Run one command line (without the program's name); the exit code. Errors are printed here and nowhere else."""
    try:
        logs.configure(settings.read("TREEGRAFT_LOG_LEVEL"))
        command = next((word for word in argv if not word.startswith("-")), None)
        args = build_parser(command).parse_args(argv)
        code: int = importlib.import_module(COMMANDS[args.command].module).run(args)
        sys.stdout.flush()
    except TreegraftError as error:
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader went away (`| head`): nothing to say, and nothing more to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:  # noqa: BLE001 - the process's last line of defence
        if settings.read("TREEGRAFT_LOG_LEVEL").lower() == "debug":
            traceback.print_exc()
        else:
            _complain(f"{type(error).__name__}: {error} (a fault of treegraft; TREEGRAFT_LOG_LEVEL=debug shows where)")
        return 1
    return code


def _complain(message: str) -> None:
    print(f"treegraft: error: {' '.join(message.split())}", file=sys.stderr, flush=True)


def entry() -> None:
    """Console script and `python -m treegraft`."""
    sys.exit(main(sys.argv[1:]))
