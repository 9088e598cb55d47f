"""How commands print: one object, as JSON or as the text made from it. Knows no command."""

import sys
import unicodedata
from typing import Any

import msgspec

from treegraft.records import Record, to_builtins


def add_json_option(parser: Any) -> None:
    """`--json`, the same for every command."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def print_json(document: Any) -> None:
    """One indented JSON document on stdout. Records carry their kind and version."""
    plain = to_builtins(document) if isinstance(document, Record) else msgspec.to_builtins(document)
    print(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode())


def print_text(text: str, end: str = "\n") -> None:
    print(text, end=end, flush=True)


def note(text: str) -> None:
    """A line for people, on stderr: stdout stays what was asked for."""
    print(text, file=sys.stderr, flush=True)


def visible(text: str) -> str:
    """`text` with control and format characters escaped, so that a token can neither break a line nor drive the
    terminal; spaces at either end are kept and seen by the quotes that callers put around it."""
    return "".join(_visible_character(character) for character in text)


def _visible_character(character: str) -> str:
    if character == "\\":
        return "\\\\"
    # Cc control, Cf format (bidi overrides), Cs surrogates, Co private use, Cn unassigned, Zl/Zp line separators.
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return character.encode("unicode_escape", "surrogatepass").decode("ascii")
    return character
