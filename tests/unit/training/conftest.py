import pytest
import torch
from tiny_models import TinyShape, write_target

from treegraft.models import registry
from treegraft.training.config import DataConfig, DrafterShape, RunConfig, TrainConfig
from treegraft.training.corpus.conversation import Turns
from treegraft.training.corpus.shards import CorpusManifest, Rows
from treegraft.training.loop import Corpus

SHAPE = TinyShape(num_layers=4, max_context=256, scale=1.2)
TURNS = Turns(prefix=(5, 6), to_assistant=(2, 3, 7), to_user=(2, 3, 8), end_token=2)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"), SHAPE)


@pytest.fixture(scope="session")
def target(target_folder):
    return registry.load_target(registry.resolve(str(target_folder)), torch.float32, "cpu")


@pytest.fixture(scope="session")
def turns():
    return TURNS


@pytest.fixture
def config():
    return TrainConfig(
        target="tiny",
        data=DataConfig(row_tokens=64, rows_per_shard=8, min_reply_tokens=8, seconds=0, max_shards=2),
        drafter=DrafterShape(block_size=4, num_layers=2, head_width=8, taps=(0, 2), initial="random"),
        run=RunConfig(
            steps=40, minutes=0, rows=4, anchors=8, passes=2, learning_rate=0.02, validate_rows=4, warmup=0.05
        ),
    )


def sequences(num_rows, num_tokens, seed=0):
    """Rows of random letters; everything from position 4 on counts as a greedy reply."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(10, 24, (num_rows, num_tokens), generator=generator)
    kinds = torch.ones_like(tokens)
    kinds[:, :4] = 0
    return Rows(tokens, kinds.to(torch.uint8), torch.arange(num_rows), torch.zeros(num_rows, dtype=torch.uint8))


@pytest.fixture
def corpus():
    rows = sequences(4, 64)
    manifest = CorpusManifest(
        target="tiny", recipe_hash="x", temperatures=(0.0, 0.7, 1.0), row_tokens=64, vocab_size=24
    )
    return Corpus(manifest, rows, rows, end_token=2)
