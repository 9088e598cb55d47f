"""`treegraft train`: the stages as one story on a tiny target, what they leave on disk, and what they refuse."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_models import TinyShape, write_target
from tiny_tokenizer import write_tokenizer

from treegraft import LLM, SamplingParams
from treegraft.cli.main import main
from treegraft.models import registry
from treegraft.training.card import read_card
from treegraft.training.corpus.shards import read_manifest, read_rows

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_logging")]
CHAT = (
    "{% for m in messages %}{{ 'U' if m.role == 'user' else 'A' }}{{ m.content }}Z{% endfor %}"
    "{% if add_generation_prompt %}A{% endif %}"
)
CONFIG = """
target = "{target}"
[data]
prompt_files = ["{prompts}"]
use_sharegpt_package = false
rows_per_shard = 32
row_tokens = 96
max_shards = 3
seconds = 0.0
min_reply_tokens = 12
[drafter]
block_size = 4
num_layers = 2
taps = [0, 2]
head_width = 8
initial = "random"
[run]
steps = {steps}
minutes = 0.0
rows = 8
anchors = 8
validate_rows = 4
"""


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Path:
    folder = write_target(tmp_path_factory.mktemp("target"), TinyShape(vocab_size=62, scale=1.2))
    return write_tokenizer(folder, 62, CHAT)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    letters = "abcdefghijklmnopqrstuvwxyz"
    texts = [letters[n % 20 : n % 20 + 6] + letters[n : n + 8] + str(n) for n in range(18)]
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def write_config(folder: Path, target: Path, prompts: Path, steps: int = 24) -> Path:
    path = folder / f"config{steps}.toml"
    path.write_text(CONFIG.format(target=target, prompts=prompts, steps=steps), encoding="utf-8")
    return path


def answer(capsys, *words: str) -> dict:
    capsys.readouterr()
    code = main([*words, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def refusal(capsys, *words: str) -> str:
    """The one line of a command that fails."""
    capsys.readouterr()
    assert main(list(words)) != 0
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if "error:" in line]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    return lines[0]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, target, prompts) -> tuple[Path, Path]:
    """(configuration, corpus folder)."""
    folder = tmp_path_factory.mktemp("corpus")
    config = write_config(folder, target, prompts)
    assert main(["train", "data", str(config), "--corpus", str(folder / "corpus")]) == 0
    return config, folder / "corpus"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, corpus) -> Path:
    run = tmp_path_factory.mktemp("run") / "run"
    config, folder = corpus
    assert main(["train", "run", str(config), "--corpus", str(folder), "--run-dir", str(run)]) == 0
    return run


def test_a_corpus_is_what_its_manifest_says(corpus):
    _, folder = corpus
    manifest = read_manifest(folder)
    assert manifest is not None
    assert len(manifest.shards) == 3
    seen: set[int] = set()
    for split in ("train", "validation", "report"):
        rows = read_rows(folder, manifest, split)
        hashes = set(rows.prompt_hash.tolist())
        assert not seen & hashes, "a prompt lies in one split only"
        seen |= hashes
        assert ((rows.kinds > 0).sum(1) >= 12).all()
        assert (rows.kinds <= len(manifest.temperatures)).all()
    assert sum(shard.num_rows for shard in manifest.shards) == sum(
        len(read_rows(folder, manifest, split)) for split in ("train", "validation", "report")
    )


def test_a_corpus_goes_on_where_it_stopped(corpus, tmp_path, capsys):
    """Made in two goes it is byte for byte the corpus made in one."""
    config, whole = corpus
    parts = tmp_path / "corpus"
    short = tmp_path / "short.toml"
    short.write_text(config.read_text().replace("max_shards = 3", "max_shards = 1"))
    answer(capsys, "train", "data", str(short), "--corpus", str(parts))
    assert len(list(parts.glob("*.safetensors"))) == 1
    (parts / "shard-00001.safetensors.part").write_bytes(b"cut short")
    answer(capsys, "train", "data", str(config), "--corpus", str(parts))
    first, second = (
        {p.name: p.read_bytes() for p in sorted(place.glob("shard-*.safetensors"))} for place in (whole, parts)
    )
    assert first == second


def test_another_recipe_and_damaged_shards_are_refused(corpus, tmp_path, capsys):
    config, folder = corpus
    other = tmp_path / "other.toml"
    other.write_text(config.read_text().replace("row_tokens = 96", "row_tokens = 80"))
    assert "another recipe" in refusal(capsys, "train", "data", str(other), "--corpus", str(folder))
    copy = tmp_path / "corpus"
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    shard = copy / "shard-00001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    words = ("train", "run", str(config), "--corpus", str(copy), "--run-dir", str(tmp_path / "run"))
    assert "shard-00001.safetensors differs from its hash" in refusal(capsys, *words)
    shard.unlink()
    assert "shard-00001.safetensors is missing" in refusal(capsys, *words)


def test_from_a_run_to_a_served_drafter(trained, target, tmp_path, capsys):
    folders = {form: tmp_path / form for form in ("bf16", "stock", "int8")}
    for form, folder in folders.items():
        found = answer(capsys, "train", "export", str(trained), str(folder), "--format", form)
        assert found["num_bytes"] == (folder / "model.safetensors").stat().st_size
        card = read_card(folder)
        assert (card.training_steps, card.training_device, card.optimiser) == (24, "cpu", "muon")
        assert card.head == ("none" if form == "stock" else "pairwise, width 8")
        assert card.weights == ("int8" if form == "int8" else "bf16")
    stock = json.loads((folders["stock"] / "config.json").read_text())
    assert not [key for key in stock if key.startswith("treegraft")]
    assert not [name for name in load_file(folders["stock"] / "model.safetensors") if name.startswith("head")]
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    with LLM(str(target), drafter=None, dtype="float32") as llm:
        [expected] = llm.generate("abcdef", params)
    for folder in folders.values():
        with LLM(str(target), drafter=str(folder), method="ddtree", budget=6, dtype="float32") as llm:
            [completion] = llm.generate("abcdef", params)
        assert completion.token_ids == expected.token_ids
        assert sum(completion.accept_lengths) == 23
    assert "is not empty" in refusal(capsys, "train", "export", str(trained), str(folders["int8"]))


def test_int8_is_the_run_within_its_rounding(trained, tmp_path, target, capsys):
    answer(capsys, "train", "export", str(trained), str(tmp_path / "int8"), "--format", "int8")
    answer(capsys, "train", "export", str(trained), str(tmp_path / "bf16"), "--format", "bf16")
    model = registry.load_target(registry.resolve(str(target)), torch.float32, "cpu")
    one, other = (
        registry.load_drafter(registry.resolve(str(tmp_path / form)), model, torch.float32, "cpu")
        for form in ("int8", "bf16")
    )
    ours, theirs = one.fc.weight, other.fc.weight
    assert not torch.equal(ours, theirs)
    assert ((ours - theirs).abs().amax(1) <= theirs.abs().amax(1) / 127).all()


def test_evaluation_fills_the_card(trained, target, tmp_path, capsys):
    drafter = tmp_path / "drafter"
    answer(capsys, "train", "export", str(trained), str(drafter))
    words = ("train", "evaluate", "--model", str(target), "--drafter", str(drafter), "--card", str(drafter))
    sizes = ("--budgets", "4,8", "--temperatures", "0,1", "--max-tokens", "12", "--split", "tune", "--limit", "1")
    found = answer(capsys, *words, *sizes)
    methods = {(m["method"], m["temperature"]) for m in found["measured"]}
    assert methods == {(m, t) for m in ("chain", "tree4", "tree8") for t in (0.0, 1.0)}
    for m in found["measured"]:
        assert m["num_prompts"] + m["num_loops"] <= 4
        assert m["tau"] == 0.0 or 1.0 <= m["tau"] <= 4.0
    card = read_card(drafter)
    assert len(card.measured) == len(found["measured"])
    text = (drafter / "README.md").read_text()
    assert "| 0 | tree8 |" in text
    assert "| 1 | chain |" in text


def test_adapt_starts_from_the_drafter(trained, corpus, tmp_path, capsys):
    config, folder = corpus
    drafter = tmp_path / "drafter"
    answer(capsys, "train", "export", str(trained), str(drafter))
    words = ("train", "adapt", str(config), "--corpus", str(folder), "--drafter", str(drafter))
    found = answer(capsys, *words, "--run-dir", str(tmp_path / "adapted"), "--stop-after", "0")
    assert not found["is_done"]
    before = load_file(trained / "checkpoint" / "state.safetensors")
    after = load_file(tmp_path / "adapted" / "checkpoint" / "state.safetensors")
    fresh = tmp_path / "fresh"
    answer(capsys, "train", "run", str(config), "--corpus", str(folder), "--run-dir", str(fresh), "--stop-after", "0")
    random = load_file(fresh / "checkpoint" / "state.safetensors")
    near, far = ((before["master.fc"] - state["master.fc"]).norm() for state in (after, random))
    assert near < far / 2
    assert "cannot be the start" in refusal(
        capsys,
        *words[:2],
        str(_with(config, tmp_path, "block_size = 4", "block_size = 5")),
        *words[3:],
        "--run-dir",
        "x",
    )


def _with(config: Path, folder: Path, old: str, new: str) -> Path:
    path = folder / "changed.toml"
    text = config.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def test_the_report_needs_nothing_else(trained):
    text = (trained / "report.html").read_text()
    assert "<svg" in text
    assert "block_size = 4" in text
    for word in ("http://", "https://", "<script src", "<link", "@import"):
        assert word not in text


@pytest.fixture(scope="module")
def whole(tmp_path_factory, corpus) -> tuple[Path, dict[str, torch.Tensor]]:
    """A configuration of more steps, and what a run of it ends with that nobody stops."""
    config, folder = corpus
    place = tmp_path_factory.mktemp("whole")
    text = config.read_text().replace("steps = 24", "steps = 320")
    path = place / "long.toml"
    path.write_text(text.replace("validate_rows = 4", "validate_rows = 4\ncheckpoint_minutes = 0.001"))
    assert main(["train", "run", str(path), "--corpus", str(folder), "--run-dir", str(place / "run")]) == 0
    return path, load_file(place / "run" / "checkpoint" / "state.safetensors")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)])
def test_an_interrupted_run_goes_on_exactly(whole, corpus, tmp_path, capsys, number, code):
    """Stopped in the middle, its last checkpoint stands; the next call ends as the run that was not stopped."""
    config, expected = whole
    words = ["train", "run", str(config), "--corpus", str(corpus[1]), "--run-dir", str(tmp_path / "run")]
    state = tmp_path / "run" / "checkpoint" / "state.json"
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "treegraft", *words], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 120
    while not state.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate()
    assert (process.returncode, b"Traceback" in err) == (code, False), err
    found = answer(capsys, *words)
    assert (found["is_done"], found["steps"]) == (True, 320)
    ended = load_file(state.with_name("state.safetensors"))
    assert all(torch.equal(ended[name], tensor) for name, tensor in expected.items())
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)


def test_bad_input_is_one_line(corpus, target, prompts, tmp_path, capsys):
    config, folder = corpus
    run = ("--corpus", str(folder), "--run-dir", str(tmp_path / "run"))
    unknown = _with(config, tmp_path, "[run]", "[run]\nspeed = 9")
    assert "speed" in refusal(capsys, "train", "run", str(unknown), *run)
    assert "holds no corpus" in refusal(
        capsys, "train", "run", str(config), "--corpus", str(tmp_path), "--run-dir", str(tmp_path / "run")
    )
    assert "train first" in refusal(capsys, "train", "export", str(tmp_path), str(tmp_path / "out"))
    smaller = write_tokenizer(
        write_target(_folder(tmp_path / "smaller"), TinyShape(vocab_size=61, scale=1.2)), 61, CHAT
    )
    swapped = _with(config, tmp_path, str(target), str(smaller))
    assert "make a corpus with the target itself" in refusal(capsys, "train", "run", str(swapped), *run)
    silent = tmp_path / "silent.jsonl"
    silent.write_text(json.dumps({"messages": [{"role": "assistant", "content": "only an answer, and no question"}]}))
    no_user = _with(config, tmp_path, str(prompts), str(silent))
    assert "no user turn" in refusal(capsys, "train", "data", str(no_user), "--corpus", str(tmp_path / "c1"))
    other = write_tokenizer(
        write_target(_folder(tmp_path / "mute"), TinyShape(vocab_size=62)), 62, "{{ messages[0].content }}"
    )
    mute = _with(config, tmp_path, str(target), str(other))
    assert "chat template" in refusal(capsys, "train", "data", str(mute), "--corpus", str(tmp_path / "c2"))
    odd = _folder(tmp_path / "odd")
    (odd / "config.json").write_text(json.dumps({"architectures": ["MambaForCausalLM"], "model_type": "mamba"}))
    unsupported = _with(config, tmp_path, str(target), str(odd))
    assert "Mamba" in refusal(capsys, "train", "data", str(unsupported), "--corpus", str(tmp_path / "c3"))


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_full_disk_loses_nothing(corpus, tmp_path, capsys):
    """What does not fit is an error of one line; what was written before stays, and nothing half-written."""
    config, folder = corpus
    place, run = tmp_path / "corpus", tmp_path / "run"
    script = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from treegraft.cli.main import main\n"
        "import torch\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))\n"
        "sys.exit(main(sys.argv[2:]))\n"
    )
    train = ["train", "run", str(config), "--corpus", str(folder), "--run-dir", str(run)]
    answer(capsys, *train, "--stop-after", "0")
    state = run / "checkpoint" / "state.safetensors"
    before = state.read_bytes()
    shard = folder / "shard-00000.safetensors"
    for file, words in ((shard, ["train", "data", str(config), "--corpus", str(place)]), (state, train)):
        size = str(file.stat().st_size // 2)
        done = subprocess.run([sys.executable, "-c", script, size, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert "cannot be written" in done.stderr
    assert not list(place.glob("*.safetensors*"))
    assert state.read_bytes() == before
    assert not list(run.glob("checkpoint.*"))
    file = tmp_path / "file"
    file.touch()
    assert "cannot be made" in refusal(capsys, *train[:-1], str(file / "run"))


def test_two_processes_train_one_drafter(corpus, tmp_path, capsys):
    """torchrun: rows of their own, one set of files; it learns what one process learns from all the rows."""
    config, folder = corpus
    halves = _with(config, tmp_path, "rows = 8", "rows = 4")
    run = tmp_path / "run"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "treegraft"]
    words = ["train", "run", str(halves), "--corpus", str(folder), "--run-dir", str(run), "--json"]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *torchrun, *words], capture_output=True, text=True, env=variables, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert (found["steps"], found["is_done"]) == (24, True)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == sorted(
        {line["step"] for line in lines if "loss" in line}
    )
    alone = tmp_path / "alone"
    answer(capsys, "train", "run", str(config), "--corpus", str(folder), "--run-dir", str(alone))
    losses = [
        [json.loads(line)["loss"] for line in (place / "metrics.jsonl").read_text().splitlines() if "loss" in line]
        for place in (run, alone)
    ]
    assert losses[0][-1] == pytest.approx(losses[1][-1], rel=0.2)
    # Its checkpoint is of two processes: one alone would deal the rows otherwise.
    assert "another configuration" in refusal(capsys, *words[:-1])
