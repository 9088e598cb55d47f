"""What `make bench` runs, one after the other: the methods against each other, AR against transformers, eight requests
together against one at a time. Old results are removed first, so that a table is never of two runs.

    python scripts/run_benchmarks.py [--out results] [--quick]
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = "smollm2-135m"


def commands(out: Path, is_quick: bool) -> dict[str, list[str]]:
    """Record name -> command. quick: a look at whether everything runs; its figures say nothing."""
    bench = [sys.executable, "-m", "treegraft", "bench", "run", "--model", MODEL, "--dtype", "float32"]
    quick = ["--limit", "1", "--max-tokens", "16", "--repeats", "1"]
    size, once = (quick, quick) if is_quick else ([], ["--repeats", "1"])
    tune = ["--tune-limit", "1"] if is_quick else []
    # Ten groups of eight: short answers keep the run short, and the ratio is of whole groups.
    groups = ["--concurrency", "1,8", "--max-tokens", "48"]
    group_size = ["--limit", "2", "--max-tokens", "16", "--repeats", "1"] if is_quick else []

    def methods(name: str, *options: str) -> list[str]:
        return [*bench, "--name", name, "--out", str(out / f"{name}.json"), *options]

    return {
        "methods-t0": methods("methods-t0", *size, *tune),
        "methods-t1": methods("methods-t1", "--temperature", "1", *once, *tune),
        "transformers": [
            sys.executable,
            "scripts/bench_transformers.py",
            "--out",
            str(out / "transformers.json"),
            *once,
        ],
        "concurrency-ar": methods("concurrency-ar", "--methods", "ar", *groups, *group_size),
        "concurrency-auto": methods("concurrency-auto", "--methods", "auto", *groups, *group_size),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Run every benchmark of the embedded default.")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the records (results)")
    parser.add_argument("--quick", action="store_true", help="does everything run? figures say nothing")
    parser.add_argument("--only", metavar="LIST", help="names, of methods-t0, methods-t1, transformers, concurrency-*")
    args = parser.parse_args()
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    wanted = commands(out, args.quick)
    if args.only:
        names = args.only.split(",")
        unknown = [name for name in names if name not in wanted]
        if unknown:
            print(f"bench: error: unknown benchmark {unknown[0]!r}; there are {', '.join(wanted)}", file=sys.stderr)
            return 2
        wanted = {name: wanted[name] for name in names}
    environment = {**os.environ, "TREEGRAFT_LOG_LEVEL": os.environ.get("TREEGRAFT_LOG_LEVEL", "warning")}
    pull = [sys.executable, "-m", "treegraft", "pull", MODEL]
    if subprocess.call(pull, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) != 0:
        return 1
    for name in wanted:
        (out / f"{name}.json").unlink(missing_ok=True)
    for name, command in wanted.items():
        print(f"== {name}", flush=True)
        code = subprocess.call(command, cwd=ROOT, env=environment)
        if code != 0:
            return code
        print(flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
