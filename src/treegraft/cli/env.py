"""`treegraft env COMMAND`: finds the sub-command's module. Knows each one's name, none of its options."""

import argparse
import importlib
from dataclasses import dataclass


@dataclass(frozen=True)
class EnvCommand:
    """module exports `add_parser(subparsers)` and `run(args) -> int`."""

    module: str


ENV_COMMANDS: dict[str, EnvCommand] = {
    "probe": EnvCommand("treegraft.cli.env_probe"),
    "check": EnvCommand("treegraft.cli.env_check"),
    "diff": EnvCommand("treegraft.cli.env_diff"),
    "plan": EnvCommand("treegraft.cli.env_plan"),
}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "env",
        help="probe, check, compare and plan Python environments on GPU hosts",
        description="An environment is HOST:PATH (HOST as your OpenSSH configuration knows it) or a local path.",
    )
    nested = parser.add_subparsers(dest="env_command", required=True, metavar="COMMAND")
    for command in ENV_COMMANDS.values():
        importlib.import_module(command.module).add_parser(nested)


def run(args: argparse.Namespace) -> int:
    code: int = importlib.import_module(ENV_COMMANDS[args.env_command].module).run(args)
    return code
