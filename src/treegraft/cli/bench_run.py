"""`treegraft bench run`: makes the arms, chooses budgets on the tune prompts, runs the report, writes the record.

Decides nothing about figures (bench/ does) and times nothing itself.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from treegraft.bench.alternate import Arm, alternate
from treegraft.bench.client import ServerSampling, server_arm
from treegraft.bench.compare import best_arm
from treegraft.bench.record import BenchRecord, Phase, now, read_machine, read_packages, write_record
from treegraft.bench.report import report_text
from treegraft.bench.workloads import CATEGORIES, Prompt, in_units, load_prompts, prompt_set_hash
from treegraft.cli.bench import parse_counts
from treegraft.cli.engine_options import engine_config, require_engine
from treegraft.cli.output import note, print_json, print_text
from treegraft.engine.config import METHODS
from treegraft.errors import UsageError


@dataclass(frozen=True)
class Spec:
    """One method as asked for; budget None: the tune prompts choose it (ar and auto have none)."""

    method: str
    budget: int | None

    @property
    def name(self) -> str:
        return self.method if self.budget is None else f"{self.method} {self.budget}"


def run_benchmark(args: argparse.Namespace) -> int:
    record = _measure(args)
    out = args.out or Path("results") / f"{args.name}.json"
    write_record(record, out)
    if args.json:
        print_json(record)
    else:
        print_text(report_text(record))
    note(f"record: {out}")
    return 0


def parse_methods(text: str) -> list[Spec]:
    """ "ar,dflash,ddtree:16". Raises UsageError."""
    specs = []
    for word in text.split(","):
        method, colon, budget = word.strip().partition(":")
        if method not in METHODS or (colon and (method in ("ar", "auto") or not budget.isdigit())):
            raise UsageError(f"--methods has {word.strip()!r}; expected ar, auto, dflash, ddtree, dflash:K or ddtree:N")
        specs.append(Spec(method, int(budget) if colon else None))
    if len({spec.name for spec in specs}) < len(specs):
        raise UsageError(f"--methods {text!r} names an arm twice")
    return specs


def _measure(args: argparse.Namespace) -> BenchRecord:
    if args.repeats < 1:
        raise UsageError(f"--repeats is {args.repeats}; expected at least 1")
    started_at, machine = now(), read_machine()
    categories = [word.strip() for word in args.categories.split(",") if word.strip()] or list(CATEGORIES)
    prompts = load_prompts(args.split, categories, args.limit)
    others = load_prompts("tune" if args.split == "report" else "report", categories, args.tune_limit)
    concurrencies = parse_counts(args.concurrency, "--concurrency")
    group = max(concurrencies)
    num_looping = 0
    if args.server:
        tuning = None
        arms = [_server_arm(text, args, n, len(concurrencies) > 1) for text in args.server for n in concurrencies]
        prompts, num_looping = _fit_for_groups(arms[0], prompts, group)
        report = _phase(args.split, prompts, arms, args.repeats, group, others[:1])
    else:
        require_engine()
        specs = parse_methods(args.methods)
        tuning, specs = _choose_budgets(args, specs, others)
        with _engine_arms(args, specs, concurrencies) as engines:
            prompts, num_looping = _fit_for_groups(engines[0], prompts, group)
            report = _phase(args.split, prompts, engines, args.repeats, group, others[:1])
    return BenchRecord(
        name=args.name,
        started_at=started_at,
        machine=machine,
        packages=read_packages(),
        workload={
            "split": args.split,
            "prompts": len(prompts),
            "max_tokens": args.max_tokens,
            "temperature": args.temperature,
            "seed": args.seed if args.temperature > 0 else None,
            "repeats": args.repeats,
            "group": group,
            "looping_prompts_left_out": num_looping,
            "prefill": "cold" if not args.server else "as the server has it",
        },
        tuning=tuning,
        report=report,
    )


def _fit_for_groups(arm: Arm, prompts: Sequence[Prompt], group: int) -> tuple[list[Prompt], int]:
    """The prompts whose answers do not end in a loop, and how many do. One looping answer would spoil its whole group,
    so groups are made of these; single prompts are judged by their samples."""
    if group == 1:
        return list(prompts), 0
    in_units(prompts, group)
    answers = {answer.prompt_id: answer for answer in arm.ask(prompts)}
    kept = [prompt for prompt in prompts if not answers[prompt.id].is_loop]
    return kept, len(prompts) - len(kept)


def _phase(
    split: str, prompts: Sequence[Prompt], arms: Sequence[Arm], repeats: int, group: int, warmup: Sequence[Prompt]
) -> Phase:
    units = in_units(prompts, group)
    samples = alternate(arms, units, repeats, in_units(warmup, 1)[0], label=f"bench {split}")
    return Phase(
        split=split,
        prompt_set_hash=prompt_set_hash([prompt for unit in units for prompt in unit.prompts]),
        arms=tuple(arm.info for arm in arms),
        samples=tuple(samples),
    )


def _choose_budgets(
    args: argparse.Namespace, specs: Sequence[Spec], prompts: Sequence[Prompt]
) -> tuple[Phase | None, list[Spec]]:
    """Specs with every budget filled in, chosen by throughput against ar on prompts that are not reported."""
    options = {
        "dflash": parse_counts(args.chains, "--chains"),
        "ddtree": parse_counts(args.budgets, "--budgets"),
    }
    open_methods = [spec.method for spec in specs if spec.method in options and spec.budget is None]
    if not open_methods:
        return None, list(specs)
    candidates = {method: [Spec(method, budget) for budget in options[method]] for method in open_methods}
    baseline = Spec("ar", None)
    with _engine_arms(args, [baseline, *(spec for group in candidates.values() for spec in group)], [1]) as arms:
        phase = _phase(prompts[0].split, prompts, arms, 1, 1, prompts[:1])
    chosen = {
        method: best_arm(phase.samples, [spec.name for spec in group], baseline.name)
        for method, group in candidates.items()
    }
    by_name = {spec.name: spec for group in candidates.values() for spec in group}
    return phase, [by_name[chosen[s.method]] if s.budget is None and s.method in chosen else s for s in specs]


@contextmanager
def _engine_arms(args: argparse.Namespace, specs: Sequence[Spec], concurrencies: Sequence[int]) -> Iterator[list[Arm]]:
    """One engine a spec and concurrency, all alive at once so that they can alternate."""
    from treegraft.cli.bench_arms import engine_arm
    from treegraft.engine.request import SamplingParams

    params = SamplingParams(max_tokens=args.max_tokens, temperature=args.temperature, seed=args.seed)
    with ExitStack() as stack:
        arms = []
        for spec in specs:
            for concurrency in concurrencies:
                config = engine_config(args, method=spec.method, budget=spec.budget, max_running=concurrency)
                name = spec.name if len(concurrencies) == 1 else f"{spec.name} x{concurrency}"
                arm, close = engine_arm(name, config, params, concurrency)
                stack.callback(close)
                arms.append(arm)
        yield arms


def _server_arm(text: str, args: argparse.Namespace, concurrency: int, is_one_of_several: bool) -> Arm:
    name, equals, url = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--server is {text!r}; expected NAME=URL, like ours=http://127.0.0.1:30000")
    sampling = ServerSampling(args.max_tokens, args.temperature, args.seed)
    return server_arm(f"{name} x{concurrency}" if is_one_of_several else name, url, sampling, concurrency)
