import json

import msgspec
import pytest
import torch

from treegraft.errors import TrainingError
from treegraft.training import checkpoint
from treegraft.training.build import drafter_config
from treegraft.training.loop import METRICS, Trainer


def replace(config, **run):
    return msgspec.structs.replace(config, run=msgspec.structs.replace(config.run, **run))


def trainer(config, target, corpus, folder):
    return Trainer(config, drafter_config(config, target, None), target, corpus, folder)


def test_overfitting_four_rows_accepts_whole_blocks(config, target, corpus, tmp_path):
    config = replace(config, steps=500, rows=4, anchors=24, conditional_share=0.3, decay=20.0)
    run = trainer(config, target, corpus, tmp_path)
    before = run.validate()
    assert run.train()
    after = run.validate(budgets=(8,), num_candidates=4)
    assert before["chain"] < 1.5
    assert min(after.values()) > 0.9 * config.drafter.block_size
    records = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    losses = [r["loss"] for r in records if "loss" in r]
    assert losses[-1] < 0.3 * losses[0]


def test_a_resumed_run_is_the_run_that_was_not_stopped(config, target, corpus, tmp_path):
    whole = trainer(config, target, corpus, tmp_path / "whole")
    assert whole.train()
    first = trainer(config, target, corpus, tmp_path / "parts")
    assert not first.train(stop_after_s=0.0)
    second = trainer(config, target, corpus, tmp_path / "parts")
    assert 0 < second.optimiser.num_steps < config.run.steps
    assert second.train()
    for name, tensor in whole.optimiser.tensors().items():
        assert torch.equal(tensor, second.optimiser.tensors()[name]), name


def test_a_checkpoint_of_another_configuration_is_refused(config, target, corpus, tmp_path):
    trainer(config, target, corpus, tmp_path).save()
    with pytest.raises(TrainingError, match="another configuration"):
        trainer(replace(config, learning_rate=0.5), target, corpus, tmp_path)


def test_nan_stops_the_run_and_keeps_the_weights_before_it(config, target, corpus, tmp_path):
    run = trainer(config, target, corpus, tmp_path)
    step = run.optimiser.step
    kept = {}

    def poisoned(factor):
        if run.optimiser.num_steps == 7:
            kept.update({name: t.clone() for name, t in run.optimiser.tensors().items()})
            run.network.fc.grad[0, 0] = float("nan")
        return step(factor)

    run.optimiser.step = poisoned
    with pytest.raises(TrainingError, match="step 7"):
        run.train()
    tensors, state = checkpoint.load(tmp_path, run._hash)
    assert state.step == 7
    for name, tensor in kept.items():
        if name.startswith("master"):
            assert torch.equal(tensors[name], tensor), name


@pytest.mark.parametrize("optimiser", ["muon", "adamw"])
def test_both_optimisers_learn(config, target, corpus, tmp_path, optimiser):
    config = replace(config, steps=60, optimiser=optimiser, adam_learning_rate=0.01)
    run = trainer(config, target, corpus, tmp_path)
    run.train()
    records = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    assert records[-1]["loss"] < records[0]["loss"]


def test_too_small_a_corpus_is_named(config, target, corpus, tmp_path):
    with pytest.raises(TrainingError, match="4 training rows"):
        trainer(replace(config, rows=5), target, corpus, tmp_path)
