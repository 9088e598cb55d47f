"""The prompts: enough of them, in four categories, split for choosing and for reporting."""

from collections import Counter

import pytest

from treegraft.bench.workloads import CATEGORIES, in_units, load_prompts, prompt_set_hash
from treegraft.errors import UsageError


def test_there_are_enough_prompts_of_each_kind() -> None:
    prompts = load_prompts("tune") + load_prompts("report")
    assert len(prompts) >= 40
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    assert len({prompt.text for prompt in prompts}) == len(prompts)
    assert all(count >= 10 for count in Counter(prompt.category for prompt in prompts).values())
    assert all(count >= 6 for count in Counter(prompt.category for prompt in load_prompts("report")).values())
    assert {prompt.category for prompt in prompts} == set(CATEGORIES)


def test_the_splits_share_no_prompt() -> None:
    assert not {p.text for p in load_prompts("tune")} & {p.text for p in load_prompts("report")}


def test_categories_take_turns_so_that_the_first_few_stand_for_all() -> None:
    assert [prompt.category for prompt in load_prompts("report")[:8]] == [*CATEGORIES, *CATEGORIES]


def test_limit_is_per_category() -> None:
    assert Counter(p.category for p in load_prompts("report", limit=2)) == dict.fromkeys(CATEGORIES, 2)


@pytest.mark.parametrize(("categories", "limit"), [(["maths"], None), (["math"], 0)])
def test_what_is_wrong_is_named(categories: list[str], limit: int | None) -> None:
    with pytest.raises(UsageError, match="maths" if limit is None else "limit is 0"):
        load_prompts("report", categories, limit)


def test_many_prompts_make_disjoint_groups_in_order() -> None:
    prompts = load_prompts("report")
    units = in_units(prompts, 2)
    assert [prompt for unit in units for prompt in unit.prompts] == prompts
    assert {unit.category for unit in units} == {"mixed"}


def test_few_prompts_make_groups_that_overlap_evenly() -> None:
    prompts = load_prompts("report")
    units = in_units(prompts, 8)
    assert len(units) == len({unit.id for unit in units}) == 10
    assert all(len({prompt.id for prompt in unit.prompts}) == 8 for unit in units)
    uses = Counter(prompt.id for unit in units for prompt in unit.prompts)
    assert len(uses) == len(prompts)
    assert max(uses.values()) - min(uses.values()) <= 1


def test_one_group_or_single_prompts_need_no_overlap() -> None:
    prompts = load_prompts("report", limit=2)
    assert [unit.prompts for unit in in_units(prompts, 8)] == [tuple(prompts)]
    assert [unit.category for unit in in_units(prompts, 1)] == [prompt.category for prompt in prompts]


@pytest.mark.parametrize("size", [0, 9])
def test_groups_that_cannot_be_made(size: int) -> None:
    with pytest.raises(UsageError, match=f"groups of {size}"):
        in_units(load_prompts("report", limit=2), size)


def test_hash_depends_on_text_and_order() -> None:
    prompts = load_prompts("report", limit=1)
    assert prompt_set_hash(prompts) == prompt_set_hash(list(prompts))
    assert prompt_set_hash(prompts) != prompt_set_hash(prompts[::-1])
