"""The Python API: what it takes, what it refuses, and that nothing is left behind."""

import gc
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_runs import params, run_jobs

from treegraft import LLM, SamplingParams
from treegraft.engine.request import Request
from treegraft.errors import ContextTooLongError, UsageError

SHORT = SamplingParams(max_tokens=5, seed=1)


@pytest.fixture(scope="module")
def llm(target, drafter, device):
    with LLM(str(target), drafter=str(drafter), budget=24, device=device, dtype="float32") as llm:
        yield llm


def ids(completions):
    return [completion.token_ids for completion in completions]


def test_token_ids_in_every_container(llm):
    [one], [other] = ids(llm.generate([1, 2, 3], SHORT)), ids(llm.generate([4, 5], SHORT))
    for prompt in (np.array([1, 2, 3]), torch.tensor([1, 2, 3]), (1, 2, 3), [np.int32(1), 2, 3], iter([1, 2, 3])):
        assert ids(llm.generate(prompt, SHORT)) == [one]
    for prompts in ([[1, 2, 3], (4, 5)], [np.array([1, 2, 3]), torch.tensor([4, 5])]):
        assert ids(llm.generate(prompts, [SHORT, SHORT])) == [one, other]
    assert ids(llm.generate(np.array([[1, 2, 3], [1, 2, 3]]), SHORT)) == [one, one]
    assert llm.generate([], SHORT) == []


@pytest.mark.parametrize(
    "prompts",
    [
        *(None, 5, "text", b"abc", {"a": 1}, {1, 2}, np.array([1.0])),
        *([None], [[]], [1.5], [[1.5]], [True], [[True]], [1, "a"], [1, [2]], [[[1]]], [["1"]], [b"a"]),
        *([10**30], [-1], [24]),
    ],
    ids=repr,
)
def test_what_is_no_prompt_is_a_usage_error(llm, prompts):
    with pytest.raises(UsageError):
        llm.generate(prompts, SHORT)
    assert not llm.engine.has_work()


@pytest.mark.parametrize("given", [5, "x", {"max_tokens": 3}, [None], [SHORT], [SHORT] * 3], ids=repr)
def test_what_are_no_params_is_a_usage_error(llm, given):
    with pytest.raises(UsageError, match="param"):
        llm.generate([[1], [2]], given)
    assert not llm.engine.has_work()


def test_one_prompt_too_long_runs_none(llm):
    with pytest.raises(ContextTooLongError):
        llm.generate([[1], [1] * 512], SHORT)
    assert not llm.engine.has_work()
    assert llm.engine.num_available_slots == llm.engine._scheduler.allocator.capacity


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_accept_lengths_and_the_prefill_token_are_all_tokens(llm, temperature):
    sampling = [SamplingParams(max_tokens=n, temperature=temperature, seed=n) for n in (1, 2, 30)]
    for completion, each in zip(llm.generate([[3, 1, 4]] * 3, sampling), sampling, strict=True):
        assert sum(completion.accept_lengths) + 1 == len(completion.token_ids) == each.max_tokens
        assert completion.finish_reason == "length"


def test_prompts_that_come_together_and_begin_alike_are_computed_once(llm, make_engine):
    prompt = random.Random(9).choices(range(24), k=50)
    found = llm.generate([prompt] * 4, [params(temperature=1.0, seed=n) for n in range(4)])
    assert [completion.cached_tokens for completion in found] == [0, 49, 49, 49]
    solo = [run_jobs(make_engine("ddtree"), [(prompt, params(temperature=1.0, seed=n))])[0] for n in range(4)]
    assert [list(completion.token_ids) for completion in found] == [result.ids for result in solo]


def test_a_request_id_in_use_is_refused(make_engine):
    engine = make_engine("ddtree")
    engine.add(Request(id="a", prompt_token_ids=(1, 2), params=SHORT))
    with pytest.raises(UsageError, match="'a' is in use"):
        engine.add(Request(id="a", prompt_token_ids=(3,), params=SHORT))
    engine.abort("a")
    [result] = run_jobs(engine, [([1, 2], SHORT)])
    [again] = run_jobs(engine, [([1, 2], SHORT)])
    assert result.ids == again.ids


@pytest.mark.parametrize("broken_call", range(1, 8, 2))
def test_an_interrupted_step_loses_no_slot_and_the_llm_goes_on(target, drafter, device, broken_call, monkeypatch):
    llm = LLM(Path(target), drafter=Path(drafter), budget=24, device=device, dtype="float32")
    [expected] = ids(llm.generate([1, 2, 3], params(temperature=1.0)))
    llm.engine.drop_cache()
    runner, calls = llm.engine._runner, []
    whole = runner.forward

    def interrupted(*arguments):
        calls.append(None)
        if len(calls) == broken_call:
            raise KeyboardInterrupt
        return whole(*arguments)

    monkeypatch.setattr(runner, "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([[1, 2, 3], [4, 5]], params(temperature=1.0, max_tokens=40))
    assert not llm.engine.has_work()
    assert llm.engine._sampler._noise == {}
    assert llm.engine.num_available_slots == llm.engine._scheduler.allocator.capacity
    assert ids(llm.generate([1, 2, 3], params(temperature=1.0))) == [expected]
    llm.close()


def test_a_closed_llm_says_so(target, device):
    with LLM(str(target), drafter=None, device=device) as llm:
        llm.generate([1], SHORT)
    llm.close()
    with pytest.raises(UsageError, match="closed"):
        llm.generate([1], SHORT)


def test_three_hundred_requests_leave_nothing_behind(llm):
    """Objects are counted, not bytes: the allocator's moods are none of ours."""

    def ask(number):
        prompt = random.Random(number).choices(range(24), k=5)
        llm.generate(prompt, SamplingParams(max_tokens=4, temperature=number % 2, seed=number))

    def num_objects():
        gc.collect()
        return len(gc.get_objects())

    for number in range(150):
        ask(number)
    llm.engine.drop_cache()
    before = num_objects()
    for number in range(150, 450):
        ask(number)
    llm.engine.drop_cache()
    assert num_objects() < before + 100
    assert llm.engine._sampler._noise == {}
    assert llm.engine._scheduler.request_ids == set()
    llm.engine._scheduler.check_idle()
