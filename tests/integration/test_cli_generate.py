"""`treegraft generate` and `pull` with real models: output, exit codes; streams in a process of their own."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tiny_models import TinyShape, write_drafter, write_target
from tiny_tokenizer import write_tokenizer

from treegraft.cli.main import main
from treegraft.engine.config import DEFAULT_BUDGET

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_logging")]
CHAT = "{% for m in messages %}{{ m.content }}{% endfor %}z"


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


Treegraft = Callable[..., Done]


@pytest.fixture
def treegraft(capsys: pytest.CaptureFixture[str]) -> Treegraft:
    """The command in this process: torch is loaded once."""

    def run(*words: str) -> Done:
        capsys.readouterr()
        code = main(words)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny target that knows letters, with a chat template."""
    shape = TinyShape(vocab_size=26)
    folder = write_target(tmp_path_factory.mktemp("target"), shape)
    return write_tokenizer(folder, 26, CHAT)


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_drafter(tmp_path_factory.mktemp("drafter"), TinyShape(vocab_size=26))


def document(done: Done) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_json_and_text_say_the_same(treegraft: Treegraft, model: Path, drafter: Path) -> None:
    words = ["generate", "abc", "--model", str(model), "--drafter", str(drafter), "--max-tokens", "12"]
    found = document(treegraft(*words, "--json"))
    plain = treegraft(*words)
    assert plain.stdout == found["text"] + "\n"
    method = f"ddtree {DEFAULT_BUDGET['cpu']}"
    assert plain.stderr.startswith(f"[{method}: 12 tokens in {found['rounds']} rounds, tau {found['tau']:.2f}, ")
    assert len(found["token_ids"]) == 12
    assert sum(found["accept_lengths"]) == 11
    assert found["finish_reason"] == "length"
    # a b c z: the template's letter included
    assert found["prompt_tokens"] == 4


def test_the_same_seed_gives_the_same_text_with_every_method(treegraft: Treegraft, model: Path, drafter: Path) -> None:
    words = ["generate", "abc", "--model", str(model), "--drafter", str(drafter), "--max-tokens", "16", "--json"]
    first = document(treegraft(*words, "--temperature", "1", "--method", "ar"))
    seed = ["--temperature", "1", "--seed", str(first["seed"])]
    for method in (["--method", "dflash"], ["--method", "ddtree", "--budget", "5"]):
        assert document(treegraft(*words, *seed, *method))["text"] == first["text"]


def test_trace_shows_every_round(treegraft: Treegraft, model: Path, drafter: Path) -> None:
    words = ["generate", "abc", "--model", str(model), "--drafter", str(drafter), "--max-tokens", "12", "--trace"]
    found = document(treegraft(*words, "--budget", "6", "--json"))
    shown = treegraft(*words, "--budget", "6").stdout
    assert shown.count("(root)") == shown.count("-> ") == found["rounds"] == len(found["rounds_trace"])
    assert shown.endswith(found["text"] + "\n")
    for line, trace in zip(
        [line for line in shown.splitlines() if line.startswith("round")], found["rounds_trace"], strict=True
    ):
        assert f": {len(trace['token_ids'])} nodes, {len(trace['accepted']) + 1} tokens committed" in line


def test_raw_leaves_the_template_out_and_the_prompt_may_come_from_stdin(
    treegraft: Treegraft, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--model", str(model), "--drafter", "none", "--max-tokens", "4", "--raw", "--json"]
    given = document(treegraft("generate", "abc", *words))
    monkeypatch.setattr(sys, "stdin", io.StringIO("abc"))
    piped = document(treegraft("generate", "-", *words))
    assert given["prompt_tokens"] == 3
    assert piped["text"] == given["text"]
    assert given["engine"]["method"] == "ar"


def test_streams_stop_quietly_when_the_reader_goes_away(model: Path) -> None:
    command = f"{sys.executable} -m treegraft generate abc --model {model} --drafter none --max-tokens 200 | head -c 1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert len(done.stdout) == 1
    assert "Traceback" not in done.stderr
    assert "error" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--max-tokens", "-3"], 2, "max_tokens is -3; expected at least 1"),
        (["--temperature", "-1"], 2, "temperature is -1.0"),
        (["--top-p", "0"], 2, "top_p is 0.0"),
        (["--max-tokens", "100000"], 2, "exceeds the context of 512 tokens"),
        (["--max-context", "100000"], 2, "the model's own limit is 512 tokens"),
        (["--method", "ddtree"], 2, "needs a drafter"),
        (["--device", "tpu"], 2, "device is 'tpu'"),
        (["--raw", "--system", "x"], 2, "--system needs a chat template, and --raw is given"),
        (["--model", "no-such-model"], 2, "unknown model 'no-such-model'"),
    ],
)
def test_bad_input_is_one_line(treegraft: Treegraft, model: Path, words: list[str], code: int, said: str) -> None:
    done = treegraft("generate", "abc", "--model", str(model), "--drafter", "none", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("treegraft: error: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_a_drafter_of_another_target_is_refused_by_name(
    treegraft: Treegraft, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = write_drafter(tmp_path_factory.mktemp("other"), TinyShape(vocab_size=26, hidden_size=64))
    done = treegraft("generate", "abc", "--model", str(model), "--drafter", str(other))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("treegraft: error: ")
    assert "hidden" in done.stderr


def test_a_model_that_was_not_pulled_names_the_command(
    treegraft: Treegraft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREEGRAFT_CACHE_DIR", str(tmp_path))
    done = treegraft("generate", "hello")
    assert done.returncode == 1
    assert "treegraft pull smollm2-135m" in done.stderr


def test_pull_checks_a_folder(treegraft: Treegraft, model: Path, tmp_path: Path) -> None:
    found = document(treegraft("pull", str(model), "--json"))
    assert (found["kind"], found["architecture"], found["vocab_size"]) == ("folder", "llama", 26)
    assert treegraft("pull", str(tmp_path)).returncode != 0


def test_the_embedded_default_answers(treegraft: Treegraft, embedded_model: str) -> None:
    found = document(treegraft("generate", "What is the capital of France?", "--max-tokens", "16", "--json"))
    assert found["engine"]["model"] == embedded_model
    assert "Paris" in found["text"]
    assert found["finish_reason"] == "stop"
