"""What `env check`, `diff` and `plan` take as an environment: HOST:PATH, a local path, or a saved inventory (JSON).

Knows how to get an Inventory of each; not what is done with it.
"""

from collections.abc import Collection
from pathlib import Path

from packaging.utils import InvalidName, canonicalize_name

from treegraft import logs, records
from treegraft.environments.inventory import Inventory
from treegraft.environments.probe import probe
from treegraft.errors import UsageError


def read_end(text: str, *, sonames: Collection[str] = (), host_only: bool = False) -> Inventory:
    """Probe it, or read it from a file that `env probe --out` wrote. Raises UsageError, HostError, RecordError."""
    if text.endswith(".json"):
        try:
            return records.from_json(Inventory, Path(text).read_bytes())
        except OSError as error:
            raise UsageError(f"inventory {text} cannot be read ({error.strerror})") from error
    with logs.progress(label=f"reading {text}", unit="B") as bar:
        bar.unit_scale = True
        return probe(
            text,
            sonames=sonames,
            host_only=host_only,
            on_progress=lambda num_bytes, _files: bar.update(num_bytes - bar.n),
        )


def names_of(text: str) -> tuple[str, ...]:
    """`sglang,SGL_kernel` -> normalised names. Raises UsageError when there is none."""
    try:
        words = [canonicalize_name(word.strip(), validate=True) for word in text.split(",") if word.strip()]
    except InvalidName as error:
        raise UsageError(f"{text!r}: {error}; expected names of distributions") from error
    names = tuple(dict.fromkeys(words))
    if not names:
        raise UsageError(f"{text!r} names no distribution; expected NAME[,NAME]")
    return names


def libraries_wanted_by(source: Inventory) -> frozenset[str]:
    """Names of libraries that the source's files need or load by name: the target host is asked which it has."""
    environment = source.environment
    if environment is None:
        return frozenset()
    needed = {name for file in environment.native for name in file.needed}
    loaded = {e.name for module in environment.python_loads for e in module.events if e.kind == "load"}
    return frozenset(needed | {name for name in loaded if ":" not in name and "/" not in name})
