"""Measure `treegraft env probe` against sha256sum over the same files, alternately, in one run.

    python scripts/bench_probe.py [--prefix DIR] [--gib 5] [--files 40000] [--rounds 5] [--out FILE]

Makes the environment in DIR unless it is there already (a few minutes and GIB of disk). Prints one line a round and
the medians: cold rate / sha256sum's rate (wanted: at least 0.7), and the seconds of a second probe (wanted: at most 3).
Then it plans the move of one of its packages into a new environment on this host, from the probes in memory and uv's
cached index (wanted: at most 2 s).
Both arms read from the page cache when memory holds the files: a warm-up pass comes first, and what was read from
disk all the same is printed.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]

from worlds.big import BigSize, big_venv  # noqa: E402
from worlds.compiling import Compiler  # noqa: E402
from worlds.venvs import this_python  # noqa: E402

from treegraft.environments.index.resolve import resolve  # noqa: E402
from treegraft.environments.plan import PlanRequest, make_plan  # noqa: E402
from treegraft.environments.probe import probe  # noqa: E402


def sha256sum(prefix: Path) -> float:
    """Seconds for one sha256sum process a batch of files, as a shell user would do it."""
    start = time.monotonic()
    found = subprocess.Popen(["find", str(prefix), "-type", "f", "-print0"], stdout=subprocess.PIPE)
    subprocess.run(["xargs", "-0", "sha256sum"], stdin=found.stdout, stdout=subprocess.DEVNULL, check=True)
    found.wait()
    return time.monotonic() - start


def timed_probe(prefix: Path, use_cache: bool) -> float:
    start = time.monotonic()
    inventory = probe(str(prefix), use_cache=use_cache)
    seconds = time.monotonic() - start
    assert not inventory.partial, inventory.problems[:3]
    return seconds


def timed_plan(prefix: Path) -> float:
    """Seconds for the resolver and the plan, the index asked once before."""
    source = probe(str(prefix), use_cache=True)
    assert source.environment is not None
    target = probe(str(prefix.parent / "treegraft-new"), host_only=True)
    take = (source.environment.dists[0].name,)
    request = PlanRequest(take=take, source=str(prefix), target=target.destination, base=None)
    seconds = 0.0
    for _ in range(2):
        start = time.monotonic()
        resolution = resolve(request, source=source, target=target, base=None)
        make_plan(request, source=source, target=target, base=None, resolution=resolution)
        seconds = time.monotonic() - start
    return seconds


def read_from_disk() -> int:
    """MiB that the kernel has read from disks since it started: an arm that had to is no fair arm."""
    rows = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(rows["pgpgin"]) >> 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=Path, default=Path(tempfile.gettempdir()) / "treegraft-big-venv")
    parser.add_argument("--gib", type=float, default=5.0)
    parser.add_argument("--files", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the figures there (JSON)")
    args = parser.parse_args()
    size = BigSize(total_bytes=int(args.gib * (1 << 30)), num_files=args.files)
    big_venv(args.prefix, this_python(), Compiler(args.prefix.parent / "treegraft-big-objects"), size)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TREEGRAFT_CACHE_DIR"] = cache
        sha256sum(args.prefix)
        rows = []
        for number in range(args.rounds):
            before = read_from_disk()
            base = sha256sum(args.prefix)
            between = read_from_disk()
            cold = timed_probe(args.prefix, use_cache=False)
            disk = (between - before, read_from_disk() - between)
            timed_probe(args.prefix, use_cache=True)
            again = timed_probe(args.prefix, use_cache=True)
            rows.append((base, cold, again))
            print(
                f"round {number}: sha256sum {base:.2f} s, cold probe {cold:.2f} s, second {again:.2f} s, "
                f"rate {base / cold:.2f}x (read from disk: {disk[0]} and {disk[1]} MiB)",
                flush=True,
            )
        plan = timed_plan(args.prefix)
    ratio = statistics.median(base / cold for base, cold, _ in rows)
    again = statistics.median(row[2] for row in rows)
    print(f"median of {args.rounds}: cold rate {ratio:.2f} x sha256sum, second probe {again:.2f} s; plan {plan:.2f} s")
    if args.out is not None:
        document = {
            "command": f"python scripts/bench_probe.py --gib {args.gib:g} --files {args.files} --rounds {args.rounds}",
            "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()[0]},
            "rounds": [dict(zip(("sha256sum_s", "cold_probe_s", "second_probe_s"), row, strict=True)) for row in rows],
            "cold_rate_over_sha256sum": ratio,
            "second_probe_s": again,
            "resolve_and_plan_s": plan,
        }
        args.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
