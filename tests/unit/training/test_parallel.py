"""Two real processes under torchrun against the same two halves computed by two threads of this one."""

import os
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass, field

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from treegraft.training.build import drafter_config
from treegraft.training.loop import Trainer
from treegraft.training.parallel import Group

SCRIPT = """
import pickle, sys
from pathlib import Path
import torch
from treegraft.models import registry
from treegraft.training.build import drafter_config
from treegraft.training.loop import Trainer
from treegraft.training.parallel import join, leave
torch.set_num_threads(1)
config, corpus = pickle.loads(Path(sys.argv[1]).read_bytes())
target = registry.load_target(registry.resolve(config.target), torch.float32, "cpu")
trainer = Trainer(config, drafter_config(config, target, None), target, corpus, Path(sys.argv[2]), join())
assert trainer.train()
leave()
"""


@dataclass(frozen=True)
class Thread(Group):
    """A group whose members are threads; `given` is what each puts on the table."""

    given: dict = field(default_factory=dict)
    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(2, timeout=60))

    def agree(self, value, _device):
        return value  # nothing here ends by the clock

    def average(self, gradients):
        tensors = list(gradients)
        self.given[self.rank] = [tensor.clone() for tensor in tensors]
        self.barrier.wait()
        for tensor, one, other in zip(tensors, self.given[0], self.given[1], strict=True):
            tensor.copy_((one + other) / 2)
        self.barrier.wait()


@pytest.fixture
def halves(config, corpus, target_folder):
    run = msgspec.structs.replace(config.run, steps=12, rows=2)
    return msgspec.structs.replace(config, run=run, target=str(target_folder)), corpus


def test_two_processes_train_as_one_with_both_halves(halves, target, tmp_path):
    config, corpus = halves
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "given").write_bytes(pickle.dumps(halves))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(tmp_path / "script.py")]
    words = [sys.executable, *torchrun, str(tmp_path / "given"), str(tmp_path / "run")]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=variables, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = load_file(tmp_path / "run" / "checkpoint" / "state.safetensors")

    first = Thread(0, 2)
    groups = [first, Thread(1, 2, first.given, first.barrier)]
    drafter = drafter_config(config, target, None)
    trainers = [Trainer(config, drafter, target, corpus, tmp_path / "threads", group) for group in groups]
    threads = [threading.Thread(target=trainer.train) for trainer in trainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for trainer in trainers:
        assert trainer.optimiser.num_steps == config.run.steps
        for name, tensor in trainer.optimiser.tensors().items():
            torch.testing.assert_close(found[name], tensor, atol=1e-6, rtol=1e-5, msg=name)


def test_ranks_share_an_epoch_without_overlap(halves, target, tmp_path):
    config, corpus = halves
    config = msgspec.structs.replace(config, run=msgspec.structs.replace(config.run, rows=1))
    drafter = drafter_config(config, target, None)
    trainers = [Trainer(config, drafter, target, corpus, tmp_path, Group(rank, 2)) for rank in range(2)]
    for epoch in range(3):
        rows = [trainer._batch_rows(2 * epoch + place) for trainer in trainers for place in range(2)]
        assert sorted(row for own in rows for row in own) == [0, 1, 2, 3]


def test_only_the_first_process_writes(halves, target, tmp_path):
    config, corpus = halves
    trainer = Trainer(config, drafter_config(config, target, None), target, corpus, tmp_path / "run", Group(1, 2))
    trainer.save()
    trainer._write({"step": 0})
    assert not (tmp_path / "run").exists()
