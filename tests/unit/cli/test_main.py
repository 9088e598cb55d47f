"""Errors become one line and an exit code; the command table is used as it stands."""

import sys
from types import SimpleNamespace

import pytest

from treegraft import __version__
from treegraft.cli import main as main_module
from treegraft.cli.main import COMMANDS, Command, main
from treegraft.errors import BlockedError, DownloadError, TreegraftError, UsageError, WorldChangedError


@pytest.fixture
def run_raising(monkeypatch: pytest.MonkeyPatch):
    """Run a command `probe` whose run raises the given error; the exit code."""

    def run(error: BaseException) -> int:
        def raise_it(_args: object) -> int:
            raise error

        module = SimpleNamespace(add_parser=lambda subparsers: subparsers.add_parser("probe"), run=raise_it)
        monkeypatch.setitem(sys.modules, "toy_command", module)
        monkeypatch.setitem(main_module.COMMANDS, "probe", Command("toy_command", "a toy"))
        return main(["probe"])

    return run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TreegraftError("x is 3; expected 4"), 1),
        (DownloadError("x is 3; expected 4"), 1),
        (UsageError("x is 3; expected 4"), 2),
        (BlockedError("x is 3; expected 4"), 3),
        (WorldChangedError("x is 3; expected 4"), 4),
    ],
)
def test_each_error_has_its_exit_code_and_one_line(run_raising, capsys, error: Exception, code: int) -> None:
    assert run_raising(error) == code
    assert capsys.readouterr() == ("", "treegraft: error: x is 3; expected 4\n")


def test_a_message_of_several_lines_becomes_one(run_raising, capsys) -> None:
    run_raising(TreegraftError("first\n  second\tthird"))
    assert capsys.readouterr().err == "treegraft: error: first second third\n"


def test_the_unexpected_is_one_line_too_and_says_how_to_see_more(run_raising, capsys, monkeypatch) -> None:
    assert run_raising(ZeroDivisionError("division by zero")) == 1
    err = capsys.readouterr().err
    assert err.startswith("treegraft: error: ZeroDivisionError: division by zero")
    assert err.count("\n") == 1
    assert "TREEGRAFT_LOG_LEVEL=debug" in err
    monkeypatch.setenv("TREEGRAFT_LOG_LEVEL", "debug")
    assert run_raising(ZeroDivisionError("division by zero")) == 1
    assert "Traceback" in capsys.readouterr().err


def test_interrupt_is_130_and_silent(run_raising, capsys) -> None:
    assert run_raising(KeyboardInterrupt()) == 130
    assert capsys.readouterr() == ("", "")


def test_version(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"treegraft {__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required: COMMAND"),
        (["generat"], "invalid choice: 'generat'"),
        (["generate"], "required: PROMPT"),
        (["generate", "x", "--temperature", "warm"], "invalid float value: 'warm'"),
        (["generate", "x", "--method", "magic"], "invalid choice: 'magic'"),
        (["bench"], "required: ACTION"),
    ],
)
def test_wrong_words_are_usage_errors(words: list[str], said: str, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_help_names_every_command(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert all(f"\n    {name}" in out for name in COMMANDS)
