"""`treegraft env diff A B`: what differs between two environments and their hosts, as text, JSON or an HTML page."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from treegraft.cli.output import add_json_option, print_json, print_text

if TYPE_CHECKING:
    from treegraft.environments.compare import EnvironmentDiff
    from treegraft.environments.inventory import Inventory


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "diff",
        help="compare two environments, patched files included",
        description="Compares versions, builds and files of two environments, and the facts of their hosts.",
    )
    parser.add_argument("left", metavar="A", help="HOST:PATH, HOST: alone, a local path, or a saved inventory")
    parser.add_argument("right", metavar="B", help="likewise")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write one self-contained HTML page")
    parser.add_argument("--no-texts", action="store_true", help="do not fetch patched files for unified diffs")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """0 whether or not they differ."""
    from treegraft.environments.compare import compare, with_texts
    from treegraft.environments.ends import read_end
    from treegraft.environments.reports.diff_html import diff_html
    from treegraft.environments.reports.diff_text import diff_text
    from treegraft.errors import UsageError

    left, right = (read_end(text, host_only=text.endswith(":")) for text in (args.left, args.right))
    diff = compare(left, right)
    if not args.no_texts:
        diff = with_texts(diff, _texts(diff, "left", left, args.left), _texts(diff, "right", right, args.right))
    if args.html is not None:
        try:
            args.html.write_text(diff_html(diff), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--html {args.html} cannot be written ({error.strerror})") from error
    if args.json:
        print_json(diff)
    else:
        print_text(diff_text(diff))
    return 0


def _texts(
    diff: "EnvironmentDiff", side: Literal["left", "right"], inventory: "Inventory", destination: str
) -> dict[str, str]:
    """Texts of the patched files of one side; none for a saved inventory, whose files are not at hand."""
    from treegraft.environments.compare import wanted_texts
    from treegraft.environments.probe import read_files

    environment = inventory.environment
    if environment is None or destination.endswith(".json"):
        return {}
    wanted = wanted_texts(diff, side, environment)
    if not wanted:
        return {}
    root = environment.python.site_packages[0] + "/"
    contents = read_files(destination, wanted)
    return {path.removeprefix(root): data.decode("utf-8", "replace") for path, data in contents.items()}
