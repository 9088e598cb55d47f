"""Sampled texts against an oracle that shares no code with the engine's sampler, and against the distribution."""

import random

import numpy as np
import pytest
import torch
from engine_runs import params, run_jobs
from scipy import stats

from treegraft.engine.inputs import pack_rows, prefill_rows
from treegraft.speculation.noise import gumbel
from treegraft.speculation.sampling import choose, filtered_scores

PROMPT = random.Random(4).choices(range(24), k=7)
SAMPLINGS = [
    {"temperature": 1.0, "seed": 3},
    {"temperature": 2.5, "seed": 2**63 + 5, "choice": 2},
    {"temperature": 1.5, "top_k": 5, "seed": 2**40},
    {"temperature": 2.0, "top_p": 0.6, "seed": 9},
]


def plain_logits(engine, tokens):
    """float32 [V] after `tokens`, in slots that nobody owns."""
    runner = engine._runner
    slots = np.arange(1, len(tokens) + 1)
    with torch.inference_mode():
        hidden = runner.forward(*pack_rows([prefill_rows(tokens, slots, slots[:0])], runner.device)).hidden
        return runner.logits(hidden[0, -1]).cpu().numpy()


def oracle_ids(engine, prompt, sampling):
    tokens = list(prompt)
    for _ in range(sampling.max_tokens):
        scores = filtered_scores(
            plain_logits(engine, tokens), sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p
        )
        tokens.append(choose(scores, gumbel(sampling.seed, sampling.choice, len(tokens), len(scores))))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("fields", SAMPLINGS, ids=str)
def test_texts_are_the_oracles_from_the_first_token_on(make_engine, fields):
    sampling = params(max_tokens=16, **fields)
    expected = oracle_ids(make_engine("ar"), PROMPT, sampling)
    assert len(set(expected)) > 5
    for method in ("ar", "dflash", "ddtree"):
        [found] = run_jobs(make_engine(method), [(PROMPT, sampling)])
        assert found.ids == expected


@pytest.mark.parametrize("method", ["dflash", "ddtree"])
def test_the_first_tokens_are_distributed_as_the_target_says(make_engine, method):
    temperature, num_runs = 3.0, 800

    def distribution(engine, tokens):
        return torch.from_numpy(plain_logits(engine, tokens) / temperature).double().softmax(0).numpy()

    scratch = make_engine("ar")
    first = distribution(scratch, PROMPT)
    second = sum(p * distribution(scratch, [*PROMPT, token]) for token, p in enumerate(first))
    jobs = [(PROMPT, params(max_tokens=3, temperature=temperature, seed=seed)) for seed in range(num_runs)]
    found = run_jobs(make_engine(method), jobs)
    for place, expected in enumerate((first, second)):
        counts = np.bincount([result.ids[place] for result in found], minlength=24)
        is_common = expected * num_runs >= 5
        observed = [*counts[is_common], counts[~is_common].sum()]
        wanted = [*expected[is_common] * num_runs, expected[~is_common].sum() * num_runs]
        if wanted[-1] < 1e-9:
            observed, wanted = observed[:-1], wanted[:-1]
        assert stats.chisquare(observed, wanted).pvalue > 1e-4
