"""Short runs of several configurations on one corpus, at equal time; names the one that accepts most on held-out rows.

Each configuration is a TOML file; its schedule is shortened to --seconds. Held-out rows are the corpus' validation
split, never a report prompt. Prints a line a run and, last, the path of the best.
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

import msgspec

from treegraft import logs
from treegraft.training.build import drafter_config, load_target
from treegraft.training.config import TrainConfig, read_config
from treegraft.training.corpus.conversation import read_turns
from treegraft.training.loop import METRICS, Trainer, read_corpus


def shortened(config: TrainConfig, seconds: float) -> TrainConfig:
    run = msgspec.structs.replace(config.run, minutes=seconds / 60, steps=0, checkpoint_minutes=60.0)
    return msgspec.structs.replace(config, run=run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="+", type=Path)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--tree-replies", type=int, default=12)
    args = parser.parse_args()
    logs.configure("warning")
    configs = {path: shortened(read_config(path), args.seconds) for path in args.configs}
    first = next(iter(configs.values()))
    target, tokenizer = load_target(first)
    assert tokenizer is not None
    corpus = read_corpus(args.corpus, target, read_turns(tokenizer).end_token)
    scores: dict[Path, float] = {}
    for path, config in configs.items():
        folder = args.runs / path.stem
        shutil.rmtree(folder, ignore_errors=True)
        started = time.perf_counter()
        trainer = Trainer(config, drafter_config(config, target, tokenizer), target, corpus, folder)
        trainer.train()
        trained = time.perf_counter() - started
        tau = trainer.validate()
        tau |= trainer.validate(budgets=(16,), num_candidates=16, max_replies=args.tree_replies)
        last = json.loads([x for x in (folder / METRICS).read_text().splitlines() if '"loss"' in x][-1])
        scores[path] = tau.get("chain_head", tau["chain"])
        figures = {"tau": {k: round(v, 3) for k, v in tau.items()}, "rate": last["block_tokens_per_s"]}
        for name in ("hits_marginal", "hits_conditional"):
            figures[name] = [round(last[name][d], 3) for d in (0, 1, 3, 6, 9, 14) if d < len(last[name])]
        steps = trainer.optimiser.num_steps
        whole = time.perf_counter() - started
        sys.stderr.write(f"{path.stem}: steps {steps}, {trained:.0f}/{whole:.0f} s, {json.dumps(figures)}\n")
        del trainer
    sys.stdout.write(f"{max(scores, key=lambda p: scores[p])}\n")


if __name__ == "__main__":
    main()
