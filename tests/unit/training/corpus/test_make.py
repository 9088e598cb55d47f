import msgspec
import pytest
import torch

from treegraft.errors import TrainingError
from treegraft.training.config import DataConfig, TrainConfig
from treegraft.training.corpus.generate import ASSISTANT, USER, Written
from treegraft.training.corpus.make import Sources, make_openings, recipe_hash, select_rows
from treegraft.training.corpus.shards import (
    SPLITS,
    CorpusManifest,
    Rows,
    read_manifest,
    read_rows,
    split_of,
    write_manifest,
    write_shard,
)

SOURCES = Sources(prompts=[[10 + n, 11 + n] for n in range(5)] + [[9] * 200], starters=[[20], [21, 22] * 100])


@pytest.fixture
def config():
    data = DataConfig(row_tokens=64, rows_per_shard=20, min_reply_tokens=8, max_prompt_tokens=256)
    return TrainConfig(target="tiny", data=data)


def written(*rows, end=2):
    """Rows of (prompt ids, reply ids) as the generator leaves them, behind the prefix 5 6; filled up with user text."""
    tokens, is_reply = torch.full((len(rows), 64), 23), torch.zeros(len(rows), 64, dtype=torch.bool)
    for number, (prompt, reply) in enumerate(rows):
        ids = [5, 6, *prompt, end, 3, 7, *reply, end]
        tokens[number, : len(ids)] = torch.tensor(ids)
        tokens[number, len(ids) :] = torch.arange(64 - len(ids)) * 7 % 13 + 100 + torch.arange(64 - len(ids))
        is_reply[number, len(ids) - len(reply) - 1 : len(ids)] = True
    return Written(tokens, is_reply, tokens.numel())


def test_rows_with_too_little_to_learn_and_second_greedy_answers_go(config, turns):
    reply = list(range(30, 40))
    rows = written(([10, 11], reply), ([10, 11], reply), ([12], reply[:5]), ([10, 11], reply), ([13], [8] * 40))
    seen = set()
    kept = select_rows(rows, [1, 1, 1, 3, 1], config, turns, seen)
    assert kept.tokens[:, 2].tolist() == [10, 10]
    assert (kept.kinds > 0).sum(1).tolist() == [11, 11]
    assert [set(row.tolist()) for row in kept.kinds] == [{0, 1}, {0, 3}]
    assert kept.split.tolist() == [split_of(value) for value in kept.prompt_hash.tolist()]
    assert kept.prompt_hash[0] == kept.prompt_hash[1]
    again = select_rows(rows, [1, 1, 1, 3, 1], config, turns, seen)
    assert (again.kinds > 0).any(1).tolist() == [True], "of the next shard only the drawn reply is new"


def test_openings_depend_on_the_shard_alone_and_leave_room_for_a_reply(config, turns):
    openings = make_openings(config, SOURCES, turns, 0)
    assert openings == make_openings(config, SOURCES, turns, 0)
    assert openings != make_openings(config, SOURCES, turns, 1)
    assert [o.speaker for o in openings] == [ASSISTANT] * 7 + [USER] * 13
    for opening in openings:
        room = 64 - config.data.min_reply_tokens if opening.speaker == ASSISTANT else 63
        assert opening.ids[:2] == turns.prefix
        assert len(opening.ids) <= room
    nothing = make_openings(config, Sources([], SOURCES.starters), turns, 0)
    assert {o.speaker for o in nothing} == {USER}


def test_length_may_change_within_a_recipe_and_nothing_else(config, turns):
    def changed(**fields):
        return msgspec.structs.replace(config, data=msgspec.structs.replace(config.data, **fields))

    same = recipe_hash(config, SOURCES, turns)
    assert recipe_hash(changed(max_shards=9, seconds=1.0), SOURCES, turns) == same
    for fields in ({"seed": 2}, {"row_tokens": 65}, {"temperatures": (0.0, 0.5, 1.0)}, {"user_min_p": 0.5}):
        assert recipe_hash(changed(**fields), SOURCES, turns) != same
    assert recipe_hash(config, Sources(SOURCES.prompts[1:], SOURCES.starters), turns) != same
    assert recipe_hash(msgspec.structs.replace(config, target="other"), SOURCES, turns) != same


def test_a_prompt_lies_in_one_split_and_each_has_its_share():
    splits = torch.tensor([split_of(value) for value in range(10_000)])
    assert [int((splits == index).sum()) for index in range(3)] == [9800, 100, 100]


def stored(folder, rows):
    entry = write_shard(folder, "shard-00000.safetensors", rows, rows.tokens.numel())
    manifest = CorpusManifest(
        target="tiny", recipe_hash="x", temperatures=(0.0,), row_tokens=8, vocab_size=24, shards=(entry,)
    )
    write_manifest(folder, manifest)
    return manifest


def test_shards_read_back_by_split(tmp_path):
    tokens, kinds = torch.arange(24).view(3, 8), torch.ones(3, 8, dtype=torch.uint8)
    rows = Rows(tokens, kinds, torch.tensor([7, 8, 9]), torch.tensor([0, 1, 2], dtype=torch.uint8))
    manifest = stored(tmp_path, rows)
    assert read_manifest(tmp_path) == manifest
    for index, split in enumerate(SPLITS):
        found = read_rows(tmp_path, manifest, split)
        assert found.tokens.tolist() == [tokens[index].tolist()]
        assert found.prompt_hash.tolist() == [7 + index]


def test_a_prompt_in_two_splits_is_found(tmp_path):
    tokens, kinds = torch.zeros(2, 8), torch.ones(2, 8)
    rows = Rows(tokens, kinds, torch.tensor([7, 7]), torch.tensor([0, 2], dtype=torch.uint8))
    with pytest.raises(TrainingError, match="prompts in two splits"):
        read_rows(tmp_path, stored(tmp_path, rows), "train")


def test_a_changed_byte_and_a_damaged_manifest_are_named(tmp_path):
    rows = Rows(torch.zeros(2, 8), torch.ones(2, 8), torch.tensor([7, 8]), torch.zeros(2, dtype=torch.uint8))
    manifest = stored(tmp_path, rows)
    shard = tmp_path / "shard-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(TrainingError, match=r"shard-00000\.safetensors differs"):
        read_rows(tmp_path, manifest, "train")
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(TrainingError, match=r"manifest\.json"):
        read_manifest(tmp_path)
