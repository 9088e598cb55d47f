"""What the controller remembers of files it has seen: contents' hashes and native facts by path and stat key.

Knows no host: a file of one prefix is remembered under that prefix's destination. A cache that cannot be read is as
good as none; it is written anew. The stat key (size, mtime, ctime, inode) decides, so a wrong hit needs all four equal.
"""

import hashlib
import os
import tempfile
from pathlib import Path

import msgspec
import zstandard

from treegraft import settings
from treegraft.environments.inventory import ModuleLoads, NativeFile
from treegraft.logs import get_logger

VERSION = 1  # of what is stored; another one is ignored
MAX_BYTES = 2 << 30
log = get_logger(__name__)


class CachedFile(msgspec.Struct, frozen=True, array_like=True):
    key: str
    sha256: str
    native: NativeFile | None = None


class Remembered(msgspec.Struct, frozen=True):
    version: int
    agent: str  # digest of the agent's sources: another agent may know more
    files: dict[str, CachedFile] = {}
    needs: tuple[str, ...] = ()  # libraries that the files want from outside
    loads_key: str = ""
    loads: tuple[ModuleLoads, ...] = ()


def cache_path(destination: str) -> Path:
    """The file for one destination; the folder is made on first use."""
    folder = settings.cache_dir() / "probe"
    folder.mkdir(exist_ok=True)
    return folder / (hashlib.sha256(destination.encode("utf-8", "surrogateescape")).hexdigest()[:32] + ".zst")


def load(destination: str, agent: str) -> Remembered:
    """What is remembered, or nothing: for a first time, another version, another agent or a damaged file."""
    nothing = Remembered(version=VERSION, agent=agent)
    path = cache_path(destination)
    try:
        packed = path.read_bytes()
        data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=MAX_BYTES)
        remembered = msgspec.msgpack.decode(data, type=Remembered)
    except FileNotFoundError:
        return nothing
    except (OSError, zstandard.ZstdError, msgspec.DecodeError, UnicodeDecodeError, MemoryError) as error:
        log.warning("probe cache %s cannot be used (%s); it is made anew", path, error)
        return nothing
    return remembered if (remembered.version, remembered.agent) == (VERSION, agent) else nothing


def save(destination: str, remembered: Remembered) -> None:
    """Replace what is remembered, at once or not at all. A cache that cannot be written is worth a warning only."""
    path = cache_path(destination)
    packed = zstandard.ZstdCompressor(level=1).compress(msgspec.msgpack.encode(remembered))
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(packed)
        os.replace(file.name, path)
    except OSError as error:
        log.warning("probe cache %s cannot be written (%s)", path, error)
