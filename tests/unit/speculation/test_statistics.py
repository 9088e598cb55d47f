import math

import pytest

from treegraft.speculation.statistics import acceptance_by_depth, is_loop, tau


def test_tau_counts_the_bonus_token() -> None:
    assert tau([1, 1, 4]) == 2.0
    assert math.isnan(tau([]))


def test_acceptance_by_depth_is_conditional_on_the_depth_above() -> None:
    rates = acceptance_by_depth([1, 2, 2, 4], 4)
    assert rates[:3].tolist() == [0.75, 1 / 3, 1.0]
    assert rates[3] == 0.0


def test_depths_no_round_came_near_have_no_rate() -> None:
    rates = acceptance_by_depth([1, 1], 3)
    assert rates[0] == 0.0
    assert all(math.isnan(rate) for rate in rates[1:])


@pytest.mark.parametrize(
    ("token_ids", "expected"),
    [
        ([], False),
        ([7] * 31, False),
        ([7] * 32, True),
        ([1, 2, 3, *[7] * 32], True),
        ([*[7] * 32, 8], False),
        ([1, 2, 3, 4, 5, 6, 7, 8] * 4, True),
        ([1, 2, 3, 4, 5, 6, 7, 8] * 3 + [1, 2, 3, 4, 5, 6, 7], False),
        (list(range(64)) * 4, True),
        (list(range(64)) * 3, False),
        (list(range(65)) * 4, False),
        (list(range(200)), False),
        ([1, 2] * 20 + [1], True),
    ],
)
def test_loops(token_ids: list[int], expected: bool) -> None:
    assert is_loop(token_ids) is expected
