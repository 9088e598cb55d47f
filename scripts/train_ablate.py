"""Short runs of several configurations on one corpus, at equal time, compared on held-out rows (never report prompts).

The first TOML file is the base, each other one differs from it in a thing or two. Then `merged` (the base with every
difference that gained more than --gain) is tried, and the best --finalists run again with other seeds. tau is exact:
held-out replies at T = 0 and T = 1 are walked as decoding would (training/validate.py); trees are built by other
processes while the next run trains. Writes a JSON record, and the winner's configuration as TOML.
"""

import argparse
import dataclasses
import json
import shutil
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from treegraft import logs
from treegraft.training.config import TrainConfig, read_config
from treegraft.training.corpus.shards import Rows
from treegraft.training.validate import Drafts, Reply, mean_tau, tree_walk

BUDGETS = (16, 64)
NUM_CANDIDATES = 32
SCALES = np.exp(np.linspace(np.log(0.5), np.log(2.0), 25))
SCORE = ("chain", "tree64_head", "tree64_head_t1")  # the winner has the largest geometric mean of these
Lengths = dict[str, list[int]]


def shortened(config: TrainConfig, seconds: float, seed: int) -> TrainConfig:
    run = msgspec.structs.replace(config.run, minutes=seconds / 60, steps=0, checkpoint_minutes=60.0, seed=seed)
    return msgspec.structs.replace(config, run=run)


def walks(drafts: Drafts, rows: Rows, reply: Reply, scales: NDArray[np.float64] | None) -> Lengths:
    """Lengths that each way of building trees commits on one reply: marginals, marginals scaled by depth, the head."""
    found: Lengths = {}
    for budget in BUDGETS:
        found[f"tree{budget}"] = tree_walk(drafts, rows, reply, budget, by_head=False)
        if scales is not None:
            found[f"tree{budget}_calibrated"] = tree_walk(
                calibrated(drafts, scales), rows, reply, budget, by_head=False
            )
        if drafts.tables is not None:
            found[f"tree{budget}_head"] = tree_walk(drafts, rows, reply, budget, by_head=True)
    return found


def calibrated(drafts: Drafts, scales: NDArray[np.float64]) -> Drafts:
    """Candidates' log-probabilities times their depth's scale, with what lies outside of them as one candidate more."""
    scaled = _scaled(drafts.log_probs, scales[None, :, None])
    return dataclasses.replace(drafts, log_probs=np.minimum(scaled, 0).astype(np.float32))


def _scaled(log_probs: NDArray[Any], scales: NDArray[Any]) -> NDArray[np.float64]:
    wide = log_probs.astype(np.float64)
    rest = np.log(np.clip(1 - np.exp(wide).sum(-1), 1e-9, 1))
    scaled, scaled_rest = wide * scales, rest * scales[..., 0]
    return scaled - np.logaddexp(np.logaddexp.reduce(scaled, axis=-1), scaled_rest)[..., None]


def fit_scales(many: list[Drafts]) -> NDArray[np.float64]:
    """One scale a depth, of largest likelihood of the true tokens."""
    log_probs = np.concatenate([d.log_probs for d in many])
    truth, ids = np.concatenate([d.truth for d in many]), np.concatenate([d.ids for d in many])
    best = np.full(truth.shape[1], -np.inf)
    chosen = np.ones(truth.shape[1])
    for scale in SCALES:
        scaled = _scaled(log_probs, np.full((1, 1, 1), scale))
        is_true = ids == truth[:, :, None]
        rest = np.log(np.clip(1 - np.exp(scaled).sum(-1), 1e-9, 1))
        likely = np.where(is_true.any(-1), np.where(is_true, scaled, 0).sum(-1), rest)
        total = np.where(truth >= 0, likely, 0).sum(0)
        chosen, best = np.where(total > best, scale, chosen), np.maximum(total, best)
    return chosen


class Bench:
    """Trains configurations one after the other; trees are walked by `pool` meanwhile."""

    def __init__(self, args: argparse.Namespace, base: TrainConfig, pool: ProcessPoolExecutor) -> None:
        from treegraft.training.build import load_target
        from treegraft.training.corpus.conversation import read_turns
        from treegraft.training.loop import read_corpus

        self._args, self._pool = args, pool
        self._target, tokenizer = load_target(base)
        assert tokenizer is not None
        self._tokenizer = tokenizer
        self._corpus = read_corpus(args.corpus, self._target, read_turns(tokenizer).end_token)
        self.waiting: dict[tuple[str, int], tuple[dict[str, Any], list[tuple[str, Future[Lengths]]]]] = {}

    def run(self, name: str, config: TrainConfig, seed: int) -> None:
        from treegraft.training.build import drafter_config
        from treegraft.training.loop import METRICS, Trainer

        folder = self._args.runs / f"{name}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        started = time.perf_counter()
        config = shortened(config, self._args.seconds, seed)
        drafter = drafter_config(config, self._target, self._tokenizer)
        trainer = Trainer(config, drafter, self._target, self._corpus, folder)
        trainer.train()
        trained = time.perf_counter()
        jobs: list[tuple[str, Future[Lengths]]] = []
        found: dict[str, Any] = {}
        for temperature, suffix in ((0.0, ""), (1.0, "_t1")):
            replies = trainer.held_out(temperature)[: self._args.replies]
            if len(replies) < 2:
                sys.exit(f"{self._args.corpus}: {len(replies)} held-out replies at T = {temperature:g}; need 2")
            drafts = [trainer.drafts([reply], NUM_CANDIDATES, temperature) for reply in replies]
            found |= self._chains(drafts, replies, suffix)
            half = len(replies) // 2
            scales = fit_scales(drafts[:half])
            found[f"scales{suffix}"] = [round(float(s), 3) for s in scales]
            for place, (reply, draft) in enumerate(zip(replies, drafts, strict=True)):
                rows = self._corpus.validation
                row = Rows(*(part[reply.row : reply.row + 1] for part in dataclasses.astuple(rows)))
                own = {(0, at): index for (_, at), index in draft.where.items()}
                moved = dataclasses.replace(draft, where=own), row, dataclasses.replace(reply, row=0)
                jobs.append((suffix, self._pool.submit(walks, *moved, scales if place >= half else None)))
        lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
        rates = [line["block_tokens_per_s"] for line in lines if "loss" in line]
        found |= {
            "steps": trainer.optimiser.num_steps,
            "block_tokens_per_s": round(float(np.median(rates))),
            "seconds": [round(trained - started), round(time.perf_counter() - trained)],
        }
        self.waiting[name, seed] = found, jobs

    def _chains(self, drafts: list[Drafts], replies: list[Reply], suffix: str) -> dict[str, float]:
        from treegraft.training.validate import chain_lengths

        ways = {"chain": False} | ({"chain_head": True} if drafts[0].tables is not None else {})
        pairs = list(zip(drafts, replies, strict=True))
        return {
            name + suffix: mean_tau([chain_lengths(draft, reply, by_head) for draft, reply in pairs])
            for name, by_head in ways.items()
        }

    def results(self) -> dict[str, dict[str, Any]]:
        """By "name-seed", once all trees are walked."""
        for found, jobs in self.waiting.values():
            lengths: dict[str, list[list[int]]] = {}
            for suffix, job in jobs:
                for way, committed in job.result().items():
                    lengths.setdefault(way + suffix, []).append(committed)
            for way, many in lengths.items():
                found[way] = mean_tau(many)
                if "calibrated" not in way:  # which has no first half: its scales were fitted there
                    found[f"{way}_second_half"] = mean_tau(many[len(many) // 2 :])
            jobs.clear()
        return {f"{name}-{seed}": found for (name, seed), (found, _) in self.waiting.items()}


def score(found: dict[str, Any]) -> float:
    """Of configurations with a head; one without is scored by its marginals."""
    values = [found.get(key, found.get(key.replace("_head", ""))) for key in SCORE]
    return float(np.exp(np.mean(np.log(values))))


def merged(base: TrainConfig, others: list[TrainConfig]) -> TrainConfig:
    """The base with every key in which one of the others differs from it (the first one's word counts)."""
    document, given = msgspec.to_builtins(base), msgspec.to_builtins(base)
    for other in reversed(others):
        for section in ("drafter", "run"):
            for key, value in msgspec.to_builtins(other)[section].items():
                if value != given[section][key]:
                    document[section][key] = value
    return msgspec.convert(document, TrainConfig)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="+", type=Path)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--replies", type=int, default=32)
    parser.add_argument("--finalists", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--gain", type=float, default=0.01)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--winner", type=Path, help="write the winner's configuration here (TOML)")
    args = parser.parse_args()
    logs.configure("warning")
    configs = {path.stem: read_config(path) for path in args.configs}
    base_name, base = next(iter(configs.items()))
    with ProcessPoolExecutor(max_workers=12) as pool:
        list(pool.map(abs, range(64)))  # workers are there before this process touches a GPU
        bench = Bench(args, base, pool)
        for name, config in configs.items():
            bench.run(name, config, 1)
            write(args.out, configs, bench.results() if name == list(configs)[-1] else {})
        scores = {name: score(bench.results()[f"{name}-1"]) for name in configs}
        gained = sorted(
            (n for n in configs if scores[n] > (1 + args.gain) * scores[base_name]), key=lambda n: -scores[n]
        )
        if len(gained) > 1:
            configs["merged"] = merged(base, [configs[n] for n in gained])
            bench.run("merged", configs["merged"], 1)
            scores["merged"] = score(bench.results()["merged-1"])
        finalists = sorted(scores, key=lambda n: -scores[n])[: args.finalists]
        for seed in range(2, args.seeds + 1):
            for name in finalists:
                bench.run(name, configs[name], seed)
        results = bench.results()
    means = {n: float(np.mean([score(results[f"{n}-{s}"]) for s in range(1, args.seeds + 1)])) for n in finalists}
    winner = max(means, key=lambda n: means[n])
    write(args.out, configs, results | {"scores": scores, "finalists": means, "winner": winner})
    if args.winner is not None:
        args.winner.write_text(as_toml(msgspec.to_builtins(configs[winner])))
    sys.stdout.write(f"{winner}\n")


def as_toml(document: dict[str, Any]) -> str:
    """Strings, numbers, truth values and lists of them are written alike in JSON and TOML."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in document.items() if not isinstance(value, dict)]
    for section, values in document.items():
        if isinstance(values, dict):
            plain += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(plain) + "\n"


def write(path: Path, configs: dict[str, TrainConfig], results: dict[str, Any]) -> None:
    given = {name: {k: v for k, v in msgspec.to_builtins(c).items() if k != "data"} for name, c in configs.items()}
    path.write_text(json.dumps({"configs": given, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
