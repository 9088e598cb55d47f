import numpy as np
import pytest

from treegraft.engine.request import Request, SamplingParams
from treegraft.engine.scheduler import Scheduler
from treegraft.engine.sequence import Sequence


def sequence(name, prompt, max_tokens=50):
    params = SamplingParams(max_tokens=max_tokens, seed=0)
    return Sequence(Request(id=name, prompt_token_ids=tuple(prompt), params=params), frozenset(), None)


def compute(scheduler, one, count):
    slots = scheduler.take(one, count)
    if slots is not None:
        one.add_slots(slots)
    return slots is not None


def generate(scheduler, one):
    """The first token after a whole prefill, then one a call."""
    if one.num_generated == 0:
        compute(scheduler, one, one.prefill_end - one.num_computed)
        scheduler.share(one)
    elif not compute(scheduler, one, 1):
        return False
    one.commit([1])
    return True


def names(sequences):
    return [each.request.id for each in sequences]


@pytest.fixture
def crowded():
    """a and b run in a pool of 40 slots, c waits; then a grows until b must go."""
    scheduler = Scheduler(num_slots=41, max_running=2, rows_per_round=4)
    first, second, third = sequence("a", range(10)), sequence("b", range(10, 20)), sequence("c", [5])
    for each in (first, second, third):
        scheduler.add(each)
    scheduler.admit()
    assert names(scheduler.running) == ["a", "b"]
    assert names(scheduler.waiting) == ["c"]
    for each in (first, second):
        generate(scheduler, each)
    while scheduler.num_preemptions == 0:
        assert generate(scheduler, first)
        if second in scheduler.running:
            generate(scheduler, second)
    return scheduler


def test_who_was_preempted_comes_before_later_arrivals(crowded):
    assert names(crowded.running) == ["a"]
    assert names(crowded.waiting) == ["b", "c"]
    crowded.admit()
    assert names(crowded.running) == ["a"]  # no room for b, and c does not overtake it
    crowded.abort("a")
    crowded.admit()
    assert names(crowded.running) == ["b", "c"]
    assert crowded.running[0].num_computed > 0  # its own prefix was still cached


def test_an_abort_while_waiting_after_a_preemption_frees_everything(crowded):
    assert crowded.abort("b").request.id == "b"
    crowded.abort("c")
    crowded.abort("a")
    crowded.check_idle()
    assert crowded.num_available == 40
    assert crowded.request_ids == set()


def test_prompts_that_begin_alike_are_read_from_who_came_first():
    scheduler = Scheduler(num_slots=101, max_running=4, rows_per_round=4)
    pair = [sequence(name, [*range(20), last]) for name, last in (("a", 1), ("b", 2))]
    for each in pair:
        scheduler.add(each)
    scheduler.admit()
    scheduler.match_again(pair[0])
    generate(scheduler, pair[0])
    scheduler.match_again(pair[1])
    assert [each.cached_tokens for each in pair] == [0, 20]
    assert np.array_equal(pair[1].slots[:20], pair[0].slots[:20])
    generate(scheduler, pair[1])
    for each in pair:
        scheduler.finish(each)
    scheduler.check_idle()


def test_dropping_all_frees_slots_that_nobody_owns(crowded):
    crowded.allocator.allocate(crowded.allocator.num_free)  # handed out in a step that was broken off
    assert sorted(names(crowded.drop_all())) == ["a", "b", "c"]
    crowded.check_idle()
    assert crowded.num_available == 40
