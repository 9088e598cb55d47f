"""Arms alternate, the first of a turn changes, warm-up is dropped, preparation is not timed."""

import time
from collections.abc import Sequence

from treegraft.bench.alternate import Arm, alternate
from treegraft.bench.record import Answer
from treegraft.bench.workloads import Prompt, in_units, load_prompts


def answer(prompt: Prompt) -> Answer:
    return Answer(
        prompt_id=prompt.id,
        prompt_tokens=1,
        completion_tokens=1,
        cached_tokens=0,
        finish_reason="stop",
        accept_lengths=(),
        first_token_seconds=0.0,
        seconds=0.0,
        is_loop=False,
        content_hash="",
    )


def recording_arm(name: str, log: list[str]) -> Arm:
    def ask(prompts: Sequence[Prompt]) -> list[Answer]:
        log.append(f"{name}:{'+'.join(prompt.id for prompt in prompts)}")
        return [answer(prompt) for prompt in prompts]

    return Arm(name, {}, ask, lambda: log.append(f"{name} prepared"))


def test_every_arm_meets_every_unit_and_leads_in_turn() -> None:
    log: list[str] = []
    prompts = load_prompts("report", ["math"], limit=3)
    units = in_units(prompts, 1)
    samples = alternate([recording_arm(name, log) for name in "abc"], units, repeats=2, warmup=None)
    asked = [line for line in log if "prepared" not in line]
    assert [line[0] for line in asked] == list("abcbcacab" * 2)
    assert sorted({(s.arm, s.unit, s.repeat) for s in samples}) == [
        (arm, unit, repeat) for arm in "abc" for unit in sorted(u.id for u in units) for repeat in (0, 1)
    ]
    assert len(samples) == 18


def test_each_run_is_prepared_and_the_warm_up_leaves_no_sample() -> None:
    log: list[str] = []
    units = in_units(load_prompts("report", ["math"], limit=1), 1)
    warmup = in_units(load_prompts("tune", ["math"], limit=1), 1)[0]
    samples = alternate([recording_arm("a", log)], units, repeats=1, warmup=warmup)
    assert log == [f"a:{warmup.id}", "a prepared", f"a:{units[0].id}"]
    assert [sample.unit for sample in samples] == [units[0].id]


def test_the_clock_stands_while_an_arm_is_prepared() -> None:
    prepared_at: list[float] = []

    def prepare() -> None:
        time.sleep(0.05)
        prepared_at.append(time.perf_counter())

    units = in_units(load_prompts("report", ["math"], limit=1), 1)
    arm = Arm("a", {}, lambda prompts: [answer(prompt) for prompt in prompts], prepare)
    sample = alternate([arm], units, repeats=1, warmup=None)[0]
    assert sample.seconds <= time.perf_counter() - prepared_at[0]
