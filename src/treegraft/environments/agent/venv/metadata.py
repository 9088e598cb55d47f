"""Parsers of distribution metadata: METADATA, WHEEL, RECORD, entry_points.txt, direct_url.json, *.pth, finders.

Pure: text in, facts out. Knows no file system; what is malformed gives less, or a message, never an exception.
"""

from __future__ import annotations

import ast
import base64
import binascii
import csv
import io
import json
import re
from typing import Any, Dict, List, NamedTuple, Tuple

from ..redact import redact_url

MAX_RECORD_LINES = 1_000_000


class RecordLine(NamedTuple):
    path: str
    algorithm: str  # "" when the line has no hash
    digest: str  # hex


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_headers(text: str) -> Dict[str, List[str]]:
    """Header name in lower case -> values, up to the first empty line; folded lines are joined."""
    headers: Dict[str, List[str]] = {}
    current = ""
    for line in text.splitlines():
        if not line.strip():
            break
        if line[0] in " \t":
            if current:
                headers[current][-1] += "\n" + line.strip()
            continue
        name, colon, value = line.partition(":")
        if colon:
            current = name.strip().lower()
            headers.setdefault(current, []).append(value.strip())
    return headers


def parse_record(text: str) -> Tuple[List[RecordLine], List[str]]:
    """(lines, messages). A hash that cannot be understood leaves its line without one, and a message."""
    lines: List[RecordLine] = []
    messages: List[str] = []
    try:
        for row in csv.reader(io.StringIO(text, newline="")):
            if not row or not row[0]:
                continue
            if len(lines) >= MAX_RECORD_LINES:
                messages.append("more than %d lines: the rest is left out" % MAX_RECORD_LINES)
                break
            algorithm, _, encoded = (row[1] if len(row) > 1 else "").partition("=")
            digest = ""
            if encoded:
                try:
                    padded = encoded + "=" * (-len(encoded) % 4)
                    digest = binascii.hexlify(base64.urlsafe_b64decode(padded.encode())).decode()
                except (ValueError, UnicodeEncodeError):
                    messages.append("hash of %s cannot be decoded: %.80s" % (row[0], row[1]))
                    algorithm = ""
            lines.append(RecordLine(row[0], algorithm.lower() if digest else "", digest))
    except csv.Error as error:
        messages.append("not a list of comma-separated lines: %s" % error)
    return lines, messages


def parse_entry_points(text: str) -> List[List[str]]:
    """[group, name, value] rows."""
    rows: List[List[str]] = []
    group = ""
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if line[0] == "[" and line[-1] == "]":
            group = line[1:-1].strip()
        elif group and "=" in line:
            name, _, value = line.partition("=")
            rows.append([group, name.strip(), value.strip()])
    return rows


def parse_direct_url(text: str, how: str) -> Dict[str, Any]:
    """Where a distribution came from, shaped like inventory.Origin (PEP 610)."""
    try:
        document = json.loads(text)
    except ValueError:
        return {"kind": "unknown", "how": how + " (not JSON)"}
    if not isinstance(document, dict):
        return {"kind": "unknown", "how": how + " (not an object)"}
    origin = {"kind": "unknown", "url": redact_url(str(document.get("url", ""))), "how": how}
    folder, vcs = document.get("dir_info"), document.get("vcs_info")
    if isinstance(folder, dict):
        origin["kind"] = "editable" if folder.get("editable") else "directory"
    elif isinstance(vcs, dict):
        origin.update(kind="vcs", revision=str(vcs.get("commit_id") or vcs.get("requested_revision") or ""))
    elif isinstance(document.get("archive_info"), dict):
        origin["kind"] = "archive"
    return origin


def parse_pyvenv(text: str) -> Dict[str, str]:
    values = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            values[name.strip().lower()] = value.strip()
    return values


def parse_finder_mapping(text: str) -> List[str]:
    """Paths of the MAPPING that setuptools writes into the finder of an editable install."""
    paths: List[str] = []
    for match in re.finditer(r"^(?:MAPPING|NAMESPACES)\b[^=\n]*=\s*(\{.*?\})\s*$", text, re.M | re.S):
        try:
            mapping = ast.literal_eval(match.group(1))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        for value in mapping.values() if isinstance(mapping, dict) else ():
            paths.extend(str(item) for item in (value if isinstance(value, list) else [value]))
    return paths


def parse_shebang(head: bytes) -> str:
    """The interpreter line of a script without "#!"; of pip's and uv's /bin/sh wrapper, the wrapped command."""
    if head[:2] != b"#!":
        return ""
    lines = head[2:].decode("utf-8", "backslashreplace").split("\n")
    first = lines[0].strip()
    if first.startswith("/bin/sh") and len(lines) > 1 and lines[1].startswith("'''exec' "):
        match = re.match(r"""'''exec' (?:"([^"]*)"|'([^']*)'|(\S+))""", lines[1])
        if match:
            return next(group for group in match.groups() if group is not None)
    return first


def top_level_names(paths: List[str]) -> List[str]:
    """Importable names of files given relative to site-packages."""
    names = set()
    for path in paths:
        first, slash, _ = path.partition("/")
        if slash:
            if first.isidentifier():
                names.add(first)
        elif first.endswith((".py", ".so")):
            stem = first.split(".", 1)[0]
            if stem.isidentifier():
                names.add(stem)
    return sorted(names)
