"""Every example is short and runs as it stands."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "TREEGRAFT_LOG_LEVEL": "warning"}


def run_example(name: str, *words: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENV)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def server_url(embedded_model: str) -> Iterator[str]:
    command = [sys.executable, "-m", "treegraft", "serve", embedded_model, "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENV)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_examples_are_short_and_all_run_here() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert max(lengths.values()) <= 40
    assert set(lengths) == {"draft_tree.py", "generate.py", "chat_client.py"}


def test_draft_tree() -> None:
    assert run_example("draft_tree.py").endswith("committed: [11, 20, 99]\n")


def test_generate_writes_one_text_three_ways(embedded_model: str) -> None:
    assert embedded_model
    ar, rest = run_example("generate.py").removeprefix("ar: ").split("\ndflash: ")
    dflash, ddtree = rest.removesuffix("\n").split("\nddtree: ")
    texts = {part.partition("\n")[2] for part in (ar, dflash, ddtree)}
    assert len(texts) == 1
    assert "spoon" in texts.pop()


def test_chat_client(server_url: str) -> None:
    out = run_example("chat_client.py", server_url)
    assert "Paris" in out
    assert "tokens; " in out
