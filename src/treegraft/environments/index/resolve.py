"""Which versions fit together on the target, asked of uv. Knows how to ask; what follows from it is for planning."""

import os
import re
import tempfile
from pathlib import Path

from packaging.utils import canonicalize_name

from treegraft.environments.index.sizes import wheel_sizes
from treegraft.environments.index.stubs import is_plain, stub_name, version_of, write_stubs
from treegraft.environments.index.uv import pip_compile, platform_of, target_options, user_find_links
from treegraft.environments.inventory import Dist, Inventory
from treegraft.environments.planning.request import PlanRequest, effective_base, result_python
from treegraft.environments.planning.resolution import PatchFolder, Pin, Resolution

PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?(==(?P<version>[^\s;]+)| @ (?P<url>\S+))")
MISSING = re.compile(r"no version of ([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==|([A-Za-z0-9._-]+) was not found")
UNREACHABLE = ("Failed to fetch", "error sending request", "dns error", "Connection refused", "timed out")
MAX_ABSENT = 60


def resolve(
    request: PlanRequest,
    *,
    source: Inventory | PatchFolder,
    target: Inventory,
    base: Inventory | None,
) -> Resolution:
    """Resolution for `plan.make_plan`, with uv's own index options (UV_INDEX_URL, UV_FIND_LINKS, uv.toml, or pip's).

    What the base has is preferred, then what the source has; the index fills in the rest. Raises HostError when uv
    cannot be run. An index that cannot be reached leaves the dists of both ends, and `explanation` says so.
    """
    ours, theirs = _dists(effective_base(target, base)), _dists(source)
    with tempfile.TemporaryDirectory(prefix="treegraft-resolve-") as name:
        folder = Path(name)
        (folder / "stubs").mkdir()
        write_stubs([*ours.values(), *theirs.values()], folder / "stubs")
        requirements = _requirements(request, source, ours, theirs, folder / "stubs")
        (folder / "pins.txt").write_text(_preferences(ours, theirs))
        options = [*_platform(source, target, base), "--find-links", "stubs", *user_find_links(os.environ)]
        answer = pip_compile(folder, requirements, [*options, "--output-file", "pins.txt"])
        note = ""
        if not answer.is_ok and any(text in answer.error for text in UNREACHABLE):
            note = "the index cannot be reached; only what both ends have was considered"
            answer = pip_compile(folder, requirements, [*options, "--no-index", "--output-file", "pins.txt"])
        if not answer.is_ok:
            return Resolution(satisfiable=False, explanation=_explain(answer.error))
        pins = _parse((folder / "pins.txt").read_text())
        wanted = {n: f"{n}=={v}" for n, (v, _) in pins.items() if n not in ours or ours[n].version != v}
        present = set() if note else wanted.keys() - _absent(folder, list(wanted.values()), options[:4])
        sizes = wheel_sizes(folder, [wanted[n] for n in sorted(present)], options[:4])
    return Resolution(
        satisfiable=True,
        pins=tuple(
            Pin(name=n, version=v, on_index=n in present, bytes=sizes.get(n, 0), required_by=by)
            for n, (v, by) in sorted(pins.items())
        ),
        explanation=note,
    )


def _dists(end: Inventory | PatchFolder | None) -> dict[str, Dist]:
    if not isinstance(end, Inventory) or end.environment is None:
        return {}
    return {d.name: d for d in end.environment.dists if is_plain(d)}


def _requirements(
    request: PlanRequest,
    source: Inventory | PatchFolder,
    ours: dict[str, Dist],
    theirs: dict[str, Dist],
    stubs: Path,
) -> list[str]:
    """What is taken and kept is named by its stub: the index may have the same version with other requirements."""
    lines = []
    for name in request.take:
        if name in theirs:
            lines.append(_exactly(theirs[name], stubs))
        elif isinstance(source, PatchFolder) and source.dist == name and source.version:
            lines.append(f"{name}=={source.version}")
        else:
            lines.append(name)
    return lines + [_exactly(ours[name], stubs) for name in request.keep if name in ours]


def _exactly(dist: Dist, stubs: Path) -> str:
    path = stubs / stub_name(dist)
    return f"{dist.name} @ {path.as_uri()}" if path.exists() else f"{dist.name}=={dist.version}"


def _preferences(ours: dict[str, Dist], theirs: dict[str, Dist]) -> str:
    """uv keeps the versions of an existing output file where they fit."""
    chosen = {**theirs, **ours}
    return "".join(f"{name}=={dist.version}\n" for name, dist in sorted(chosen.items()))


def _platform(source: Inventory | PatchFolder, target: Inventory, base: Inventory | None) -> list[str]:
    system = target.host.system
    return target_options(result_python(source, target, base), platform_of(system.machine, system.libc_version))


def _absent(folder: Path, wanted: list[str], platform: list[str]) -> set[str]:
    """Names of `wanted` (name==version) that the index does not have in this version for the platform."""
    left, absent = list(wanted), set[str]()
    for _ in range(MAX_ABSENT):
        if not left:
            break
        answer = pip_compile(folder, left, [*platform, "--no-deps", "--no-annotate"])
        if answer.is_ok:
            break
        text = " ".join(answer.error.split())
        names = {canonicalize_name(a or b) for a, b in MISSING.findall(text)}
        named = {line.partition("==")[0] for line in left} & names
        if not named:  # uv says it in other words: one by one
            alone = [line for line in left if not pip_compile(folder, [line], [*platform, "--no-deps"]).is_ok]
            return absent | {line.partition("==")[0] for line in alone}
        absent |= named
        left = [line for line in left if line.partition("==")[0] not in absent]
    return absent


def _parse(text: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """name -> (version, who requires it), from uv's annotated output."""
    pins: dict[str, tuple[str, tuple[str, ...]]] = {}
    name = ""
    for line in text.splitlines():
        match = PIN.match(line)
        if match:
            name = canonicalize_name(match["name"])
            pins[name] = (match["version"] or version_of(match["url"]), ())
        elif line.strip().startswith("#") and name:
            found = [w.strip(" #,") for w in line.replace("via", " ").split()]
            version, by = pins[name]
            pins[name] = (version, (*by, *(canonicalize_name(w) for w in found if w and not w.startswith("-"))))
    return pins


def _explain(error: str) -> str:
    """uv's reasons as one line, without its decoration."""
    lines = [line.strip(" ╰─▶×│") for line in error.splitlines()]
    words = " ".join(line for line in lines if line and not line.startswith(("Using", "Resolved", "warning:")))
    return words.removeprefix("error: ").replace(" cause: ", ": ")
