"""All facts of the host, in threads, for most wait for a command. Returns plain dicts shaped like inventory.Host."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List

from ..files.names import show
from ..files.walk import Report
from ..redact import redact_variables
from .gpus import read_gpus
from .loader import read_loader
from .ports import HOW as PORTS_HOW
from .ports import read_ports
from .system import read_filesystems, read_system
from .tools import read_tools


def read_host(paths: List[str], report: Report) -> Dict[str, Any]:
    """`paths`: folders whose file systems matter. The libraries are added later, when it is known which."""
    home = os.path.expanduser("~")
    folders = [os.path.join(path, "bin") for path in paths]
    with ThreadPoolExecutor(5) as pool:
        gpus = pool.submit(read_gpus, report)
        tools = pool.submit(read_tools, folders)
        loader = pool.submit(read_loader, report)
        ports = pool.submit(read_ports)
        facts: Dict[str, Any] = {
            "user": _user(),
            "home": show(home),
            "agent_python": show(sys.executable),
            "agent_python_version": platform.python_version(),
            "system": read_system(),
            "filesystems": read_filesystems([*paths, home, tempfile.gettempdir(), "/"]),
            "variables": redact_variables(os.environ),
            "ports_how": PORTS_HOW,
        }
        facts.update(gpus=gpus.result(), loader=loader.result(), ports=ports.result(), **tools.result())
    return facts


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
