"""env check, env diff and env plan as commands, on the story's environments."""

import json
from pathlib import Path

import msgspec
import pytest
from transplant import Story, pydantic_toy
from worlds.venvs import quick_venv

from treegraft.cli.main import main
from treegraft.environments.findings import CheckReport
from treegraft.environments.plan import Plan
from treegraft.records import from_json, to_json

pytestmark = pytest.mark.usefixtures("own_index", "own_logging")


def test_check_prints_findings_and_exits_3_when_one_blocks(story: Story, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = str(story.source_venv.prefix)
    assert main(["env", "check", prefix, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document)[:2] == ["kind", "version"]
    report = from_json(CheckReport, json.dumps(document))
    assert {f.rule for f in report.findings if f.dist == "sglang"} >= {"dist.modified", "dist.unowned"}
    gone = story.source_venv.site_packages / "sgl_kernel/common_ops.abi3.so"
    data = gone.read_bytes()
    gone.unlink()
    try:
        assert main(["env", "check", prefix]) == 3
    finally:
        gone.write_bytes(data)
    assert "BLOCK dist.missing-file" in capsys.readouterr().out


def test_check_against_index(story: Story, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "check", str(story.source_venv.prefix), "--against-index", "sglang,pydantic_toy"]) == 0
    out = capsys.readouterr().out
    assert "the index version lacks sglang.srt.speculative.ddtree_utils" in out
    assert "pydantic-toy 2.1 is identical to the index version" in out


def test_diff_shows_patches(story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean = quick_venv(tmp_path / "clean", story.toys.python, [story.toys.sglang()])
    page = tmp_path / "diff.html"
    assert main(["env", "diff", str(clean.prefix), str(story.source_venv.prefix), "--html", str(page)]) == 0
    out = capsys.readouterr().out
    assert "new module sglang.srt.speculative.dflash_worker" in out
    assert "+ALGORITHMS = ['EAGLE', 'DFLASH', 'DDTREE']" in out
    assert "DDTREE" in page.read_text()
    assert main(["env", "diff", str(clean.prefix), str(story.source_venv.prefix), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    relations = {d["name"]: d["relation"] for d in document["dists"]}
    assert (relations["sglang"], relations["torch"]) == ("patched", "only-right")


def test_plan_writes_a_plan_and_says_whether_it_is_blocked(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, base, shell = (tmp_path / f"{n}.json" for n in ("source", "base", "shell"))
    for path, inventory in ((source, story.source), (base, story.base), (shell, story.shell)):
        path.write_text(to_json(inventory))
    out = tmp_path / "plan.json"
    words = ["env", "plan", "--take", "sglang", "--from", str(source), "--to", str(shell), "--base", str(base)]
    assert main([*words, "--out", str(out)]) == 0
    plan = from_json(Plan, out.read_bytes())
    assert plan.hash == plan.computed_hash()
    assert "torch" in capsys.readouterr().out
    assert main([*words, "--keep", "torch"]) == 3
    assert "BLOCKED" in capsys.readouterr().out


def test_plan_of_a_folder(story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "patches" / "sglang"
    folder.mkdir(parents=True)
    (folder / "fresh.py").write_text("x = 1\n")
    words = ["env", "plan", "--from", str(folder.parent), "--base", str(story.base_venv.prefix)]
    words += ["--to", str(story.base_venv.prefix.parent / "shell"), "--json"]
    assert main([*words, "--take", "sglang"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert any(f["rule"] == "resolve.patch-base" for f in document["findings"])
    main([*words, "--take", "sglang==0.5.17"])
    document = json.loads(capsys.readouterr().out)
    (sglang,) = [d for d in document["dists"] if d["name"] == "sglang"]
    assert (sglang["action"], sglang["added_files"]) == ("patch", ["sglang/fresh.py"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--take", ",", "--from", "a.json", "--to", "new"], "names no distribution"),
        (["--take", "x", "--from", "gone.json", "--to", "new"], "cannot be read"),
    ],
)
def test_usage_errors(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "plan", *words]) == 2
    assert text in capsys.readouterr().err


def test_to_new_needs_a_host(story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "source.json"
    path.write_text(to_json(story.source))
    assert main(["env", "plan", "--take", "sglang", "--from", str(path), "--to", "new"]) == 2
    assert "--to new needs the host" in capsys.readouterr().err


def test_ends_that_are_no_environment(story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said, and never planned over: a file or a loop of links at the target, a plain folder as the base."""
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    words = ["env", "plan", "--take", "sglang", "--from", str(story.source_venv.prefix)]
    for name, reason in (("file", "is a file"), ("loop", "too many levels of symbolic links")):
        assert main([*words, "--to", str(tmp_path / name)]) == 1
        assert reason in capsys.readouterr().err
    assert main([*words, "--to", "new", "--base", str(tmp_path / "folder")]) == 2
    assert "is no environment" in capsys.readouterr().err
    host_alone = tmp_path / "host.json"
    host_alone.write_text(to_json(msgspec.structs.replace(story.shell, environment=None)))
    assert main(["env", "check", str(host_alone)]) == 2
    assert "of a host alone" in capsys.readouterr().err


def test_a_base_without_interpreter_blocks(story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its copy would have none either. What the probe missed is said as well."""
    base = quick_venv(tmp_path / "base", story.toys.python, [*story.toys.torch(13), pydantic_toy()])
    (base.prefix / "bin" / "python").unlink()
    (base.prefix / "bin" / "python").symlink_to("/gone/python3.11")
    words = ["--take", "sglang", "--from", str(story.source_venv.prefix), "--to", "new", "--base", str(base.prefix)]
    assert main(["env", "plan", *words, "--json"]) == 3
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [f["rule"] for f in findings if f["level"] == "block"] == ["venv.relocation"]
    (partial,) = [f for f in findings if f["rule"] == "inventory.partial"]
    assert "leads nowhere: it is a link to /gone/python3.11" in partial["evidence"]
    assert main(["env", "check", str(base.prefix)]) == 3
    assert "inventory.partial" in capsys.readouterr().out
