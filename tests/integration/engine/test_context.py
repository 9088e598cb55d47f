"""KV and drafter context after rounds, prefix hits, chunks, preemption and aborts."""

import random

import numpy as np
import pytest
import torch
from engine_runs import params, run_jobs

from treegraft.engine.inputs import Rows, pack_rows, prefill_rows
from treegraft.engine.request import Request
from treegraft.errors import ContextTooLongError, UsageError
from treegraft.speculation.build import build_tree
from treegraft.speculation.mask import ancestor_mask

PROMPT = random.Random(1).choices(range(24), k=40)


def pools(engine, slots):
    """Target and drafter K and V of these slots."""
    index = torch.from_numpy(np.asarray(slots, np.int64))
    runner = engine._runner
    return [
        tensor[:, index.to(tensor.device)].float().cpu()
        for pool in (runner._target_pool, runner._drafter_pool)
        for tensor in (pool.keys, pool.values)
    ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_after_every_round_the_kv_rows_are_those_of_a_fresh_prefill(make_engine, temperature):
    engine, fresh = make_engine("ddtree"), make_engine("ddtree")
    engine.add(Request(id="a", prompt_token_ids=tuple(PROMPT), params=params(temperature=temperature)))
    num_checked = 0
    while engine.has_work():
        engine.step()
        if not engine._scheduler.running:
            break
        [sequence] = engine._scheduler.running
        fresh.add(Request(id="b", prompt_token_ids=tuple(sequence.tokens[:-1]), params=params(max_tokens=1)))
        fresh.step()
        match = fresh._scheduler.cache.match(sequence.tokens[:-1])
        assert len(match.slots) == sequence.num_computed == len(sequence.tokens) - 1
        for mine, theirs in zip(
            pools(engine, sequence.slots[: sequence.num_computed]), pools(fresh, match.slots), strict=True
        ):
            torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)
        num_checked += 1
    assert num_checked > 3


def test_node_logits_are_those_of_the_ancestor_path_as_a_plain_sequence(make_engine):
    engine = make_engine("ddtree")
    runner = engine._runner
    rng = np.random.default_rng(0)
    tree = build_tree(
        np.log(rng.dirichlet(np.ones(6), size=4)), rng.permuted(np.tile(np.arange(6), (4, 1)), axis=1), 20
    )
    assert tree.depths.max() > 2
    length, root = len(PROMPT) - 1, PROMPT[-1]
    context = np.arange(1, length + 1)
    with torch.inference_mode():
        runner.forward(*pack_rows([prefill_rows(PROMPT[:-1], context, context[:0])], runner.device))
        slots = np.arange(100, 101 + len(tree.token_ids))
        rows = Rows(
            np.concatenate([[root], tree.token_ids]),
            np.concatenate([[0], tree.depths]),
            slots,
            context,
            ancestor_mask(tree),
        )
        in_tree = runner.logits(runner.forward(*pack_rows([rows], runner.device)).hidden[0])
        for node in range(len(tree.token_ids)):
            path, at = [], node
            while at >= 0:
                path.insert(0, int(tree.token_ids[at]))
                at = int(tree.parents[at])
            plain = prefill_rows([*PROMPT, *path], np.arange(200, 200 + len(PROMPT) + len(path)), context[:0])
            logits = runner.logits(runner.forward(*pack_rows([plain], runner.device)).hidden[0, -1])
            torch.testing.assert_close(in_tree[node + 1], logits, atol=1e-4, rtol=1e-4)


def test_the_same_prompt_twice_hits_the_cache_with_the_same_accept_lengths(make_engine):
    engine = make_engine("ddtree")
    job = (PROMPT, params(temperature=1.0))
    [first], [second] = run_jobs(engine, [job]), run_jobs(engine, [job])
    assert first.cached_tokens == 0
    assert second.cached_tokens == len(PROMPT) - 1
    assert second.ids == first.ids
    assert second.accept_lengths == first.accept_lengths


@pytest.mark.parametrize("shared", [1, 2, 17, 39])
def test_a_partial_hit_changes_no_accept_length(make_engine, shared):
    prompt = PROMPT[:shared] + [(t + 1) % 24 for t in PROMPT[shared:]]
    engine = make_engine("ddtree")
    run_jobs(engine, [(PROMPT, params())])
    for temperature in (0.0, 1.0):
        [hit] = run_jobs(engine, [(prompt, params(temperature=temperature))])
        [solo] = run_jobs(make_engine("ddtree"), [(prompt, params(temperature=temperature))])
        assert hit.cached_tokens == (shared if temperature == 0.0 else len(prompt) - 1)
        assert (hit.ids, hit.accept_lengths) == (solo.ids, solo.accept_lengths)


def test_a_second_turn_hits_the_answer_of_the_first(make_engine):
    engine = make_engine("ddtree")
    [first] = run_jobs(engine, [(PROMPT, params())])
    turn = [*PROMPT, *first.ids, 3, 1]
    [second] = run_jobs(engine, [(turn, params())])
    [solo] = run_jobs(make_engine("ddtree"), [(turn, params())])
    assert second.cached_tokens >= len(PROMPT) + len(first.ids) - 1
    assert (second.ids, second.accept_lengths) == (solo.ids, solo.accept_lengths)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunked_prefill_changes_nothing(make_engine, chunk):
    job = (PROMPT, params(temperature=1.0))
    engine = make_engine("ddtree", prefill_chunk=chunk)
    [expected], [found] = run_jobs(make_engine("ddtree"), [job]), run_jobs(engine, [job])
    assert (found.ids, found.accept_lengths) == (expected.ids, expected.accept_lengths)


def test_preemption_changes_no_text_and_loses_no_slot(make_engine):
    jobs = [([n, *PROMPT[:10]], params(temperature=1.0, seed=n, max_tokens=60)) for n in range(6)]
    tight = make_engine("ddtree", max_context=80, num_slots=140)
    found = run_jobs(tight, jobs)
    assert tight.num_preemptions > 0
    expected = [run_jobs(make_engine("ddtree"), [job])[0] for job in jobs]
    assert [(r.ids, r.accept_lengths) for r in found] == [(r.ids, r.accept_lengths) for r in expected]
    assert all(r.cached_tokens <= 11 for r in found)


def test_eviction_makes_room_and_hits_end(make_engine):
    engine = make_engine("ddtree", max_context=80, num_slots=140)
    for n in range(8):
        run_jobs(engine, [([n, *PROMPT[:20]], params(max_tokens=20))])
    [gone] = run_jobs(engine, [([0, *PROMPT[:20]], params(max_tokens=20))])
    assert gone.cached_tokens == 0
    assert engine.num_available_slots == engine._scheduler.allocator.capacity


@pytest.mark.parametrize("steps", [0, 1, 3, 6, 9])
def test_an_abort_frees_what_the_request_held(make_engine, steps):
    """Queued (0), inside a prefill chunk (1, 3), and between rounds (6, 9)."""
    engine = make_engine("ddtree", prefill_chunk=10)
    before = engine.num_available_slots
    engine.add(Request(id="a", prompt_token_ids=tuple(PROMPT), params=params(max_tokens=200, temperature=1.0)))
    for _ in range(steps):
        engine.step()
    assert engine.has_work()
    engine.abort("a")
    engine.abort("unknown")
    assert not engine.has_work()
    assert engine.num_available_slots == before
    engine._scheduler.check_idle()
    assert engine._sampler._noise == {}


def test_aborting_one_of_a_batch_leaves_the_others_as_they_were(make_engine, engines):
    engine = make_engine("ddtree")
    engine.add(Request(id="gone", prompt_token_ids=tuple(PROMPT), params=params(max_tokens=200)))

    outputs = []
    engine.add(Request(id="stays", prompt_token_ids=tuple(PROMPT[:9]), params=params(temperature=1.0)))
    while engine.has_work():
        outputs += [o for o in engine.step() if o.request_id == "stays"]
        if engine.num_running == 2:
            engine.abort("gone")
    [expected] = run_jobs(engines["ar"], [(PROMPT[:9], params(temperature=1.0))])
    assert [i for o in outputs for i in o.token_ids] == expected.ids


@pytest.mark.parametrize(
    ("prompt", "fields", "error", "says"),
    [
        ([], {}, UsageError, "empty"),
        ([24], {}, UsageError, "24 is outside the vocabulary of 24"),
        ([-1], {}, UsageError, "-1 is outside"),
        ([1] * 500, {"max_tokens": 13}, ContextTooLongError, "500 tokens"),
        ([1], {"stop": ("x",)}, UsageError, "need a tokenizer"),
    ],
)
def test_what_cannot_be_served_is_refused_and_holds_nothing(engines, prompt, fields, error, says):
    with pytest.raises(error, match=says):
        engines["ddtree"].add(Request(id="x", prompt_token_ids=tuple(prompt), params=params(**fields)))
    assert not engines["ddtree"].has_work()
