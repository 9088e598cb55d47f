"""Random pairs of environments: the verdict on every dist equals what importing it really does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from worlds.compiling import Compiler
from worlds.needs import require_program
from worlds.pairs.kinds import KINDS, make_pair
from worlds.pairs.lay_out import import_dist, lay_out
from worlds.venvs import this_python

SCRIPT = Path(__file__).parents[3] / "scripts" / "pairs.py"
COUNT = 50


@pytest.mark.slow
def test_no_verdict_is_wrong(tmp_path: Path) -> None:
    require_program("gcc")
    command = [sys.executable, str(SCRIPT), str(COUNT)]
    variables = {**os.environ, "TREEGRAFT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    counts = re.search(r"\((\d+) check, (\d+) plan; (\d+) importable, (\d+) not\), 0 wrong", done.stdout)
    assert counts, done.stdout
    num_check, num_plan, num_good, num_bad = (int(n) for n in counts.groups())
    assert num_check >= COUNT
    assert min(num_plan, num_good, num_bad) >= 10, "both outcomes and both questions are there"


def test_a_seed_makes_one_pair(tmp_path: Path) -> None:
    require_program("gcc")
    compiler = Compiler(tmp_path)
    for number in (0, 14, len(KINDS) + 3):
        assert make_pair(3, number, compiler, this_python()) == make_pair(3, number, compiler, this_python())


def test_the_oracle_sees_both_outcomes(tmp_path: Path) -> None:
    """A healthy pair imports, and one whose library lacks the symbol does not: the oracle is no constant."""
    require_program("gcc")
    compiler, python = Compiler(tmp_path / "objects"), this_python()
    expected = {"same": True, "unversioned-without uses=second": False}
    assert next(iter(KINDS)) == "version-script"
    for start, works in expected.items():
        drawn = (make_pair(0, number, compiler, python)[1] for number in range(0, 200 * len(KINDS), len(KINDS)))
        pair = next(pair for pair in drawn if pair.variant.startswith(start))
        laid = lay_out(pair, tmp_path / start.split()[0], python)
        assert import_dist(pair.moved[0], laid.result, laid.variables).works is works, pair.variant
