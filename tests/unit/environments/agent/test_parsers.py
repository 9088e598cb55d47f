"""Each parser of the agent on recorded outputs: tests/machines/*.json says what is real and what is synthetic."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "machines"


def cases() -> list[Any]:
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        document = json.loads(path.read_text())
        assert document["origin"].startswith(("real: ", "synthetic: ")), path
        found += [pytest.param(case, id=f"{path.stem}: {case['what']}") for case in document["cases"]]
    return found


@pytest.mark.parametrize("case", cases())
def test_parser(case: dict[str, Any]) -> None:
    module, _, function = case["parser"].partition(":")
    parser = getattr(importlib.import_module("treegraft.environments.agent." + module), function)
    arguments = [tuple(a) if module == "host.gpus" and function == "parse_query" and isinstance(a, list) else a
                 for a in case["arguments"]]  # fmt: skip
    assert json.loads(json.dumps(parser(*arguments))) == case["facts"]
