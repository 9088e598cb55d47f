"""Make the inventory of a host and an environment: ask the agent, fill in what is remembered, type the answer.

Does not know how the agent travels (agent_call, connect) nor what follows from its facts (compatibility).
"""

import base64
import hashlib
import os
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import msgspec

from treegraft import __version__
from treegraft.environments import probe_cache
from treegraft.environments.agent_call import COMMON_INTERPRETERS, OnProgress, ask, build_program
from treegraft.environments.connect import Destination, Host, connect, parse_destination
from treegraft.environments.inventory import Environment, Inventory, NativeFile, Problem
from treegraft.environments.inventory import Host as HostFacts
from treegraft.environments.probe_cache import CachedFile, Remembered
from treegraft.errors import HostError, UsageError


class _Remember(msgspec.Struct, frozen=True):
    files: dict[str, tuple[str, str]]  # path -> (stat key, sha256) of files read now
    needs: tuple[str, ...]  # libraries that the files read now want from outside
    loads_key: str  # digest of what python_loads were made from


class _ProbeAnswer(msgspec.Struct, frozen=True):
    host: HostFacts
    environment: Environment | None
    problems: tuple[Problem, ...]
    remember: _Remember


class _ReadAnswer(msgspec.Struct, frozen=True):
    contents: dict[str, str]
    problems: tuple[Problem, ...]


def probe(
    destination: str,
    *,
    host_only: bool = False,
    sonames: Collection[str] = (),
    use_cache: bool = True,
    interpreter: str | None = None,
    on_progress: OnProgress | None = None,
) -> Inventory:
    """Inventory of `HOST:PATH` or a local path; of the host alone with `host_only` or an empty path.

    sonames: libraries to look up on the host beside those that the environment needs (another environment's needs).
    interpreter: runs the agent in place of the ones that are tried. Raises UsageError, HostError.
    """
    where = parse_destination(destination)
    path = "" if host_only else where.path
    if not path and not host_only:
        raise UsageError(f"{destination!r} names no environment; expected HOST:PATH (or --host-only)")
    host = connect(where)
    agent = _agent_digest()
    key = _cache_key(where)
    remembered = probe_cache.load(key, agent) if path and use_cache else Remembered(probe_cache.VERSION, agent)
    request = {
        "operation": "probe",
        "path": path or None,
        "place": where.path or None,
        "sonames": sorted({*sonames, *remembered.needs}),
        "known": {name: (file.key, file.sha256) for name, file in remembered.files.items()},
        "known_loads": remembered.loads_key,
    }
    answer = ask(host, request, _ProbeAnswer, _interpreters(host, path, interpreter), on_progress)
    environment, problems = answer.environment, list(answer.problems)
    if environment is not None:
        environment, remembered = _complete(environment, answer, remembered, problems)
        if use_cache:
            probe_cache.save(key, remembered)
    return Inventory(
        destination=destination,
        taken_at=datetime.now(UTC).isoformat(timespec="seconds"),
        treegraft_version=__version__,
        host=answer.host,
        environment=environment,
        problems=tuple(problems),
        partial=bool(problems),
    )


def read_files(destination: str, names: Sequence[str], limit_bytes: int = 64 << 20) -> dict[str, bytes]:
    """Contents of files of an environment, by their path in its inventory. Those that cannot be read, or that the
    limit (in all) leaves no room for, are missing from the answer. Raises UsageError, HostError."""
    where = parse_destination(destination)
    host = connect(where)
    request = {"operation": "read", "path": where.path, "names": list(names), "limit_bytes": limit_bytes}
    answer = ask(host, request, _ReadAnswer, _interpreters(host, where.path, None))
    try:
        return {name: base64.b64decode(text, validate=True) for name, text in answer.contents.items()}
    except ValueError as error:
        raise HostError(f"{host.name}: contents of files arrived damaged ({error})") from error


def _interpreters(host: Host, path: str, interpreter: str | None) -> list[str]:
    if interpreter is not None:
        return [interpreter]
    if host.is_local:
        return [sys.executable]
    own = [f"{path.rstrip('/')}/bin/python"] if path.startswith("/") else []
    return [COMMON_INTERPRETERS[0], *own, *COMMON_INTERPRETERS[1:]]


def _cache_key(where: Destination) -> str:
    path = os.path.realpath(os.path.expanduser(where.path)) if where.host is None else where.path
    return f"{where.host or ''}\0{path}"


def _agent_digest() -> str:
    return hashlib.sha256(build_program({})).hexdigest()


def _complete(
    environment: Environment, answer: _ProbeAnswer, remembered: Remembered, problems: list[Problem]
) -> tuple[Environment, Remembered]:
    """The environment with what was remembered of unchanged files, and what to remember from now on."""
    natives = {native.path: native for native in environment.native}
    files: dict[str, CachedFile] = {}
    for entry in environment.files:
        fresh, old = answer.remember.files.get(entry.path), remembered.files.get(entry.path)
        if fresh is not None:
            files[entry.path] = CachedFile(*fresh, natives.get(entry.path))
        elif old is not None and entry.sha256 == old.sha256 and entry.path not in natives:
            files[entry.path] = old
            if old.native is not None:
                natives[entry.path] = msgspec.structs.replace(old.native, owners=entry.owners, size=entry.size)
                problems.extend(_problem_of(old.native, environment.prefix))
    new = answer.remember
    loads = remembered.loads if new.loads_key == remembered.loads_key else environment.python_loads
    complete = msgspec.structs.replace(
        environment, native=tuple(natives[path] for path in sorted(natives)), python_loads=loads
    )
    return complete, Remembered(
        version=remembered.version,
        agent=remembered.agent,
        files=files,
        needs=tuple(sorted({*new.needs, *remembered.needs})),
        loads_key=new.loads_key,
        loads=loads,
    )


def _problem_of(native: NativeFile, prefix: str) -> list[Problem]:
    if not native.partial:
        return []
    return [Problem(subject=f"{prefix}/{native.path}", message=f"damaged ELF file: {native.problem}")]
