"""`treegraft env check HOST:PATH`: every rule on one environment; exit code 3 when a finding blocks."""

import argparse

from treegraft.cli.output import add_json_option, print_json, print_text


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "check",
        help="say what in an environment does not work, or will not",
        description="Runs the compatibility rules on one environment; exit code 3 when a finding blocks.",
    )
    parser.add_argument("environment", metavar="HOST:PATH", help="an environment, a local path, or a saved inventory")
    parser.add_argument(
        "--against-index",
        metavar="DIST[,DIST]",
        help="also compare these with the wheel of their version on your package index",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from treegraft.environments.compatibility import check
    from treegraft.environments.ends import names_of, read_end
    from treegraft.environments.findings import CheckReport, in_order, is_blocked
    from treegraft.environments.reports.findings_text import findings_text
    from treegraft.errors import UsageError

    inventory = read_end(args.environment)
    if inventory.environment is None:
        raise UsageError(f"{args.environment} is an inventory of a host alone; expected an environment")
    findings = check(inventory)
    if args.against_index:
        from treegraft.environments.index.origin import check_origins

        origins = check_origins(inventory, names_of(args.against_index))
        findings = in_order((*findings, *origins.findings()))
    report = CheckReport(environment=inventory.destination, partial=inventory.partial, findings=findings)
    if args.json:
        print_json(report)
    else:
        print_text(findings_text(findings))
    return 3 if is_blocked(findings) else 0
