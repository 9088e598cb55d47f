"""`treegraft env plan`: what would be moved into a copy of an environment, from where, and why. Changes nothing."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from treegraft.cli.output import add_json_option, print_json, print_text

if TYPE_CHECKING:
    from treegraft.environments.inventory import Inventory
    from treegraft.environments.planning.request import PlanRequest
    from treegraft.environments.planning.resolution import PatchFolder

NEW = "new"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "plan",
        help="plan the transplant of distributions from one environment into a copy of another",
        description="Reads both ends and your package index, and says what would be moved and why. Moves nothing; "
        "exit code 3 when a finding blocks.",
    )
    parser.add_argument(
        "--take", required=True, metavar="DIST[,DIST]", help="what is wanted (DIST==VERSION for a FOLDER)"
    )
    parser.add_argument(
        "--from",
        required=True,
        dest="source",
        metavar="A:PATH|FOLDER",
        help="an environment, or a folder of patched modules",
    )
    parser.add_argument("--to", required=True, dest="target", metavar="B:PATH|new", help="where it is to be")
    parser.add_argument("--base", metavar="B:PATH", help="environment to start from; it is copied, never written")
    parser.add_argument(
        "--keep", default="", metavar="DIST[,DIST]", help="dists of the base that must stay as they are"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the plan (JSON) to FILE")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from treegraft import records
    from treegraft.environments.ends import libraries_wanted_by, names_of, read_end
    from treegraft.environments.index.resolve import resolve
    from treegraft.environments.plan import PlanRequest, make_plan
    from treegraft.environments.reports.plan_text import plan_text
    from treegraft.errors import UsageError

    names, versions = _taken(args.take)
    request = PlanRequest(
        take=names,
        source=args.source,
        target=args.target,
        base=args.base,
        keep=names_of(args.keep) if args.keep else (),
    )
    folder = _patch_folder(args.source)
    source = None if folder is not None else read_end(args.source)
    if source is not None and versions:
        raise UsageError(f"--take {args.take}: a version can only be named for a folder of patched modules")
    wanted = libraries_wanted_by(source) if source is not None else frozenset()
    base = read_end(args.base, sonames=wanted) if args.base else None
    if base is not None and (base.environment is None or base.environment.kind == "folder"):
        raise UsageError(f"--base {args.base} is no environment; expected one to start from")
    target = _read_target(request, base, wanted)
    chosen: Inventory | PatchFolder = (
        source if source is not None else _read_folder(folder, request, versions, target, base)
    )
    resolution = resolve(request, source=chosen, target=target, base=base)
    plan = make_plan(request, source=chosen, target=target, base=base, resolution=resolution)
    if args.out is not None:
        try:
            args.out.write_text(records.to_json(plan), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--out {args.out} cannot be written ({error.strerror})") from error
    if args.json:
        print_json(plan)
    else:
        print_text(plan_text(plan))
    return 3 if plan.is_blocked else 0


def _taken(text: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """`sglang==0.5.17,flashinfer` -> names and the versions that were said."""
    from treegraft.environments.ends import names_of

    words = [word.strip().partition("==") for word in text.split(",")]
    names = names_of(",".join(name for name, _, _ in words))
    versions = {names_of(name)[0]: version for name, _, version in words if version}
    return names, versions


def _patch_folder(text: str) -> Path | None:
    """The local folder when it is one of modules rather than an environment."""
    from treegraft.environments.connect import parse_destination

    where = parse_destination(text)
    path = Path(where.path).expanduser()
    if where.host is not None or text.endswith(".json") or not path.is_dir():
        return None
    marks = (path / "pyvenv.cfg", path / "conda-meta", path / "bin" / "python")
    has_site = any(path.glob("lib/python*/site-packages"))
    return None if has_site or any(mark.exists() for mark in marks) else path


def _read_target(request: "PlanRequest", base: "Inventory | None", sonames: frozenset[str]) -> "Inventory":
    """The environment at the target path, or the host alone when there is nothing yet."""
    import msgspec

    from treegraft.environments.ends import read_end
    from treegraft.errors import NothingThereError, UsageError

    text = request.target
    if text == NEW:
        if base is None:
            raise UsageError("--to new needs the host: say HOST:PATH, or name an environment there with --base")
        return msgspec.structs.replace(base, environment=None)  # beside the base
    try:
        return read_end(text, sonames=sonames)
    except NothingThereError:
        return read_end(text, sonames=sonames, host_only=True)


def _read_folder(
    folder: Path | None,
    request: "PlanRequest",
    versions: dict[str, str],
    target: "Inventory",
    base: "Inventory | None",
) -> "PatchFolder":
    from treegraft.environments.index.patch import read_patch_folder
    from treegraft.environments.index.uv import platform_of
    from treegraft.environments.planning.request import result_python
    from treegraft.errors import UsageError

    assert folder is not None
    if len(request.take) != 1:
        raise UsageError(f"a folder of patched modules is of one distribution; --take names {len(request.take)}")
    name = request.take[0]
    system = target.host.system
    return read_patch_folder(
        folder,
        name,
        versions.get(name),
        python=result_python(None, target, base),
        platform=platform_of(system.machine, system.libc_version),
    )
