import numpy as np
import pytest
from tiny_models import TinyShape, write_constant_pair, write_drafter, write_target
from tiny_tokenizer import write_tokenizer

from treegraft import LLM, SamplingParams
from treegraft.engine.config import EngineConfig
from treegraft.engine.round import RoundTrace
from treegraft.errors import UsageError
from treegraft.speculation.accept import Acceptance
from treegraft.speculation.statistics import is_loop
from treegraft.speculation.tree import DraftTree
from treegraft.training.evaluate import EvalPrompt, _Nodes, evaluate

CHAT = "{% for m in messages %}U{{ m.content }}Z{% endfor %}{% if add_generation_prompt %}A{% endif %}"
SHAPE = TinyShape(vocab_size=62, scale=2.0)
PROMPTS = [EvalPrompt(f"p{n}", "one" if n % 2 else "two", text) for n, text in enumerate(["abc", "hello", "Q", "xyz0"])]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    target = write_tokenizer(write_target(tmp_path_factory.mktemp("target"), SHAPE), 62, CHAT)
    return target, write_drafter(tmp_path_factory.mktemp("drafter"), SHAPE, norm=0.3)


def config(target, drafter):
    return EngineConfig(str(target), str(drafter), device="cpu", dtype="float32")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_tau_is_that_of_the_engines_accept_lengths(pair, temperature):
    target, drafter = pair
    found = evaluate(config(target, drafter), PROMPTS, [6], [temperature], 40)
    for method, options in (("chain", {"method": "dflash"}), ("tree6", {"method": "ddtree", "budget": 6})):
        taus, loops = {}, {}
        with LLM(str(target), drafter=str(drafter), dtype="float32", device="cpu", **options) as llm:
            for seed, prompt in enumerate(PROMPTS):
                params = SamplingParams(max_tokens=40, temperature=temperature, seed=seed)
                [completion] = llm.generate(f"U{prompt.text}ZA", params)
                taus[prompt.id], loops[prompt.id] = completion.tau, is_loop(completion.token_ids)
        for category in ("one", "two", "all"):
            own = [p.id for p in PROMPTS if category in (p.category, "all")]
            straight = [taus[i] for i in own if not loops[i]]
            [m] = [m for m in found.measured if (m.method, m.category) == (method, category)]
            assert m.tau == pytest.approx(np.mean(straight) if straight else 0.0)
            assert m.tau_with_loops == pytest.approx(np.mean([taus[i] for i in own]))
            assert (m.num_prompts, m.num_loops) == (len(straight), len(own) - len(straight))
        [nodes] = [n for n in found.nodes if n.method == method]
        assert sum(count for _, _, count in nodes.calibration_spine) > 0
        assert all(0 <= share <= 1 for share in (*nodes.hits_by_depth, *nodes.sibling_share))


def test_loops_are_left_out_and_counted(tmp_path):
    target, drafter = write_constant_pair(tmp_path, TinyShape(vocab_size=62), token=7, block_size=5)
    write_tokenizer(target, 62, CHAT)
    found = evaluate(config(target, drafter), PROMPTS, [], [0.0], 61)
    assert {m.category for m in found.measured} == {"one", "two", "all"}
    for m in found.measured:
        assert (m.tau, m.num_prompts) == (0.0, 0)
        assert m.num_loops == (4 if m.category == "all" else 2)
        assert m.tau_with_loops == pytest.approx(5.0)


def test_a_model_without_a_template_is_refused(pair, tmp_path):
    _, drafter = pair
    mute = write_tokenizer(write_target(tmp_path, SHAPE), 62)
    with pytest.raises(UsageError, match="chat template"):
        evaluate(config(mute, drafter), PROMPTS, [], [0.0], 8)


def trace(parents, probabilities, path):
    """Round of a tree with each node's probability given its parent."""
    depths, sums = [], []
    for parent, probability in zip(parents, probabilities, strict=True):
        depths.append(1 + (depths[parent] if parent >= 0 else 0))
        sums.append(np.log(probability) + (sums[parent] if parent >= 0 else 0.0))
    size = len(parents)
    tree = DraftTree(np.arange(size), np.array(parents), np.array(depths), np.array(sums, np.float32))
    return RoundTrace("r", 0, tree, Acceptance(np.array(path, np.int64), 1))


def test_hits_siblings_and_calibration_of_known_rounds():
    """Nodes: 0 and 1 below the root, 2 and 3 below 0, 4 below 1."""
    parents, probabilities = [-1, -1, 0, 0, 1], [0.65, 0.25, 0.85, 0.05, 0.45]
    nodes = _Nodes()
    for path in ([0, 2], [0], [1, 4], []):
        nodes.add(trace(parents, probabilities, path))
    found = nodes.summary("tree5", 0.0)
    assert found.hits_by_depth == (3 / 4, 2 / 3)
    assert found.sibling_share == (1 / 3, 0.0)
    spine = {round(p, 2): (share, count) for p, share, count in found.calibration_spine}
    assert spine == {0.65: (0.5, 4), 0.25: (0.25, 4), 0.85: (0.5, 2), 0.05: (0.0, 2)}
    assert [(round(p, 2), share, count) for p, share, count in found.calibration_siblings] == [(0.45, 1.0, 1)]
