"""The import contracts of pyproject.toml hold, and only the command line prints."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "treegraft"
# The agent answers its controller through stdout: that is its wire.
PRINTING_AREAS = ("cli", "environments/agent")


def test_import_contracts() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "path",
    [p for p in sorted(SOURCE.rglob("*.py")) if not p.relative_to(SOURCE).as_posix().startswith(PRINTING_AREAS)],
    ids=lambda path: path.relative_to(SOURCE).as_posix(),
)
def test_only_the_command_line_prints(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    printing = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    assert printing == []


def reads_own_variable(path: Path) -> bool:
    """Is there os.environ[...], os.environ.get(...) or os.getenv(...) with a TREEGRAFT_ name?"""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call | ast.Subscript):
            words = ast.unparse(node)
            if words.startswith(("os.environ", "os.getenv", "environ", "getenv")) and "TREEGRAFT_" in words:
                return True
    return False


def test_settings_is_the_only_reader_of_own_variables() -> None:
    readers = [path.relative_to(SOURCE).as_posix() for path in sorted(SOURCE.rglob("*.py")) if reads_own_variable(path)]
    assert [name for name in readers if name != "settings.py"] == []
