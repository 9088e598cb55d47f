"""Texts and the HTML page: complete, escaped, self-contained."""

import re
from html.parser import HTMLParser

import msgspec
from inventories import SITE, Recipe, dist, entry, inventory

from treegraft.environments.compare import EnvironmentDiff, compare, with_texts
from treegraft.environments.findings import Finding, in_order, is_blocked
from treegraft.environments.inventory import ChangedFile
from treegraft.environments.reports.diff_html import diff_html
from treegraft.environments.reports.diff_text import diff_text
from treegraft.environments.reports.findings_text import findings_text

EVIL = "<script>alert(1)</script>\x1b[31m\u202e"


def patched_diff() -> EnvironmentDiff:
    path = f"{SITE}/a/x.py"
    left = inventory(Recipe([dist("a"), dist("gone", EVIL)], files=[entry(path, ("a",), sha256="1" * 64)]), EVIL)
    changed = (ChangedFile(path=path, recorded="sha256=1", found="sha256=2"),)
    right = inventory(Recipe([dist("a", modified=changed)], files=[entry(path, ("a",), sha256="2" * 64)]), "b:/v")
    return with_texts(compare(left, right), {"a/x.py": f"old {EVIL}\n"}, {"a/x.py": "new\n"})


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += attrs


def test_html_is_escaped_and_needs_nothing_else() -> None:
    page = diff_html(patched_diff())
    tags = Tags()
    tags.feed(page)
    assert "script" not in tags.names
    assert not {"link", "img", "iframe", "object"} & tags.names
    assert not {name for name, _ in tags.attributes} & {"src", "href", "onload", "onclick", "style"}
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "http" not in re.sub(r"http-equiv", "", page)
    assert '<span class="add">+new</span>' in page


def test_diff_text() -> None:
    text = diff_text(patched_diff())
    assert "\x1b" not in text
    assert "patched (files differ from RECORD: right)" in text
    assert "+new" in text
    assert "only left" in text
    assert "PARTIAL" not in text
    assert "PARTIAL" in diff_text(msgspec.structs.replace(patched_diff(), partial=True))


def finding(rule: str, level: str, evidence: str = "e") -> Finding:
    return Finding(rule=rule, level=level, dist="d", file="f", evidence=evidence, remedy="r")  # type: ignore[arg-type]


def test_findings_blocks_first_and_counted() -> None:
    found = in_order([finding("b", "info"), finding("z", "block", EVIL), finding("a", "warn"), finding("b", "info")])
    assert [f.level for f in found] == ["block", "warn", "info"]
    text = findings_text(found)
    assert text.splitlines()[0].startswith("BLOCK z")
    assert text.splitlines()[-1] == "1 block, 1 warn, 1 info"
    assert "\x1b" not in text
    assert findings_text(()) == "no findings"
    assert is_blocked(found)
    assert not is_blocked(found[1:])
