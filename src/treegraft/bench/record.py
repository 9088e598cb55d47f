"""What a benchmark leaves behind: a versioned document with everything needed to judge its figures.

Holds raw samples, never averages: those are made anew by compare.py and report.py. Reads the machine (inventory of
processor, memory, GPUs, package versions) but measures nothing.
"""

import os
import platform
import subprocess
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from treegraft.errors import UsageError
from treegraft.records import Record, from_json, to_json

PACKAGES = ("treegraft", "torch", "numpy", "transformers", "safetensors", "tokenizers", "triton", "sglang", "vllm")


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """load_average: processes that wanted to run, over the last minute, when the record was begun."""

    processor: str
    num_cores: int
    memory_bytes: int
    load_average: float
    system: str
    python: str
    gpus: tuple[str, ...]


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One prompt's answer. content_hash: sha256 of token ids (in process) or text (HTTP): equal answers have equal
    ones. completion_tokens: from usage, never counted chunks. accept_lengths: tokens committed by each target pass,
    empty where the server does not say. first_token_seconds: from the question to the first text."""

    prompt_id: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    finish_reason: str
    accept_lengths: tuple[int, ...]
    first_token_seconds: float
    seconds: float
    is_loop: bool
    content_hash: str


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One arm's run of one unit. seconds: wall time until all its answers were complete."""

    arm: str
    unit: str
    category: str
    repeat: int
    seconds: float
    answers: tuple[Answer, ...]

    @property
    def tokens_per_second(self) -> float:
        """Completion tokens over wall seconds, prefill included."""
        return sum(answer.completion_tokens for answer in self.answers) / self.seconds

    @property
    def is_loop(self) -> bool:
        return any(answer.is_loop for answer in self.answers)


class ArmInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """config: as resolved by the arm itself (method, budget, dtype, device, URL ...)."""

    name: str
    config: dict[str, Any]


class Phase(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Samples over one split of the prompts. The first arm is the baseline."""

    split: str
    prompt_set_hash: str
    arms: tuple[ArmInfo, ...]
    samples: tuple[Sample, ...]


class BenchRecord(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """tuning: the phase that chose budgets, on other prompts than those of `report`; None when they were given."""

    KIND: ClassVar[str] = "benchmark"
    VERSION: ClassVar[int] = 1

    name: str
    started_at: str
    machine: Machine
    packages: dict[str, str]
    workload: dict[str, Any]
    tuning: Phase | None
    report: Phase


def read_machine() -> Machine:
    return Machine(
        processor=_processor(),
        num_cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        load_average=os.getloadavg()[0],
        system=platform.platform(),
        python=platform.python_version(),
        gpus=_gpus(),
    )


def read_packages(names: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Versions of those that are installed."""
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def write_record(record: BenchRecord, path: Path) -> None:
    """Whole or not at all. Raises UsageError when the place cannot be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(to_json(record))
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"result file {path} cannot be written: {error.strerror}") from error


def read_record(path: Path) -> BenchRecord:
    """Raises UsageError when there is no such file, RecordError when it is no benchmark record."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"result file {path} cannot be read: {error.strerror}") from error
    return from_json(BenchRecord, data)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _gpus() -> tuple[str, ...]:
    """Name, driver and memory of each, from nvidia-smi; empty without one. A hung driver is waited for 10 s."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip()) if done.returncode == 0 else ()
