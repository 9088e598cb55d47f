"""List a tree without following links, opening files or changing anything. Knows no package.

A loop of links cannot trap it: links are listed, never entered.
"""

from __future__ import annotations

import os
import stat
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional

MAX_ENTRIES = 5_000_000
BYTECODE_FOLDER = "__pycache__"
Report = Callable[[str, str], None]  # (subject, message): what could not be found out


class Entry(NamedTuple):
    """A regular file or a link. `target` is what a link says, "" for files; `status` is the link's own."""

    path: str  # absolute
    status: os.stat_result
    target: str


class Tree(NamedTuple):
    entries: Dict[str, Entry]  # by absolute path
    bytecode_files: int
    bytecode_bytes: int


def list_tree(roots: Iterable[str], skip: Iterable[str], report: Report) -> Tree:
    """Everything below the roots but byte code folders and the folders of `skip` (absolute paths)."""
    entries: Dict[str, Entry] = {}
    skipped = set(skip)
    pending: List[str] = [root for root in roots if root not in skipped]
    bytecode_files = bytecode_bytes = 0
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as found:
                children = list(found)
        except OSError as error:
            report(folder, "folder cannot be listed: %s" % error.strerror)
            continue
        is_bytecode = os.path.basename(folder) == BYTECODE_FOLDER
        for child in children:
            try:
                status = child.stat(follow_symlinks=False)
            except OSError as error:
                report(child.path, "cannot be examined: %s" % error.strerror)
                continue
            if stat.S_ISDIR(status.st_mode):
                if child.path not in skipped:
                    pending.append(child.path)
            elif is_bytecode:
                bytecode_files += 1
                bytecode_bytes += status.st_size
            else:
                entry = examine(child.path, status, report)
                if entry is not None:
                    entries[child.path] = entry
        if len(entries) > MAX_ENTRIES:
            report(folder, "more than %d files: the rest is left out" % MAX_ENTRIES)
            break
    return Tree(entries, bytecode_files, bytecode_bytes)


def examine(path: str, status: os.stat_result, report: Report) -> Optional[Entry]:
    if stat.S_ISREG(status.st_mode):
        return Entry(path, status, "")
    if stat.S_ISLNK(status.st_mode):
        try:
            return Entry(path, status, os.readlink(path))
        except OSError as error:
            report(path, "link cannot be read: %s" % error.strerror)
            return None
    report(path, "neither file, folder nor link: left out")
    return None
