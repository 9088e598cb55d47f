import json

import msgspec
import pytest
import torch

from treegraft.errors import TrainingError
from treegraft.models import registry
from treegraft.training import checkpoint
from treegraft.training.build import drafter_config, served_tensors
from treegraft.training.corpus.shards import Rows
from treegraft.training.export import write_drafter
from treegraft.training.loop import METRICS, Corpus, Trainer


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


def test_nothing_to_learn_is_named(config, target, corpus, tmp_path):
    """A corpus all of whose replies were filtered away."""
    none = torch.empty(0, dtype=torch.int64)
    empty = Rows(torch.empty(0, 64, dtype=torch.int32), torch.empty(0, 64, dtype=torch.uint8), none, none)
    with pytest.raises(TrainingError, match="0 training rows with replies"):
        trainer(config, target, Corpus(corpus.manifest, empty, empty, 2), tmp_path)


def test_metrics_of_steps_that_were_lost_are_not_kept_twice(config, target, corpus, tmp_path):
    run = trainer(config, target, corpus, tmp_path)
    assert not run.train(stop_after_s=0.0)
    done = run.optimiser.num_steps
    with (tmp_path / METRICS).open("a") as stream:  # written after the checkpoint, by a process that was killed
        stream.write(json.dumps({"step": done + 20, "loss": 9.0}) + "\n" + '{"step": 10')
    assert trainer(config, target, corpus, tmp_path).train()
    records = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    steps = [record["step"] for record in records]
    assert steps == sorted(set(steps))
    assert steps[-1] == config.run.steps
    assert 9.0 not in [record["loss"] for record in records]


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before_it(config, target, corpus, tmp_path):
    run = trainer(config, target, corpus, tmp_path)
    run.save()
    (tmp_path / "checkpoint.new").write_text("in the way")
    with pytest.raises(TrainingError, match="the one before it is kept"):
        run.save()
    assert checkpoint.load(tmp_path, run._hash) is not None


@pytest.mark.parametrize("name", ["state.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_named(config, target, corpus, tmp_path, name):
    run = trainer(config, target, corpus, tmp_path)
    run.save()
    path = tmp_path / "checkpoint" / name
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(TrainingError, match="does not read"):
        trainer(config, target, corpus, tmp_path)


def test_a_run_stopped_between_two_renames_is_found(config, target, corpus, tmp_path):
    run = trainer(config, target, corpus, tmp_path)
    run.train(stop_after_s=0.0)
    (tmp_path / "checkpoint").rename(tmp_path / "checkpoint.old")
    again = trainer(config, target, corpus, tmp_path)
    assert again.optimiser.num_steps == run.optimiser.num_steps > 0
    again.save()
    assert [path.name for path in tmp_path.glob("checkpoint*")] == ["checkpoint"]


def test_what_is_written_is_the_network_in_bf16(config, target, corpus, tmp_path):
    run = trainer(config, target, corpus, tmp_path)
    run.train(stop_after_s=0.0)
    write_drafter(run.network, tmp_path / "drafter")
    files = registry.resolve(str(tmp_path / "drafter"))
    loaded = registry.load_drafter(files, target, torch.float32, "cpu")
    assert loaded.config == run.network.config
    with torch.no_grad():
        for parameter in run.network.parameters():
            parameter.copy_(parameter.bfloat16().float())
    ours = served_tensors(run.network)
    assert torch.equal(loaded.fc.weight, ours["fc.weight"])
    assert torch.equal(loaded.head.output, ours["head.output.weight"])
    for index, layer in enumerate(loaded.layers):
        assert torch.equal(layer.output.weight, ours[f"layers.{index}.self_attn.o_proj.weight"])
        assert torch.equal(layer.down.weight, ours[f"layers.{index}.mlp.down_proj.weight"])


def test_a_head_learns_on_a_frozen_drafter(config, target, corpus, tmp_path):
    first = trainer(replace(config, steps=30), target, corpus, tmp_path / "first")
    first.train()
    write_drafter(first.network, tmp_path / "drafter")
    shape = msgspec.structs.replace(config.drafter, initial=str(tmp_path / "drafter"))
    config = replace(msgspec.structs.replace(config, drafter=shape), steps=30, head_only=True)
    run = trainer(config, target, corpus, tmp_path / "second")
    before = {name: tensor.clone() for name, tensor in served_tensors(run.network).items()}
    run.train()
    changed = {name for name, tensor in served_tensors(run.network).items() if not torch.equal(tensor, before[name])}
    assert changed == {"head.hidden.weight", "head.parent.weight", "head.output.weight"}
