"""Make text from a host safe to show: in a terminal (no control sequence passes) and in HTML."""

import html as _html
import unicodedata

_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def terminal(text: str) -> str:
    """One line: control, format (bidirectional marks too) and unassigned characters as `\\x1b`, `\\n`, `\\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(c) if unicodedata.category(c) in _UNSAFE_CATEGORIES else c for c in text)


def _visible(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def html(text: str) -> str:
    """For element content and quoted attribute values; unsafe characters are written out as in a terminal."""
    return _html.escape(terminal(text), quote=True)
