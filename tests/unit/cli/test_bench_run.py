"""The words of `bench run`."""

import pytest

from treegraft.cli.bench import parse_counts
from treegraft.cli.bench_run import Spec, parse_methods
from treegraft.errors import UsageError


def test_methods() -> None:
    assert parse_methods("ar, auto,dflash:5,ddtree:16,ddtree") == [
        Spec("ar", None),
        Spec("auto", None),
        Spec("dflash", 5),
        Spec("ddtree", 16),
        Spec("ddtree", None),
    ]
    assert [spec.name for spec in parse_methods("ar,ddtree:16")] == ["ar", "ddtree 16"]


@pytest.mark.parametrize("text", ["", "ar,", "arr", "ar:3", "ddtree:", "ddtree:x", "ddtree:-1", "auto:4", "ar,ar"])
def test_methods_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--methods"):
        parse_methods(text)


def test_counts() -> None:
    assert parse_counts("4, 8,16", "--budgets") == [4, 8, 16]


@pytest.mark.parametrize("text", ["", "4,x", "0", "-4", "4.5", "٤"])
def test_counts_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--budgets is"):
        parse_counts(text, "--budgets")
