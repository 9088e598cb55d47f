"""Nothing from a host reaches a terminal or a page unescaped."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treegraft.environments.escape import html, terminal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain-name_1.0", "plain-name_1.0"),
        ("naïve ünïcode 漢字", "naïve ünïcode 漢字"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b2J", "\\x9b2J"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
    ],
)
def test_terminal(text: str, shown: str) -> None:
    assert terminal(text) == shown


@given(st.text())
def test_terminal_shows_one_harmless_line(text: str) -> None:
    shown = terminal(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)
    assert len(shown.splitlines()) <= 1


@given(st.text())
def test_html_opens_no_tag_and_closes_no_attribute(text: str) -> None:
    shown = html(text)
    assert not set(shown) & set("<>\"'")


def test_html_is_still_readable() -> None:
    assert html('a<b & "c"\n') == "a&lt;b &amp; &quot;c&quot;\\n"
