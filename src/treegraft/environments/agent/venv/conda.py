"""What conda says it installed, from conda-meta/*.json. Runs no conda."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Tuple

from ..files.names import show
from ..files.walk import Report
from ..redact import redact_url


def read_conda_packages(prefix: str, report: Report) -> Tuple[List[Dict[str, str]], Dict[str, str]]:
    """(packages shaped like inventory.CondaPackage, absolute path -> package name)."""
    folder = os.path.join(prefix, "conda-meta")
    packages: List[Dict[str, str]] = []
    owners: Dict[str, str] = {}
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return [], {}
    for name in names:
        path = os.path.join(folder, name)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                document: Any = json.load(file)
            files = [str(item) for item in document.get("files") or []]
            package = {key: show(str(document.get(key) or "")) for key in ("name", "version", "build")}
        except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
            report(path, "cannot be read: %s" % error)
            continue
        packages.append(dict(package, channel=redact_url(str(document.get("channel") or ""))))
        for item in [*files, os.path.join("conda-meta", name)]:
            owners[os.path.normpath(os.path.join(prefix, item))] = package["name"]
    return packages, owners
