"""`treegraft bench run | compare | report`: options and calls. The figures are bench/'s, the runs bench_run.py's."""

import argparse
from pathlib import Path

from treegraft.cli.engine_options import add_engine_options
from treegraft.cli.output import add_json_option, print_json, print_text
from treegraft.errors import UsageError


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "bench",
        help="measure methods or servers against each other; compare and report",
        description="Arms alternate on the same prompts in one run; budgets are chosen on other prompts than those "
        "reported; texts that end in a loop are left out and counted.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_run(actions)
    _add_compare(actions)
    _add_report(actions)


def run(args: argparse.Namespace) -> int:
    if args.action == "run":
        from treegraft.cli.bench_run import run_benchmark

        return run_benchmark(args)
    return _compare(args) if args.action == "compare" else _report(args)


def _add_run(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser("run", help="run arms against each other and write a record")
    parser.add_argument(
        "--methods",
        default="ar,dflash,ddtree",
        metavar="LIST",
        help="arms in this process, of ar, auto, dflash and ddtree; the first is the baseline; dflash and ddtree may "
        "name a budget, as ddtree:16 (%(default)s)",
    )
    parser.add_argument(
        "--server",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="an OpenAI-compatible server as an arm, in place of engines here; may repeat",
    )
    parser.add_argument(
        "--budgets", default="4,8,16,32", metavar="LIST", help="of these, tune prompts choose ddtree's (%(default)s)"
    )
    parser.add_argument(
        "--chains", default="3,5,7", metavar="LIST", help="of these, tune prompts choose dflash's (%(default)s)"
    )
    parser.add_argument("--name", default="methods", help="the record's name (%(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the record there (results/NAME.json)")
    parser.add_argument("--split", default="report", choices=("report", "tune"), help="prompts to report (%(default)s)")
    parser.add_argument("--categories", default="", metavar="LIST", help="of math, code, chat, extraction (all)")
    parser.add_argument("--limit", type=int, metavar="N", help="prompts a category (all)")
    parser.add_argument("--tune-limit", type=int, default=3, metavar="N", help="tune prompts a category (%(default)s)")
    parser.add_argument("--repeats", type=int, default=2, metavar="N", help="runs of each arm on each (%(default)s)")
    parser.add_argument("--max-tokens", type=int, default=128, metavar="N", help="longest answer (%(default)s)")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 is argmax (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="key of the noise at T > 0 (%(default)s)")
    parser.add_argument(
        "--concurrency",
        default="1",
        metavar="LIST",
        help="requests at a time; each makes arms of its own (%(default)s)",
    )
    add_json_option(parser)
    add_engine_options(parser)


def _add_compare(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser("compare", help="one arm of a record against one of another record")
    parser.add_argument("baseline", type=Path, metavar="A.json", help="record of the baseline")
    parser.add_argument("other", type=Path, metavar="B.json", help="record to compare with it")
    parser.add_argument("--arm", metavar="NAME", help="the arm of both records (their only common one)")
    add_json_option(parser)


def _add_report(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser("report", help="print a record as a table")
    parser.add_argument("record", type=Path, metavar="FILE", help="record that bench run wrote")
    add_json_option(parser)


def _compare(args: argparse.Namespace) -> int:
    from treegraft.bench.across import across_text, compare_across
    from treegraft.bench.record import read_record

    across = compare_across(read_record(args.baseline), read_record(args.other), args.arm)
    if args.json:
        print_json(across.comparison)
    else:
        print_text(across_text(across))
    return 0


def _report(args: argparse.Namespace) -> int:
    from treegraft.bench.record import read_record
    from treegraft.bench.report import figures, report_text

    record = read_record(args.record)
    if args.json:
        print_json({"tuning": record.tuning and figures(record.tuning), "report": figures(record.report)})
    else:
        print_text(report_text(record))
    return 0


def parse_counts(text: str, option: str) -> list[int]:
    """ "4,8,16" as numbers >= 1. Raises UsageError that names the option."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise UsageError(f"{option} is {text!r}; expected numbers like 4,8,16")
    return [int(word) for word in words]
