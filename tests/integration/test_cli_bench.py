"""`treegraft bench` end to end on a tiny model: tuning, report, record, comparison, and a real server as an arm."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tiny_models import TinyShape, write_drafter, write_target
from tiny_tokenizer import write_tokenizer

from treegraft.bench.record import BenchRecord, read_record
from treegraft.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_logging")]
ROOT = Path(__file__).resolve().parents[2]
CHAT = "{% for m in messages %}{{ m.content[:40] }}{% endfor %}z"
SHAPE = TinyShape(vocab_size=26)


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def run(*words: str) -> Done:
        capsys.readouterr()
        code = main(["bench", *words])
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that name a tiny target and drafter."""
    target = write_tokenizer(write_target(tmp_path_factory.mktemp("target"), SHAPE), 26, CHAT)
    drafter = write_drafter(tmp_path_factory.mktemp("drafter"), SHAPE)
    return ["--model", str(target), "--drafter", str(drafter)]


@pytest.fixture(scope="module")
def record(model: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whole run: budgets chosen on tune prompts, then the report."""
    logger = logging.getLogger("treegraft")
    before = logger.handlers[:], logger.level, logger.propagate
    path = tmp_path_factory.mktemp("results") / "methods.json"
    words = ["--limit", "2", "--tune-limit", "1", "--max-tokens", "8", "--budgets", "2,6", "--chains", "1,3"]
    assert main(["bench", "run", *words, "--repeats", "2", "--out", str(path), *model]) == 0
    logger.handlers, logger.level, logger.propagate = before
    return path


def test_record_holds_what_is_needed_to_judge_it(record: Path) -> None:
    found = read_record(record)
    assert isinstance(found, BenchRecord)
    assert found.report.arms[0].name == "ar"
    assert re.fullmatch(r"dflash [13]", found.report.arms[1].name)
    assert re.fullmatch(r"ddtree [26]", found.report.arms[2].name)
    assert len(found.report.samples) == 3 * 8 * 2
    assert found.tuning is not None
    assert [arm.name for arm in found.tuning.arms] == ["ar", "dflash 1", "dflash 3", "ddtree 2", "ddtree 6"]
    asked = {answer.prompt_id for sample in found.report.samples for answer in sample.answers}
    tuned = {answer.prompt_id for sample in found.tuning.samples for answer in sample.answers}
    assert asked
    assert not asked & tuned
    assert found.packages.keys() >= {"torch", "numpy"}
    assert found.machine.num_cores >= 1
    assert all(arm.config["dtype"] == "float32" for arm in found.report.arms)


def test_every_prefill_is_cold(record: Path) -> None:
    samples = read_record(record).report.samples
    assert {answer.cached_tokens for sample in samples for answer in sample.answers} == {0}


def test_all_methods_write_the_same_texts(record: Path) -> None:
    texts: dict[str, set[str]] = {}
    for sample in read_record(record).report.samples:
        for answer in sample.answers:
            texts.setdefault(answer.prompt_id, set()).add(answer.content_hash)
    assert {len(hashes) for hashes in texts.values()} == {1}


def test_report_and_compare_read_the_record(bench: Callable[..., Done], record: Path) -> None:
    text = bench("report", str(record))
    assert text.returncode == 0
    assert "chosen on other prompts" in text.stdout
    figures: dict[str, Any] = json.loads(bench("report", str(record), "--json").stdout)
    assert [arm["arm"] for arm in figures["report"]["arms"]] == [a.name for a in read_record(record).report.arms]
    same = json.loads(bench("compare", str(record), str(record), "--arm", "ar", "--json").stdout)
    assert (same["ratio"], same["sign_p"], same["different_texts"]) == (1.0, 1.0, [])


def test_concurrency_makes_arms_and_groups(bench: Callable[..., Done], model: list[str], tmp_path: Path) -> None:
    words = ["--methods", "ar", "--concurrency", "1,4", "--limit", "1", "--max-tokens", "4", "--repeats", "1"]
    assert bench("run", *words, "--out", str(tmp_path / "c.json"), *model).returncode == 0
    phase = read_record(tmp_path / "c.json").report
    assert [arm.name for arm in phase.arms] == ["ar x1", "ar x4"]
    assert [len(sample.answers) for sample in phase.samples] == [4, 4]
    assert phase.samples[0].answers[0].content_hash == phase.samples[1].answers[0].content_hash


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "magic"], "--methods has 'magic'"),
        (["--budgets", "x", "--methods", "ar,ddtree"], "--budgets is 'x'"),
        (["--categories", "poems"], "unknown prompt category 'poems'"),
        (["--repeats", "0"], "--repeats is 0"),
        (["--server", "ours"], "--server is 'ours'; expected NAME=URL"),
        (["--server", "ours=http://127.0.0.1:9"], "is the server up"),
        (["--concurrency", "64", "--methods", "ar"], "groups of 64"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_record(
    bench: Callable[..., Done], model: list[str], tmp_path: Path, words: list[str], said: str
) -> None:
    done = bench("run", "--limit", "1", "--max-tokens", "4", "--out", str(tmp_path / "r.json"), *model, *words)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def server_url(model: list[str]) -> Iterator[str]:
    """A real server of the tiny model on a free port."""
    target, drafter = model[1], model[3]
    command = [sys.executable, "-m", "treegraft", "serve", target, "--drafter", drafter, "--port", "0", "--json"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TREEGRAFT_LOG_LEVEL": "warning"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_a_server_is_an_arm(bench: Callable[..., Done], server_url: str, tmp_path: Path) -> None:
    arms = ["--server", f"one={server_url}", "--server", f"two={server_url}/v1"]
    out = tmp_path / "servers.json"
    words = ["run", *arms, "--limit", "3", "--max-tokens", "6", "--repeats", "1", "--out", str(out)]
    done = bench(*words)
    assert done.returncode == 0, done.stderr
    assert "every text equals one's" in done.stdout
    answers = [answer for sample in read_record(out).report.samples for answer in sample.answers]
    assert all(sum(answer.accept_lengths) == answer.completion_tokens - 1 for answer in answers)
