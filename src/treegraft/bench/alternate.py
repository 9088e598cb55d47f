"""Runs arms against each other on the same units: A B C, then B C A, ... so that drift hits all alike.

An arm is a callable: it knows its engine or server, this file knows neither. Clocks are read here.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from treegraft.bench.record import Answer, ArmInfo, Sample
from treegraft.bench.workloads import Prompt, Unit
from treegraft.logs import progress


@dataclass(frozen=True)
class Arm:
    """ask: answers the prompts, in their order, as fast as the arm can. config: what it resolved to, for the record.
    prepare: puts the arm in its start state before each unit (drop a prefix cache, say); not timed."""

    name: str
    config: dict[str, Any]
    ask: Callable[[Sequence[Prompt]], list[Answer]]
    prepare: Callable[[], None] = lambda: None

    @property
    def info(self) -> ArmInfo:
        return ArmInfo(name=self.name, config=self.config)


def alternate(
    arms: Sequence[Arm], units: Sequence[Unit], repeats: int, warmup: Unit | None, label: str = "bench"
) -> list[Sample]:
    """Every arm on every unit, `repeats` times; each arm answers `warmup` once before, and that is dropped.

    The first arm of a turn changes with every turn.
    """
    if warmup is not None:
        for arm in arms:
            arm.ask(warmup.prompts)
    samples = []
    with progress(total=repeats * len(units) * len(arms), label=label, unit="run") as bar:
        turn = 0
        for repeat in range(repeats):
            for unit in units:
                shift = turn % len(arms)
                for arm in [*arms[shift:], *arms[:shift]]:
                    samples.append(_sample(arm, unit, repeat))
                    bar.update(1)
                turn += 1
    return samples


def _sample(arm: Arm, unit: Unit, repeat: int) -> Sample:
    arm.prepare()
    started = time.perf_counter()
    answers = arm.ask(unit.prompts)
    seconds = time.perf_counter() - started
    assert [answer.prompt_id for answer in answers] == [prompt.id for prompt in unit.prompts], arm.name
    return Sample(
        arm=arm.name, unit=unit.id, category=unit.category, repeat=repeat, seconds=seconds, answers=tuple(answers)
    )
