"""Stops inside an accepted run: ids, reason and text equal AR's at every offset."""

import pytest
from engine_runs import params, run_jobs
from tiny_models import TinyShape, write_constant_pair, write_drafter, write_target
from tiny_tokenizer import write_tokenizer

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_max_tokens_at_every_offset(engines, temperature):
    [whole] = run_jobs(engines["ar"], [(PROMPT, params(max_tokens=30, temperature=temperature))])
    for count in range(1, 31):
        [found] = run_jobs(engines["ddtree"], [(PROMPT, params(max_tokens=count, temperature=temperature))])
        assert found.ids == whole.ids[:count]
        assert found.reason == "length"


@pytest.mark.parametrize("method", ["dflash", "ddtree"])
def test_stop_id_and_max_tokens_inside_one_accepted_run(make_engine, tmp_path, method):
    """The copying drafter's runs are 5 long: the stop falls on each offset of a run, max_tokens on each other one."""
    shape = TinyShape()
    target, drafter = write_constant_pair(tmp_path, shape, token=5)
    engine = make_engine(method, None, model=str(target), drafter=str(drafter))
    for count in range(1, 13):
        [found] = run_jobs(engine, [([1, 2], params(max_tokens=count))])
        assert (len(found.ids), found.reason) == (count, "length")
    [found] = run_jobs(engine, [([1, 2], params(stop_token_ids=(5,)))])
    assert (found.ids, found.reason) == ([5], "stop")


def test_stop_ids_at_every_offset(engines):
    """max_tokens before, at and after the stop: both fall inside one run somewhere."""
    [whole] = run_jobs(engines["ar"], [(PROMPT, params(max_tokens=40, temperature=1.0))])
    ends = {stop: whole.ids.index(stop) + 1 for stop in whole.ids}
    cases = [(stop, end, count) for stop, end in ends.items() for count in range(max(1, end - 2), end + 4)]
    assert len({end for _, end, _ in cases}) > 5
    jobs = [(PROMPT, params(max_tokens=count, temperature=1.0, stop_token_ids=(stop,))) for stop, _, count in cases]
    expected, found = run_jobs(engines["ar"], jobs), run_jobs(engines["ddtree"], jobs)
    for (_, end, count), slow, fast in zip(cases, expected, found, strict=True):
        assert (fast.ids, fast.reason) == (slow.ids, slow.reason)
        assert fast.ids == whole.ids[: min(end, count)]
        assert fast.reason == ("stop" if end <= count else "length")


def test_end_of_text_id_and_ignore_eos(make_engine, tmp_path):
    shape = TinyShape(scale=2.0, eos_token_id=7)
    target, drafter = write_target(tmp_path / "t", shape), write_drafter(tmp_path / "d", shape, norm=0.2)
    engine = make_engine("ddtree", 24, model=str(target), drafter=str(drafter))
    ended, ignored = run_jobs(
        engine,
        [(PROMPT, params(max_tokens=200, temperature=3.0, ignore_eos=ignore)) for ignore in (False, True)],
    )
    assert ended.reason == "stop"
    assert ended.ids[-1] == 7
    assert ended.ids.count(7) == 1
    assert ignored.reason == "length"
    assert ignored.ids[: len(ended.ids)] == ended.ids


@pytest.fixture(scope="module")
def spelling(make_engine, tmp_path_factory):
    """Engines over a model whose tokens are letters."""
    folder = tmp_path_factory.mktemp("letters")
    shape = TinyShape(scale=2.0)
    target, drafter = write_target(folder / "t", shape), write_drafter(folder / "d", shape, norm=0.2)
    write_tokenizer(target, shape.vocab_size)
    return {
        "ar": make_engine("ar", model=str(target)),
        "ddtree": make_engine("ddtree", model=str(target), drafter=str(drafter)),
    }


def test_stop_strings_over_two_tokens_at_every_offset(spelling):
    [whole] = run_jobs(spelling["ar"], [(PROMPT, params(max_tokens=40, temperature=1.0))])
    assert len(whole.text) == 40
    for start in range(38):
        stop = whole.text[start : start + 2]
        job = [(PROMPT, params(max_tokens=40, temperature=1.0, stop=(stop, "never said")))]
        [expected], [found] = run_jobs(spelling["ar"], job), run_jobs(spelling["ddtree"], job)
        assert (found.ids, found.text, found.reason) == (expected.ids, expected.text, expected.reason)
        at = whole.text.index(stop)
        assert found.text == whole.text[:at]
        assert found.reason == "stop"
        assert found.ids == whole.ids[: at + 2]


def test_text_is_the_decoded_ids_and_a_half_stop_string_is_given_out_in_the_end(spelling):
    engine = spelling["ddtree"]
    [whole] = run_jobs(engine, [(PROMPT, params(max_tokens=21, temperature=1.0))])
    almost = whole.text[-3:] + "?"
    [found] = run_jobs(engine, [(PROMPT, params(max_tokens=21, temperature=1.0, stop=(almost,)))])
    assert found.text == whole.text == engine.tokenizer.decode(whole.ids)
    assert found.reason == "length"
