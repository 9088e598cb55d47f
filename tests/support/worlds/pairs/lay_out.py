"""Puts a pair on disk and asks Python what really imports. Knows nothing of treegraft: this is the oracle."""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from worlds.pairs.pair import Pair
from worlds.venvs import Python, Venv, clean_variables, quick_venv
from worlds.wheels import Wheel

EXTENSION = re.compile(r"^(?P<stem>.*?)(\.(cpython|pypy)[^/.]*|\.abi3)?\.so$")


@dataclass(frozen=True)
class LaidOut:
    """The three environments of a pair and the variables they run under. The source has all that its dists need."""

    pair: Pair
    world: Path
    source: Venv
    target: Venv
    result: Venv
    variables: Mapping[str, str]


def lay_out(pair: Pair, world: Path, python: Python) -> LaidOut:
    """Make the environments below `world`, an empty folder."""
    own = (*pair.moved, *pair.source_only)
    names = {wheel.name for wheel in own}
    source = quick_venv(world / "source", python, (*own, *(w for w in pair.target if w.name not in names)))
    target = quick_venv(world / "target", python, pair.target)
    result = quick_venv(world / "result", python, pair.result())
    for path, data in pair.outside.items():
        place = world / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    for venv in (source, target, result):
        _damage(pair, venv, world)
    return LaidOut(pair, world, source, target, result, _variables(pair, world))


def _damage(pair: Pair, venv: Venv, world: Path) -> None:
    """Remove and link files wherever their package is."""
    for path in pair.removed:
        (venv.site_packages / path).unlink(missing_ok=True)
    for path, link in pair.symlinks.items():
        place = venv.site_packages / path
        package = venv.site_packages / path.split("/")[0]
        if package.exists() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(link.replace("{world}", str(world)))


def _variables(pair: Pair, world: Path) -> dict[str, str]:
    """PATH and HOME are those of a user with few programs: the pairs are about libraries, and a probe looks at all."""
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(world)}
    for name, values in (("LD_LIBRARY_PATH", pair.library_path), ("LD_PRELOAD", pair.preload)):
        if values:
            variables[name] = ":".join(value.replace("{world}", str(world)) for value in values)
    return variables


@dataclass(frozen=True)
class Import:
    """What importing a dist did. `message`: the last line of the error, or the signal."""

    works: bool
    message: str


def import_dist(wheel: Wheel, venv: Venv, variables: Mapping[str, str]) -> Import:
    """Import every module of top level, then every extension module, in one process of the environment."""
    names = modules(wheel)
    done = subprocess.run(
        [venv.python, "-c", "import importlib\nfor name in " + repr(names) + ": importlib.import_module(name)"],
        env=clean_variables(variables), capture_output=True, text=True, cwd="/", check=False,
    )  # fmt: skip
    if done.returncode < 0:
        return Import(False, f"signal {-done.returncode}")
    lines = done.stderr.strip().splitlines()
    return Import(done.returncode == 0, "" if done.returncode == 0 else (lines or ["no message"])[-1])


def modules(wheel: Wheel) -> list[str]:
    top: set[str] = set()
    extensions: set[str] = set()
    for path in wheel.files:
        parts = path.split("/")
        if len(parts) == 1 and path.endswith(".py"):
            top.add(path[:-3])
        elif len(parts) == 2 and parts[1] == "__init__.py":
            top.add(parts[0])
        match = EXTENSION.match(path)
        if match and "/lib/" not in path and ".libs/" not in path:
            extensions.add(match["stem"].replace("/", "."))
    return [*sorted(top), *sorted(extensions - top)]
