"""Samples with known figures."""

from collections.abc import Callable

import pytest

from treegraft.bench.record import Answer, ArmInfo, BenchRecord, Machine, Phase, Sample

MakeSample = Callable[..., Sample]


@pytest.fixture
def make_sample() -> MakeSample:
    def make(
        arm: str,
        unit: str,
        seconds: float,
        repeat: int = 0,
        tokens: int = 10,
        accept_lengths: tuple[int, ...] = (3, 3, 3),
        text: str = "same",
        is_loop: bool = False,
    ) -> Sample:
        answer = Answer(
            prompt_id=unit,
            prompt_tokens=5,
            completion_tokens=tokens,
            cached_tokens=0,
            finish_reason="stop",
            accept_lengths=accept_lengths,
            first_token_seconds=seconds / 10,
            seconds=seconds,
            is_loop=is_loop,
            content_hash=text,
        )
        return Sample(arm=arm, unit=unit, category="math", repeat=repeat, seconds=seconds, answers=(answer,))

    return make


@pytest.fixture
def make_record() -> Callable[..., BenchRecord]:
    def make(samples: list[Sample], prompt_set_hash: str = "h", processor: str = "P", at: str = "T0") -> BenchRecord:
        names = list(dict.fromkeys(sample.arm for sample in samples))
        arms = tuple(ArmInfo(name=name, config={"method": name.split()[0]}) for name in names)
        phase = Phase(split="report", prompt_set_hash=prompt_set_hash, arms=arms, samples=tuple(samples))
        machine = Machine(
            processor=processor,
            num_cores=2,
            memory_bytes=2**30,
            load_average=0.1,
            system="Linux",
            python="3.11",
            gpus=(),
        )
        return BenchRecord(
            name="methods",
            started_at=at,
            machine=machine,
            packages={"torch": "2.13.0"},
            workload={"max_tokens": 10},
            tuning=None,
            report=phase,
        )

    return make
