"""Distributions of an environment: their metadata, what their RECORDs list and who owns each file.

Two steps, for contents are hashed between them: `find_dists` reads metadata only, `check_dist` compares.
Does not follow a RECORD line that leads outside the prefix.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, NamedTuple, Tuple

from ..files.contents import Content
from ..files.names import is_inside, show
from ..files.walk import BYTECODE_FOLDER, Entry, Report
from .metadata import (
    RecordLine,
    normalise,
    parse_direct_url,
    parse_entry_points,
    parse_headers,
    parse_record,
    top_level_names,
)
from .prefix import relative

MAX_METADATA_BYTES = 64 << 20
PLAIN_HASHES = ("sha256", "sha384", "sha512", "sha224", "sha1", "md5", "blake2b", "blake2s")


class Found(NamedTuple):
    """A dist before its files are compared; `lines` are (absolute path, RECORD line)."""

    facts: Dict[str, Any]
    site: str
    metadata: str  # absolute path of the dist-info folder, egg-info folder or file
    lines: List[Tuple[str, RecordLine]]


def find_dists(sites: List[str], prefix: str, report: Report) -> List[Found]:
    found = []
    for site in sites:
        try:
            names = sorted(os.listdir(site))
        except OSError:
            continue  # the walk has reported it
        for name in names:
            if name.endswith((".dist-info", ".egg-info", ".egg-link")) and not name.startswith("~"):
                found.append(_read_dist(os.path.join(site, name), site, prefix, report))
    return found


def _text(path: str, report: Report, is_expected: bool = False) -> str:
    """A metadata file's text, "" when there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            text = file.read(MAX_METADATA_BYTES + 1)
    except FileNotFoundError:
        if is_expected:
            report(path, "missing")
        return ""
    except OSError as error:
        report(path, "cannot be read: %s" % error.strerror)
        return ""
    if len(text) > MAX_METADATA_BYTES:
        report(path, "larger than %d bytes: the rest is left out" % MAX_METADATA_BYTES)
    return text


def _read_dist(metadata: str, site: str, prefix: str, report: Report) -> Found:
    is_wheel = metadata.endswith(".dist-info")
    is_folder = os.path.isdir(metadata)
    inner = metadata if is_folder else ""
    main = os.path.join(metadata, "METADATA" if is_wheel else "PKG-INFO") if is_folder else metadata
    is_link = metadata.endswith(".egg-link")
    headers = {} if is_link else parse_headers(_text(main, report, is_expected=True))
    stem = os.path.basename(metadata).rsplit(".", 1)[0]
    name, version = _name_and_version(stem, headers)
    wheel = parse_headers(_text(os.path.join(inner, "WHEEL"), report)) if inner and is_wheel else {}
    lines, hostile, has_record = _read_record(metadata, site, prefix, report) if inner else ([], [], False)
    entry_points = parse_entry_points(_text(os.path.join(inner, "entry_points.txt"), report)) if inner else []
    facts: Dict[str, Any] = {
        "name": normalise(name),
        "raw_name": name,
        "version": version,
        "local": version.partition("+")[2] or None,
        "metadata_path": show(relative(metadata, prefix)),
        "installer": _text(os.path.join(inner, "INSTALLER"), report).strip() if inner else "",
        "requested": bool(inner) and os.path.exists(os.path.join(inner, "REQUESTED")),
        "requires": headers.get("requires-dist", []),
        "requires_python": headers.get("requires-python", [""])[0],
        "provides_extras": headers.get("provides-extra", []),
        "tags": wheel.get("tag", []),
        "is_pure": {"true": True, "false": False}.get(wheel.get("root-is-purelib", [""])[0].lower()),
        "entry_points": entry_points,
        "has_record": has_record,
        "hostile": [show(path) for path in hostile],
        "how": show(relative(main, prefix)),
    }
    facts["origin"] = _origin(metadata, inner, is_link, facts["installer"], report)
    return Found(facts, site, metadata, lines)


def _name_and_version(stem: str, headers: Dict[str, List[str]]) -> Tuple[str, str]:
    """Of METADATA; else of the folder's name: NAME-VERSION[-pyX.Y]."""
    match = re.match(r"^(.+?)-([^-]+)(?:-py[\d.]+)?$", stem)
    name, version = (match.group(1), match.group(2)) if match else (stem, "")
    return show(headers.get("name", [""])[0] or name), show(headers.get("version", [""])[0] or version)


def _origin(metadata: str, inner: str, is_link: bool, installer: str, report: Report) -> Dict[str, Any]:
    if is_link:
        first = _text(metadata, report).splitlines()[:1]
        return {"kind": "editable", "url": show("file://" + "".join(first)), "how": ".egg-link"}
    text = _text(os.path.join(inner, "direct_url.json"), report) if inner else ""
    if text:
        return parse_direct_url(text, "direct_url.json")
    if installer == "conda":
        return {"kind": "conda", "how": "INSTALLER"}
    return {"kind": "index", "how": "no direct_url.json"} if inner else {"kind": "unknown", "how": "egg-info"}


def _read_record(
    metadata: str, site: str, prefix: str, report: Report
) -> Tuple[List[Tuple[str, RecordLine]], List[str], bool]:
    path = os.path.join(metadata, "RECORD")
    base = site
    if not os.path.lexists(path):
        path = os.path.join(metadata, "installed-files.txt")  # setuptools' older list, relative to the metadata
        base = metadata
        if not os.path.lexists(path):
            if metadata.endswith(".dist-info"):
                report(os.path.join(metadata, "RECORD"), "missing: the dist's files cannot be checked")
            return [], [], False
    text = _text(path, report)
    if base == metadata:
        parsed = [RecordLine(line, "", "") for line in text.splitlines() if line]
        messages: List[str] = []
    else:
        parsed, messages = parse_record(text)
    for message in messages:
        report(path, message)
    lines: List[Tuple[str, RecordLine]] = []
    hostile: List[str] = []
    for line in parsed:
        absolute = os.path.normpath(os.path.join(base, line.path))
        if "\0" in line.path or not is_inside(absolute, prefix):
            hostile.append(line.path)
        elif not _is_bytecode(line.path):
            lines.append((absolute, line))
    return lines, hostile, True


def _is_bytecode(path: str) -> bool:
    return path.endswith(".pyc") or ("/" + path).find("/" + BYTECODE_FOLDER + "/") >= 0


def place_lines(found: Found, entries: Dict[str, Entry]) -> Found:
    """RECORD paths as the walk knows them: a path through a linked folder (lib64) becomes the real one."""
    placed = []
    for path, line in found.lines:
        if path not in entries:
            folder = os.path.realpath(os.path.dirname(path))
            moved = os.path.join(folder, os.path.basename(path))
            if moved in entries:
                path = moved
        placed.append((path, line))
    return found._replace(lines=placed)


def check_dist(found: Found, entries: Dict[str, Entry], contents: Dict[str, Content], prefix: str) -> Dict[str, Any]:
    """The dist's facts, complete: its files against RECORD."""
    modified: List[Dict[str, str]] = []
    missing: List[str] = []
    unchecked: List[str] = []
    num_files = size = 0
    record_path = os.path.join(found.metadata, "RECORD")
    for path, line in found.lines:
        shown = show(relative(path, prefix))
        num_files += 1
        entry, content = entries.get(path), contents.get(path)
        if entry is None:
            (unchecked if _is_hidden(path) else missing).append(shown)
            continue
        if entry.target and content is None:
            if not os.path.exists(path):
                missing.append(shown)
                continue
            content = contents.get(_led_to(path, prefix))
        size += content.size if content else entry.status.st_size
        digest = "" if content is None else _digest(content, line.algorithm)
        if path == record_path:
            continue  # lists itself, never hashed
        if not line.digest or not digest:
            unchecked.append(shown)
        elif digest != line.digest:
            recorded = "%s=%s" % (line.algorithm, line.digest)
            modified.append({"path": shown, "recorded": recorded, "found": "%s=%s" % (line.algorithm, digest)})
    inside = [relative(path, found.site) for path, _ in found.lines if is_inside(path, found.site)]
    return dict(
        found.facts,
        top_level=top_level_names([path for path in inside if not path.startswith("/")]),
        num_files=num_files,
        size_bytes=size,
        modified=modified,
        missing=missing,
        unchecked=unchecked,
    )


def _led_to(path: str, prefix: str) -> str:
    """What a link inside the prefix leads to, as the walk knows it."""
    return os.path.join(prefix, os.path.relpath(os.path.realpath(path), os.path.realpath(prefix)))


def _digest(content: Content, algorithm: str) -> str:
    return content.sha256 if algorithm == "sha256" else content.others.get(algorithm, "")


def _is_hidden(path: str) -> bool:
    """Whether a file may be there without our seeing it."""
    try:
        os.lstat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def owners_of(dists: List[Found], entries: Dict[str, Entry]) -> Dict[str, List[str]]:
    """Absolute path -> names of the dists that list it. A dist without RECORD owns what top_level.txt names."""
    owners: Dict[str, List[str]] = {}

    def add(path: str, name: str) -> None:
        names = owners.setdefault(path, [])
        if name not in names:
            names.append(name)

    loose: Dict[str, str] = {}
    for found in dists:
        for path, _ in found.lines:
            add(path, found.facts["name"])
        if not found.facts["has_record"]:
            loose[found.metadata] = found.facts["name"]
            for top in _top_level_file(found.metadata):
                loose[os.path.join(found.site, top)] = found.facts["name"]
                loose[os.path.join(found.site, top + ".py")] = found.facts["name"]
    for path in entries if loose else ():
        folder = path
        while path not in owners and len(folder) > 1:
            if folder in loose:
                add(path, loose[folder])
            folder = os.path.dirname(folder)
    return owners


def _top_level_file(metadata: str) -> List[str]:
    try:
        with open(os.path.join(metadata, "top_level.txt"), encoding="utf-8", errors="replace") as file:
            return [line.strip() for line in file.read(1 << 20).splitlines() if line.strip().isidentifier()]
    except OSError:
        return []
