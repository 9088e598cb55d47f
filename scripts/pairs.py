"""Random pairs of environments against their oracle: the verdict on a dist must equal what importing it does.

    python scripts/pairs.py 500                     the first 500 pairs of seed 0
    python scripts/pairs.py --seed 7 --only 123     one pair, kept on disk, with all its findings
    python scripts/pairs.py --kinds                 the kinds of pairs

Exit code 1 when any verdict is wrong; each wrong one is printed with the command that makes it again.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "src")]

from worlds.compiling import Compiler  # noqa: E402
from worlds.pairs.judge import Verdict, fresh, judge_check, judge_plan  # noqa: E402
from worlds.pairs.kinds import KINDS, make_pair  # noqa: E402
from worlds.pairs.lay_out import lay_out  # noqa: E402
from worlds.venvs import Python, describe_python, this_python  # noqa: E402

from treegraft.settings import cache_dir  # noqa: E402

PLAN_EVERY = 4  # coprime to the number of kinds: each kind is planned, at some number


@dataclass(frozen=True)
class Task:
    seed: int
    number: int
    folder: str
    objects: str
    python: Python
    with_plan: bool


@dataclass(frozen=True)
class Judged:
    number: int
    kind: str
    variant: str
    verdicts: tuple[Verdict, ...]


def judge(task: Task) -> Judged:
    """Make the pair in a folder of its own and put the questions."""
    kind, pair = make_pair(task.seed, task.number, Compiler(Path(task.objects)), task.python)
    laid = lay_out(pair, fresh(Path(task.folder) / f"pair{task.number}"), task.python)
    verdicts = tuple(judge_check(laid))
    if task.with_plan:
        verdicts += tuple(judge_plan(laid))
    return Judged(task.number, kind, pair.variant, verdicts)


def judge_and_clear(task: Task) -> Judged:
    judged = judge(task)
    shutil.rmtree(Path(task.folder) / f"pair{task.number}")
    return judged


def tasks(args: argparse.Namespace, folder: str) -> Iterator[Task]:
    python = describe_python(args.python) if args.python else this_python()
    objects = str(cache_dir() / "test-objects")
    numbers = range(args.count) if args.only is None else [args.only]
    for number in numbers:
        with_plan = args.only is not None or number % PLAN_EVERY == 0
        yield Task(args.seed, number, folder, objects, python, with_plan)


def show_one(args: argparse.Namespace) -> int:
    folder = args.keep or tempfile.mkdtemp(prefix="treegraft-pair-")
    judged = judge(next(tasks(args, folder)))
    print(f"{judged.kind}: {judged.variant}\nkept in {folder}")
    for verdict in judged.verdicts:
        mark = "right" if verdict.is_right else "WRONG"
        print(f"{mark} {verdict.question} {verdict.dist}: imports={verdict.real.works} {verdict.real.message}")
        for line in verdict.blocks:
            print(f"    {line}")
    return 0 if all(v.is_right for v in judged.verdicts) else 1


def as_text(seed: int, judged: Judged, verdict: Verdict) -> str:
    real = f"imports={verdict.real.works} {verdict.real.message}"
    return (
        f"WRONG {verdict.question} {judged.kind} ({judged.variant}) {verdict.dist}: {real} {list(verdict.blocks)}\n"
        f"      python scripts/pairs.py --seed {seed} --only {judged.number}"
    )


def run_many(args: argparse.Namespace) -> int:
    begun, wrong = time.monotonic(), []
    counts: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory(prefix="treegraft-pairs-") as folder, ProcessPoolExecutor(args.jobs) as pool:
        for judged in pool.map(judge_and_clear, tasks(args, folder)):
            for verdict in judged.verdicts:
                counts["importable" if verdict.real.works else "not importable"] += 1
                counts[verdict.question] += 1
                of_kind = kinds.setdefault(judged.kind, Counter())
                of_kind["imports" if verdict.real.works else "does not import"] += 1
                of_kind["wrong"] += not verdict.is_right
                if not verdict.is_right:
                    wrong.append((judged, verdict))
                    print(as_text(args.seed, judged, verdict), flush=True)
    if args.failures and wrong:
        args.failures.mkdir(parents=True, exist_ok=True)
        for judged, verdict in wrong:
            document = {"seed": args.seed, "number": judged.number, "kind": judged.kind, "variant": judged.variant}
            path = args.failures / f"seed{args.seed}-{judged.number}-{verdict.question}-{verdict.dist}.json"
            path.write_text(json.dumps({**document, "verdict": asdict(verdict)}, indent=2) + "\n")
    total = counts["importable"] + counts["not importable"]
    print(f"{args.count} pairs of {min(args.count, len(KINDS))} kinds, seed {args.seed}: {total} verdicts "
          f"({counts['check']} check, {counts['plan']} plan; {counts['importable']} importable, "
          f"{counts['not importable']} not), {len(wrong)} wrong, {time.monotonic() - begun:.0f} s")  # fmt: skip
    if args.out is not None:
        document = {
            "command": f"python scripts/pairs.py {args.count} --seed {args.seed}",
            "python": platform.python_version(),
            "platform": f"{platform.machine()} {' '.join(platform.libc_ver())}",
            "pairs": args.count,
            "verdicts": dict(sorted(counts.items())),
            "wrong": len(wrong),
            "kinds": {name: dict(found) for name, found in sorted(kinds.items())},
        }
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="N", help="pair N alone; its environments stay")
    parser.add_argument("--keep", metavar="FOLDER", help="where --only puts them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--failures", type=Path, metavar="FOLDER", help="write one JSON file for each wrong verdict")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the counts, kind by kind (JSON)")
    parser.add_argument("--python", type=Path, metavar="FILE", help="interpreter of the environments, with Python.h")
    parser.add_argument("--kinds", action="store_true")
    args = parser.parse_args()
    if args.kinds:
        print("\n".join(f"{name}: {(kind.__doc__ or '').strip()}" for name, kind in KINDS.items()))
        return 0
    return show_one(args) if args.only is not None else run_many(args)


if __name__ == "__main__":
    sys.exit(main())
