"""Nothing that is committed depends on the place it was written in."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT_SUFFIXES = {".py", ".md", ".toml", ".sh", ".json", ".txt", ".cfg", ".yml", ".yaml", ".c", ".cpp", ""}
# Absolute paths of one machine, and paths that lead out of the checkout.
HOMES = re.compile(r"(?<![\w.])/(?:work|home|Users|root)/(?!(?:user|u|me|alice|bob|you|USER|NAME)\b)\w+|\.\./shared\b")
# Outputs recorded on real hosts, and worlds made to look like them, hold such paths as data.
RECORDED = ("tests/machines/", "tests/plans/", "tests/support/worlds/", "tests/unit/environments/", "results/")


def committed_files() -> list[str]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout: which files belong to the project is unknown")
    return done.stdout.splitlines()


def test_no_paths_of_one_machine() -> None:
    found = []
    for name in committed_files():
        path = ROOT / name
        if (
            name.startswith(RECORDED)
            or path.suffix not in TEXT_SUFFIXES
            or not path.is_file()
            or path == Path(__file__)
        ):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if HOMES.search(line):
                found.append(f"{name}:{number}: {line.strip()[:120]}")
    assert found == []


def test_package_holds_nothing_big() -> None:
    sizes = {name: (ROOT / name).stat().st_size for name in committed_files() if (ROOT / name).is_file()}
    big = {name: size for name, size in sizes.items() if size > 20 * 2**20}
    assert big == {}


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
