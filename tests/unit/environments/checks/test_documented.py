"""Every rule that the code can report is in the table of docs/environment-rules.md, and the other way round."""

import re
from pathlib import Path

import treegraft.environments

RULE = re.compile(r"\"((?:abi|gpu|loader|dist|venv|pair|host|source|resolve)\.[a-z]+(?:-[a-z]+)*)\"")
DOCUMENTED = re.compile(r"`((?:abi|gpu|loader|dist|venv|pair|host|source|resolve)\.[a-z]+(?:-[a-z]+)*)`")


def test_rules_and_documentation_agree() -> None:
    package = Path(treegraft.environments.__path__[0])
    files = [*package.glob("checks/*.py"), *package.glob("planning/*.py"), *package.glob("index/*.py")]
    reported = {rule for path in files for rule in RULE.findall(path.read_text())}
    lines = (Path(__file__).parents[4] / "docs" / "environment-rules.md").read_text().splitlines()
    documented = {rule for line in lines if line.startswith("|") for rule in DOCUMENTED.findall(line)}
    assert reported == documented
    assert len(reported) > 30
