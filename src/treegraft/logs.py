"""Logging and progress bars, both on stderr. Does not know what is logged; never prints to stdout."""

import logging
import sys
from collections.abc import Iterable
from typing import Any

from treegraft.errors import UsageError


def get_logger(name: str) -> logging.Logger:
    """Logger below `treegraft`; pass `__name__`."""
    return logging.getLogger(name)


def configure(level: str) -> None:
    """Send `treegraft.*` logs to stderr at this level (debug, info, warning, error); called once by each process's
    entry point. Raises UsageError for any other level."""
    root = logging.getLogger("treegraft")
    if root.handlers:
        return
    if level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise UsageError(f"TREEGRAFT_LOG_LEVEL is {level!r}; expected debug, info, warning or error")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(level.upper())
    root.propagate = False


def progress(iterable: Iterable[Any] | None = None, *, total: int | None = None, label: str, unit: str = "it") -> Any:
    """A tqdm bar on stderr, silent when stderr is not a terminal. Use as iterator or with `.update(n)`."""
    from tqdm import tqdm

    return tqdm(
        iterable, total=total, desc=label, unit=unit, file=sys.stderr, disable=not sys.stderr.isatty(), leave=False
    )
