"""Random jobs come, go and are aborted in a pool that is too small for them: every text is the target's own."""

import random

import pytest
from engine_runs import Result, params, run_jobs

from treegraft.engine.request import Request

STEMS = [random.Random(n).choices(range(24), k=30) for n in range(3)]
NUM_JOBS = 100


def random_job(rng):
    """Prompts share beginnings; lengths go from one token to nearly all of the context."""
    prompt = STEMS[rng.randrange(3)][: rng.choice([0, 1, 2, 9, 30])] + [
        rng.randrange(24) for _ in range(rng.choice([1, 2, 5, 20]))
    ]
    max_tokens = min(rng.choice([1, 2, 3, 8, 20, 63]), 64 - len(prompt))
    sampling = rng.choice(
        [{}, {}, {"temperature": 1.0}, {"temperature": 0.8, "top_k": 5}, {"temperature": 2.0, "top_p": 0.7}]
    )
    stops = {} if rng.random() < 0.8 else {"stop_token_ids": (rng.randrange(24),)}
    return prompt, params(max_tokens=max_tokens, seed=rng.randrange(50), **sampling, **stops)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("ddtree", {"budget": 9, "num_slots": 64 + 10 + 1, "prefill_chunk": 7}),
        ("ddtree", {"budget": 24, "num_slots": 200, "max_running": 5, "prefill_chunk": 1}),
        ("dflash", {"budget": None, "num_slots": 120}),
    ],
    ids=["smallest pool", "tight pool", "chain"],
)
def test_a_hundred_jobs_with_aborts(engines, make_engine, method, options):
    rng = random.Random(method + str(options))
    jobs = [random_job(rng) for _ in range(NUM_JOBS)]
    doomed = {number: rng.randrange(1, 12) for number in rng.sample(range(NUM_JOBS), 25)}
    engine = make_engine(method, max_context=64, **options)
    outputs = [[] for _ in jobs]
    coming, alive, aborted = list(range(NUM_JOBS)), {}, set()
    while coming or engine.has_work():
        for number in [coming.pop(0) for _ in range(min(len(coming), rng.randrange(5)))]:
            prompt, sampling = jobs[number]
            engine.add(Request(id=str(number), prompt_token_ids=tuple(prompt), params=sampling))
            alive[number] = 0
        for output in engine.step() if engine.has_work() else ():
            outputs[int(output.request_id)].append(output)
            if output.finish_reason is not None:
                del alive[int(output.request_id)]
        for number in list(alive):
            alive[number] += 1
            if alive[number] == doomed.get(number):
                engine.abort(str(number))
                del alive[number]
                aborted.add(number)
    assert engine.num_available_slots == engine._scheduler.allocator.capacity
    assert engine._sampler._noise == {}
    assert engine._scheduler.request_ids == set()
    assert aborted
    assert engine.num_preemptions > 0
    expected = run_jobs(engines["ar"], jobs)
    for number in range(NUM_JOBS):
        if number in aborted:
            ids = [i for output in outputs[number] for i in output.token_ids]
            assert ids == expected[number].ids[: len(ids)]
        else:
            found = Result(outputs[number])
            assert (found.ids, found.reason) == (expected[number].ids, expected[number].reason)
