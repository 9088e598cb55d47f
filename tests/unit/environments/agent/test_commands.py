"""Commands that hang, flood, fork or are missing: each ends, and says how."""

import os
import time

from treegraft.environments.agent import commands
from treegraft.environments.agent.commands import run


def test_output_and_status() -> None:
    result = run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (result.returncode, result.output, result.error, result.problem) == (3, "out\n", "err\n", "")
    assert not result.is_ok
    assert run(["true"]).is_ok


def test_missing_and_forbidden(tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert run(["no-such-program-here"]).problem == "not found"
    (tmp_path / "plain").write_text("x")
    assert "cannot be started" in run([str(tmp_path / "plain")]).problem


def test_hang_is_a_fact_and_its_children_die(tmp_path) -> None:  # type: ignore[no-untyped-def]
    pid_file = tmp_path / "pid"
    result = run(["sh", "-c", f"sleep 60 & echo $! > {pid_file}; echo begun; wait"], timeout_s=0.5)
    assert (result.returncode, result.output, result.problem) == (None, "begun\n", "timed out after 0.5 s")
    child = int(pid_file.read_text())
    deadline = time.monotonic() + 10
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_grandchild_that_keeps_the_pipes_open_is_not_waited_for() -> None:
    begin = time.monotonic()
    result = run(["sh", "-c", "sleep 30 & echo done"], timeout_s=20.0)
    assert (result.returncode, result.output) == (0, "done\n")
    assert time.monotonic() - begin < 15


def test_flood_is_cut(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(commands, "MAX_OUTPUT_BYTES", 100_000)
    result = run(["sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x"])
    assert result.returncode == 0
    assert 100_000 <= len(result.output) < 300_000


def test_no_terminal_language_or_input() -> None:
    assert run(["sh", "-c", 'echo "$LC_ALL"; cat']).output == "C\n"
    assert os.environ.get("LC_ALL") != "treegraft"
