import pytest
import torch

from treegraft.training.corpus.loops import MAX_PERIOD, WINDOW, is_looping, loop_mask, repeat_length


def straight(num_tokens, seed=0):
    return torch.randperm(1000, generator=torch.Generator().manual_seed(seed))[:num_tokens] + 100


@pytest.mark.parametrize("period", [1, 2, 7, 12, 13, MAX_PERIOD])
def test_a_loop_is_seen_from_its_first_repetition_on(period):
    head, pattern, tail = straight(20), torch.arange(period), straight(30, seed=1)
    times = -(-repeat_length(period) // period) + 1
    row = torch.cat([head, pattern.repeat(times)])
    assert is_looping(row[None]).tolist() == [True]
    mask = loop_mask(torch.cat([row, tail])[None])[0]
    assert mask.nonzero()[:, 0].tolist() == list(range(20 + period, len(row)))
    assert is_looping(torch.cat([row, tail])[None]).tolist() == [False]


@pytest.mark.parametrize("period", [1, 5, 12, MAX_PERIOD])
def test_one_token_too_few_is_no_loop(period):
    row = torch.cat([straight(40), torch.arange(period + repeat_length(period) - 1) % period])
    assert not is_looping(row[None]).any()
    assert not loop_mask(row[None]).any()


def test_the_window_is_enough_for_the_longest_period():
    row = torch.arange(MAX_PERIOD).repeat(4)[None]
    assert is_looping(row[:, -WINDOW:]).all()
    assert not is_looping(row[:, -WINDOW + 1 :]).any()
