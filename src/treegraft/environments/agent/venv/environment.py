"""One environment's facts in order: prefix, tree, metadata, contents, comparison, layout.

Knows no host fact. Returns plain dicts shaped like inventory.Environment.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ..files.contents import Content, Job, Progress, read_all, unchanged
from ..files.names import is_inside, show
from ..files.walk import Entry, Report, examine, list_tree
from ..python_loads import library_names, scan_environment
from .conda import read_conda_packages
from .dists import PLAIN_HASHES, Found, check_dist, find_dists, owners_of, place_lines
from .layout import find_caches, find_links, read_pth_files, read_scripts, resolve
from .prefix import Prefix, find_prefix, relative

Known = Mapping[str, Sequence[str]]  # path as shown -> (stat key, sha256)
SCAFFOLD = ("_virtualenv.py", "_virtualenv.pth", "distutils-precedence.pth")
BOOTSTRAP_DISTS = ("pip", "setuptools", "wheel")


class EnvironmentProbe(NamedTuple):
    facts: Dict[str, Any]
    cache: Dict[str, List[str]]  # what may be remembered: path as shown -> (stat key, sha256)
    outside_needs: List[str]  # sonames and paths to look for outside the environment
    loads_key: str  # what `python_loads` may be remembered by


def probe_environment(
    path: str, known: Known, known_loads: str, report: Report, progress: Optional[Progress] = None
) -> EnvironmentProbe:
    """`known_loads`: the `loads_key` whose `python_loads` need not be made again (then they are left empty). Raises
    NoEnvironment when there is nothing at the path."""
    prefix = find_prefix(path, report)
    tree = list_tree(prefix.roots, prefix.skip, report)
    entries = dict(tree.entries)
    dists = find_dists(prefix.site_packages, prefix.path, report)
    _add_listed(dists, prefix, entries, report)
    dists = [place_lines(found, entries) for found in dists]
    shown = {path: show(relative(path, prefix.path)) for path in entries}
    jobs = _jobs(prefix, entries, dists)
    contents = _remembered(jobs, entries, shown, known) if known else {}
    contents.update(read_all([job for job in jobs if job.path not in contents], progress))
    for name, content in contents.items():
        if content.problem:
            report(name, content.problem)
    conda_packages, conda_owners = read_conda_packages(prefix.path, report)
    owners = owners_of(dists, entries)
    for name, package in conda_owners.items():
        owners.setdefault(name, ["conda:" + package])
    checked = [check_dist(found, entries, contents, prefix.path) for found in dists]
    native = _native(shown, contents, owners, report)
    names = {dist["name"] for dist in checked}
    facts: Dict[str, Any] = {
        "prefix": show(prefix.path),
        "real_prefix": show(prefix.real_path),
        "kind": prefix.kind,
        "is_empty": prefix.kind != "folder" and not names.difference(BOOTSTRAP_DISTS),
        "how": prefix.how,
        "has_pip": "pip" in names,
        "python": dict(prefix.python),
        "dists": checked,
        "conda_packages": conda_packages,
        "files": _files(shown, entries, contents, owners),
        "unowned": _unowned(prefix, shown, owners),
        "native": native,
        "links": find_links(entries, prefix),
        "pth_files": read_pth_files(prefix, report),
        "scripts": read_scripts(entries, owners, prefix),
        "caches": find_caches(prefix, tree),
    }
    cache = {
        shown[name]: [content.cache_key, content.sha256]
        for name, content in contents.items()
        if content.cache_key and not content.was_known
    }
    loads_key = _loads_key(prefix, contents, owners)
    facts["python_loads"] = [] if loads_key == known_loads else _python_loads(prefix, owners)
    return EnvironmentProbe(facts, cache, _outside_needs(prefix, facts), loads_key)


def _loads_key(prefix: Prefix, contents: Dict[str, Content], owners: Dict[str, List[str]]) -> str:
    """A digest of everything that _python_loads depends on."""
    digest = hashlib.sha256(repr(prefix.site_packages).encode("utf-8", "surrogateescape"))
    for path in sorted(owners):
        if path in contents and (path.endswith(".py") or ".so" in path):
            line = "%s\n%s\n%s\n" % (path, contents[path].sha256, owners[path])
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _add_listed(dists: List[Found], prefix: Prefix, entries: Dict[str, Entry], report: Report) -> None:
    """Files that RECORDs list outside the walked folders (an interpreter's own bin/)."""
    if prefix.kind != "interpreter":
        return
    for found in dists:
        for path, _ in found.lines:
            if path in entries:
                continue
            try:
                status = os.lstat(path)
            except OSError:
                continue
            entry = examine(path, status, report) if not stat.S_ISDIR(status.st_mode) else None
            if entry is not None:
                entries[path] = entry


def _jobs(prefix: Prefix, entries: Dict[str, Entry], dists: List[Found]) -> List[Job]:
    """What to read, large files first so that no thread is left alone with one at the end. A link is read only when
    it leads to a file outside the prefix (installers can link into their cache)."""
    algorithms: Dict[str, List[str]] = {}
    for found in dists:
        for path, line in found.lines:
            if line.algorithm not in ("", "sha256") and line.algorithm in PLAIN_HASHES:
                algorithms.setdefault(path, []).append(line.algorithm)
    scripts = os.path.join(prefix.path, "bin")
    sizes: Dict[str, int] = {}
    for path, entry in entries.items():
        if not stat.S_ISLNK(entry.status.st_mode):
            sizes[path] = entry.status.st_size
        elif os.path.dirname(path) != scripts:
            _, exists, inside = resolve(path, prefix)
            if exists and not inside and os.path.isfile(path):
                sizes[path] = os.path.getsize(path)
    ordered = sorted(sizes, key=lambda path: -sizes[path])
    return [Job(path, tuple(algorithms.get(path, ()))) for path in ordered]


def _remembered(jobs: List[Job], entries: Dict[str, Entry], shown: Dict[str, str], known: Known) -> Dict[str, Content]:
    """Contents of the files that have not changed since; links are read again."""
    contents = {}
    for job in jobs:
        entry, earlier = entries[job.path], known.get(shown[job.path])
        if earlier is not None and not job.algorithms and not entry.target:
            content = unchanged(entry.status, earlier)
            if content is not None:
                contents[job.path] = content
    return contents


def _native(
    shown: Dict[str, str], contents: Dict[str, Content], owners: Dict[str, List[str]], report: Report
) -> List[Dict[str, Any]]:
    natives = []
    for path in sorted(contents):
        content = contents[path]
        if content.native is None:
            continue
        facts = dict(
            content.native,
            path=shown[path],
            owners=owners.get(path, []),
            size=content.size,
            mtime_ns=content.mtime_ns,
        )
        if facts.get("partial"):
            report(path, "damaged ELF file: %s" % facts["problem"])
        natives.append(facts)
    return natives


def _files(
    shown: Dict[str, str], entries: Dict[str, Entry], contents: Dict[str, Content], owners: Dict[str, List[str]]
) -> List[List[Any]]:
    """Rows in the order of inventory.FileEntry's fields."""
    rows = []
    for path in sorted(entries):
        entry, content = entries[path], contents.get(path)
        status = entry.status
        rows.append(
            [
                shown[path],
                content.size if content and not content.problem else status.st_size,
                content.sha256 if content else "",
                stat.S_IMODE(status.st_mode),
                status.st_mtime_ns,
                status.st_dev,
                status.st_ino,
                status.st_nlink,
                show(entry.target),
                owners.get(path, []),
            ]
        )
    return rows


def _unowned(prefix: Prefix, shown: Dict[str, str], owners: Dict[str, List[str]]) -> List[str]:
    if prefix.kind == "folder":
        return [shown[path] for path in sorted(shown)]
    starts = tuple(site + "/" for site in prefix.site_packages)
    return [
        shown[path]
        for path in sorted(shown)
        if path not in owners and path.startswith(starts) and os.path.basename(path) not in SCAFFOLD
    ]


def _outside_needs(prefix: Prefix, facts: Dict[str, Any]) -> List[str]:
    """Sonames and paths to look for outside the environment. What it ships itself is asked for too: LD_LIBRARY_PATH,
    or a library that is loaded already, may win over it."""
    wanted = {soname for native in facts["native"] for soname in native.get("needed", ())}
    wanted.update(library_names(facts["python_loads"]))
    for native in facts["native"]:
        origin = os.path.dirname(os.path.join(prefix.path, native["path"]))
        for entry in (*native.get("rpath", ()), *native.get("runpath", ())):
            folder = os.path.normpath(entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
            if os.path.isabs(folder) and not is_inside(folder, prefix.path):
                places = (os.path.join(folder, soname) for soname in native.get("needed", ()))
                wanted.update(place for place in places if os.path.isfile(place))
    return sorted(wanted)


def _python_loads(prefix: Prefix, owners: Dict[str, List[str]]) -> List[Dict[str, Any]]:
    files: Dict[str, List[str]] = {}
    for path, names in owners.items():
        if path.endswith((".py", ".so")) or ".so." in path:
            for name in names:
                files.setdefault(name, []).append(relative(path, prefix.path))
    roots = [relative(folder, prefix.path) for folder in prefix.site_packages]
    found = scan_environment(prefix.path, roots, files)
    return [{"path": show(path), "events": events} for path, events in found]
