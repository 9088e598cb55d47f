import pytest
import torch
from engine_runs import params, run_jobs
from tiny_models import TinyShape, write_target

from treegraft.engine.config import EngineConfig
from treegraft.engine.engine import Engine
from treegraft.models import registry
from treegraft.training.corpus.conversation import Turns
from treegraft.training.corpus.generate import ASSISTANT, USER, Generator, Opening

SHAPE = TinyShape(num_layers=3, scale=1.2)
TURNS = Turns(prefix=(5, 6), to_assistant=(2, 3, 7), to_user=(2, 3, 8), end_token=2)
NUM_POSITIONS = 40


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def folder(request, tmp_path_factory):
    shape = TinyShape(**{**SHAPE.__dict__, "architecture": request.param})
    return write_target(tmp_path_factory.mktemp("target"), shape)


@pytest.fixture(scope="module")
def generator(folder):
    target = registry.load_target(registry.resolve(str(folder)), torch.float32, "cpu")
    return Generator(target, TURNS, 4, NUM_POSITIONS, 0.02)


def openings(temperature):
    prompts = [(10, 11, 12), (13,), (14, 15, 16, 17, 18), (9, 9)]
    return [Opening(tuple(TURNS.prompt(list(ids))), ASSISTANT, temperature) for ids in prompts]


def test_greedy_rows_are_what_the_engine_says(folder, generator):
    written = generator.run(openings(0.0), seed=3)
    with_engine = Engine(EngineConfig(str(folder), None, device="cpu", dtype="float32"))
    jobs = [(o.ids, params(temperature=0.0, max_tokens=NUM_POSITIONS - len(o.ids))) for o in openings(0.0)]
    results = run_jobs(with_engine, jobs)
    with_engine.close()
    for row, (opening, result) in enumerate(zip(openings(0.0), results, strict=True)):
        start = len(opening.ids)
        reply = result.ids[: result.ids.index(TURNS.end_token) + 1] if TURNS.end_token in result.ids else result.ids
        assert written.tokens[row, :start].tolist() == list(opening.ids)
        assert written.tokens[row, start : start + len(reply)].tolist() == reply
        assert written.is_reply[row, start : start + len(reply)].all()
        assert not written.is_reply[row, :start].any()


def test_the_seed_alone_decides_what_is_drawn(generator):
    first, again, other = (generator.run(openings(1.0), seed).tokens for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_sides_take_turns_with_the_pieces_of_the_template_between_them(generator):
    mixed = [*openings(1.0)[:2], Opening((*TURNS.prefix, 20), USER, 0.0), Opening(TURNS.prefix, USER, 1.0)]
    num_turns = 0
    for seed in range(6):
        written = generator.run(mixed, seed)
        assert written.num_sampled == sum(NUM_POSITIONS - len(o.ids) for o in mixed)
        for row, opening in enumerate(mixed):
            tokens, is_reply = written.tokens[row].tolist(), written.is_reply[row].tolist()
            speaker, place = opening.speaker, len(opening.ids)
            assert tokens[:place] == list(opening.ids)
            while place < NUM_POSITIONS:
                end = tokens.index(2, place) if 2 in tokens[place:] else NUM_POSITIONS - 1
                assert set(is_reply[place : end + 1]) == {speaker == ASSISTANT}
                piece = (TURNS.to_user if speaker == ASSISTANT else TURNS.to_assistant)[1:]
                place = end + 1 + len(piece)
                assert tokens[end + 1 : place] == list(piece[: NUM_POSITIONS - end - 1])
                assert not any(is_reply[end + 1 : place])
                speaker, num_turns = 1 - speaker, num_turns + 1
    assert num_turns > 2 * 4 * 6 / 2


def test_a_row_that_loops_is_made_to_end_its_turn(tmp_path):
    """The end token that it did not choose is nothing to learn."""
    folder = write_target(tmp_path, TinyShape(scale=0.6))
    target = registry.load_target(registry.resolve(str(folder)), torch.float32, "cpu")
    written = Generator(target, TURNS, 4, 180, 0.02).run(openings(0.0), seed=0)
    num_ended = 0
    for tokens, is_reply in zip(written.tokens.tolist(), written.is_reply.tolist(), strict=True):
        if TURNS.end_token in tokens[10:150]:
            continue  # looped in nothing for a window
        end = tokens.index(TURNS.end_token, 150)
        assert not is_reply[end]
        assert is_reply[end - 1]
        assert len(set(tokens[end - 24 : end])) <= 12
        assert tokens[end + 1 : end + 3] == list(TURNS.to_user[1:])
        num_ended += 1
    assert num_ended > 0
