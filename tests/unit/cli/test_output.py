"""Text that cannot drive a terminal."""

import pytest

from treegraft.cli.output import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" plain text ", " plain text "),
        ("two\nlines\t", r"two\nlines\t"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\u202eb", r"a\u202eb"),
        ("\ud800", r"\ud800"),
        ("line\u2028sep", r"line\u2028sep"),
        ("C:\\new", r"C:\\new"),
        ("é 漢 🌳", "é 漢 🌳"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown
