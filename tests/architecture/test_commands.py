"""What every command keeps: --json, light start, one parser. Looks at options, never at what a command does."""

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from treegraft.cli.main import COMMANDS, build_parser

SOURCE = Path(__file__).resolve().parents[2] / "src" / "treegraft"
HEAVY = ("torch", "numpy", "transformers", "starlette", "safetensors")


def leaves(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every parser below that has no further sub-commands."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield " ".join(path), parser
    for action in nested:
        for name, child in action.choices.items():
            yield from leaves(child, (*path, name))


def parser_of(command: str) -> argparse.ArgumentParser:
    top = build_parser(command)
    action = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    parser = action.choices[command]
    assert isinstance(parser, argparse.ArgumentParser)
    return parser


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json(command: str) -> None:
    without = [name for name, leaf in leaves(parser_of(command), (command,)) if "--json" not in leaf.format_help()]
    assert without == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command: str) -> None:
    for name, leaf in leaves(parser_of(command), (command,)):
        silent = [action.dest for action in leaf._actions if not action.help]
        assert silent == [], name


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], *([command, "--help"] for command in COMMANDS)], ids=" ".join
)
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    script = (
        "import sys\n"
        "from treegraft.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print('LOADED', *sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.rpartition("LOADED")[2].split()
    assert "argparse" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_no_command_is_left_out() -> None:
    """A file that can be a command (add_parser and run) is in the table, or in the table of the command above it."""
    modules = {}
    for path in sorted((SOURCE / "cli").glob("*.py")):
        names = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
        if {"add_parser", "run"} <= names:
            modules[f"treegraft.cli.{path.stem}"] = path
    top = {command.module for command in COMMANDS.values()}
    nested = {m for m in modules if any(m.startswith(f"{parent}_") for parent in top)}
    assert set(modules) - nested == top
