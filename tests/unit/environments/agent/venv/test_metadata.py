"""Metadata parsers: what installers write, and what they should not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treegraft.environments.agent.venv.metadata import (
    normalise,
    parse_direct_url,
    parse_entry_points,
    parse_finder_mapping,
    parse_headers,
    parse_pyvenv,
    parse_record,
    parse_shebang,
    top_level_names,
)


def test_headers_end_at_the_empty_line_and_fold() -> None:
    text = "Name: A.B\nRequires-Dist: x\nRequires-Dist: y ;\n  extra == 'z'\n\nName: in the text\n"
    assert parse_headers(text) == {"name": ["A.B"], "requires-dist": ["x", "y ;\nextra == 'z'"]}


@pytest.mark.parametrize("name", ["Foo.Bar", "foo__bar", "foo-_.bar", "FOO-BAR"])
def test_names_are_normalised(name: str) -> None:
    assert normalise(name) == "foo-bar"


def test_record_lines() -> None:
    text = 'a.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"b,\nc.py",,\nd.py,md5=1B2M2Y8AsgTpgAmY7PhCfg,0\n'
    lines, messages = parse_record(text)
    assert messages == []
    assert [(line.path, line.algorithm) for line in lines] == [("a.py", "sha256"), ("b,\nc.py", ""), ("d.py", "md5")]
    assert lines[0].digest == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert lines[2].digest == "d41d8cd98f00b204e9800998ecf8427e"


@given(st.text(max_size=200))
def test_no_text_breaks_a_parser(text: str) -> None:
    lines, messages = parse_record(text)
    assert all(line.path for line in lines)
    assert all(isinstance(message, str) for message in messages)
    assert all(len(row) == 3 for row in parse_entry_points(text))
    assert isinstance(parse_headers(text), dict)
    assert isinstance(parse_pyvenv(text), dict)
    assert isinstance(parse_finder_mapping("MAPPING = {" + text + "}"), list)
    assert parse_direct_url(text, "x")["how"].startswith("x")
    assert isinstance(parse_shebang(text.encode()), str)


def test_entry_points() -> None:
    text = "[console_scripts]\n# no\nrun = pkg.main:go\n\n[x.y]\nname=mod\n"
    assert parse_entry_points(text) == [["console_scripts", "run", "pkg.main:go"], ["x.y", "name", "mod"]]


@pytest.mark.parametrize(
    ("text", "kind", "revision"),
    [
        ('{"url": "file:///src/a", "dir_info": {"editable": true}}', "editable", None),
        ('{"url": "file:///src/a", "dir_info": {}}', "directory", None),
        ('{"url": "https://h/a.whl", "archive_info": {"hash": "sha256=x"}}', "archive", None),
        ('{"url": "https://h/a.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}', "vcs", "abc"),
        ('{"url": 3}', "unknown", None),
        ("[]", "unknown", None),
        ("{", "unknown", None),
    ],
)
def test_direct_url(text: str, kind: str, revision: str | None) -> None:
    origin = parse_direct_url(text, "direct_url.json")
    assert (origin["kind"], origin.get("revision")) == (kind, revision)


def test_direct_url_loses_its_password() -> None:
    text = '{"url": "https://me:pw@h/a.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}'
    assert parse_direct_url(text, "x")["url"] == "https://***@h/a.git"


@pytest.mark.parametrize(
    ("head", "interpreter"),
    [
        (b"#!/usr/bin/env python3\nimport x\n", "/usr/bin/env python3"),
        (b"#! /venv/bin/python -I\n", "/venv/bin/python -I"),
        (b"#!/bin/sh\n'''exec' \"/a b/bin/python\" \"$0\" \"$@\"\n' '''\n", "/a b/bin/python"),
        (b"#!/bin/sh\n'''exec' /a/bin/python \"$0\" \"$@\"\n' '''\n", "/a/bin/python"),
        (b"#!/bin/sh\necho hello\n", "/bin/sh"),
        (b"\x7fELF", ""),
        (b"", ""),
    ],
)
def test_shebang(head: bytes, interpreter: str) -> None:
    assert parse_shebang(head) == interpreter


def test_top_level_names() -> None:
    paths = ["pkg/__init__.py", "mod.py", "_ext.cpython-311-x86_64-linux-gnu.so", "a-1.dist-info/METADATA", "data.txt"]
    assert top_level_names([*paths, "nvidia/cu13/lib/libx.so", "../../../bin/run"]) == ["_ext", "mod", "nvidia", "pkg"]
