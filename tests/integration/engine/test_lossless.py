"""Texts of all methods are the target's own, token by token; in fp32 they are identical."""

import random

import pytest
from engine_runs import params, run_jobs
from tiny_models import TinyShape, write_constant_pair, write_drafter, write_target

PROMPTS = [random.Random(n).choices(range(24), k=3 + 5 * n) for n in range(6)]
SAMPLINGS = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 8},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.1, "seed": 2**64 - 1},
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_methods_give_the_same_text(engines, sampling):
    jobs = [(prompt, params(**sampling)) for prompt in PROMPTS]
    ar, dflash, ddtree = (run_jobs(engines[method], jobs) for method in ("ar", "dflash", "ddtree"))
    assert [r.ids for r in ar] == [r.ids for r in dflash] == [r.ids for r in ddtree]
    assert [r.reason for r in ar] == [r.reason for r in ddtree]
    assert all(length == 1 for r in ar for length in r.accept_lengths)
    lengths = [length for r in ddtree for length in r.accept_lengths]
    assert max(lengths) > 2
    assert min(lengths) == 1
    assert sum(len(set(r.ids)) for r in ar) > 30  # no text that says one token for ever


@pytest.mark.parametrize("budget", [0, 1, 2, 7, 64])
def test_any_budget_gives_the_same_text(engines, make_engine, budget):
    jobs = [(prompt, params(temperature=t)) for prompt in PROMPTS[:3] for t in (0.0, 1.0)]
    expected = run_jobs(engines["ar"], jobs)
    found = run_jobs(make_engine("ddtree", budget), jobs)
    assert [r.ids for r in found] == [r.ids for r in expected]


def test_a_mixed_batch_gives_each_row_its_solo_text_and_accept_lengths(engines):
    samplings = [SAMPLINGS[n % len(SAMPLINGS)] | {"seed": n, "max_tokens": 10 + n} for n in range(16)]
    jobs = [(PROMPTS[n % len(PROMPTS)] + [n], params(**sampling)) for n, sampling in enumerate(samplings)]
    together = run_jobs(engines["ddtree"], jobs)
    for job, expected in zip(jobs, together, strict=True):
        [solo] = run_jobs(engines["ddtree"], [job])
        assert solo.ids == expected.ids
        assert solo.accept_lengths == expected.accept_lengths


def test_a_seed_can_be_had_again_and_choices_differ(engines):
    job = (PROMPTS[2], params(temperature=3.0, seed=None))
    [first] = run_jobs(engines["ddtree"], [job])
    [again] = run_jobs(engines["ar"], [(PROMPTS[2], params(temperature=3.0, seed=first.seed))])
    assert again.ids == first.ids
    [other] = run_jobs(engines["ar"], [(PROMPTS[2], params(temperature=3.0, seed=first.seed, choice=1))])
    assert other.ids != first.ids


@pytest.mark.parametrize(
    "shape",
    [
        TinyShape(scale=2.0, tie_embeddings=False),
        TinyShape(scale=2.0, architecture="qwen3", num_kv_heads=4),
        TinyShape(scale=2.0, architecture="qwen3", sliding_window=6),
        TinyShape(scale=2.0, vocab_size=23, num_kv_heads=1),
    ],
    ids=["untied", "qwen3", "sliding-window", "odd-vocabulary"],
)
def test_target_kinds(make_engine, tmp_path, shape):
    target, drafter = write_target(tmp_path / "t", shape), write_drafter(tmp_path / "d", shape, norm=0.2)
    jobs = [([n % shape.vocab_size for n in prompt], params(temperature=t)) for prompt in PROMPTS for t in (0.0, 1.0)]
    expected = run_jobs(make_engine("ar", model=str(target)), jobs)
    found = run_jobs(make_engine("ddtree", model=str(target), drafter=str(drafter)), jobs)
    assert [r.ids for r in found] == [r.ids for r in expected]
    assert max(length for r in found for length in r.accept_lengths) > 2


@pytest.mark.parametrize(
    "shape",
    [TinyShape(), TinyShape(tie_embeddings=False), TinyShape(vocab_size=29), TinyShape(vocab_size=64)],
    ids=["tied", "untied", "odd", "padded"],
)
@pytest.mark.parametrize("method", ["dflash", "ddtree"])
def test_a_drafter_that_copies_the_target_is_accepted_whole(make_engine, tmp_path, shape, method):
    target, drafter = write_constant_pair(tmp_path, shape, token=5)
    engine = make_engine(method, None, model=str(target), drafter=str(drafter))
    [result] = run_jobs(engine, [([1, 2, 3], params(max_tokens=26))])
    assert set(result.ids) == {5}
    assert result.accept_lengths == [5] * 5


def test_beyond_the_drafters_context_a_request_goes_on_without_it(make_engine, tmp_path, caplog):
    short = write_drafter(tmp_path / "short", TinyShape(scale=2.0, max_context=32), norm=0.2)
    engine = make_engine("ddtree", 24, drafter=str(short))
    prompt = PROMPTS[3]
    with caplog.at_level("WARNING", logger="treegraft"):
        [found] = run_jobs(engine, [(prompt, params(max_tokens=40))])
    [expected] = run_jobs(make_engine("ar"), [(prompt, params(max_tokens=40))])
    assert found.ids == expected.ids
    assert found.accept_lengths[-5:] == [1] * 5
    assert caplog.text.count("beyond the drafter's context") == 1


@pytest.mark.parametrize("method", ["dflash", "ddtree"])
def test_the_drafter_knows_the_noise(make_engine, tmp_path, method):
    """Where the drafter's distribution is the target's, so is its draw: at a temperature that makes it a lottery of all
    tokens, the chain is accepted whole and the tree by far better than by chance."""
    target, drafter = write_constant_pair(tmp_path, TinyShape(), token=5)
    engine = make_engine(method, 24, model=str(target), drafter=str(drafter))
    [result] = run_jobs(engine, [([1, 2, 3], params(max_tokens=101, temperature=30.0))])
    assert len(set(result.ids)) > 15
    assert sum(result.accept_lengths) / len(result.accept_lengths) > (4.5 if method == "dflash" else 3)


def test_auto_on_a_cpu_speculates_for_few_and_not_for_many(engines, make_engine, device):
    if device != "cpu":
        pytest.skip("the limit is a CPU's")
    engine = make_engine("auto", None)
    jobs = [(prompt, params(max_tokens=30)) for prompt in PROMPTS[:5]]
    many, few = run_jobs(engine, jobs), run_jobs(engine, jobs[:2])
    expected = run_jobs(engines["ar"], jobs)
    assert [r.ids for r in many] == [r.ids for r in expected]
    assert [r.ids for r in few] == [r.ids for r in expected[:2]]
    assert {length for r in many for length in r.accept_lengths} == {1}
    assert max(length for r in few for length in r.accept_lengths) > 1
    fresh = run_jobs(make_engine("ddtree", 8), jobs[:2])
    assert [r.accept_lengths for r in few] == [r.accept_lengths for r in fresh], "AR rounds left a gap in the context"
