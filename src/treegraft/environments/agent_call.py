"""Start the agent on a host and read its answer. Knows the bootstrap and the frames, not what is asked.

The program travels on standard input; on the host it lives in memory only:

    ssh HOST python3 -I -B -   <  bootstrap: sources and request, compressed   >  frames
    frame    marker (random, so that no banner can look like it), kind (P progress, R result, E error),
             8 hex digits: payload bytes, payload: zlib-compressed JSON
"""

import base64
import secrets
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Generic, TypeVar

import msgspec

from treegraft.environments.connect import Completed, Host
from treegraft.environments.escape import terminal
from treegraft.errors import HostError, NothingThereError

MAX_ANSWER_BYTES = 2 << 30
LINE_CHARACTERS = 1 << 16
TOO_OLD = 86  # exit status of the bootstrap under an interpreter that is too old
NOT_FOUND = (126, 127)  # a shell's exit statuses for a program that is not there or cannot be run
COMMON_INTERPRETERS = ("python3", "python", "/usr/bin/python3", "/usr/local/bin/python3", "/opt/conda/bin/python3")
FIND_INTERPRETERS = (
    "for p in /usr/bin/python3.* /usr/local/bin/python3.* /usr/libexec/platform-python /opt/*/bin/python3 "
    '"$HOME"/.local/share/uv/python/*/bin/python3 "$HOME"/.pyenv/versions/*/bin/python3 '
    '"$HOME"/*conda*/bin/python3 "$HOME"/*forge*/bin/python3; '
    'do if [ -x "$p" ]; then echo "$p"; fi; done'
)
# Also read by old interpreters, which must get as far as saying how old they are.
BOOTSTRAP = '''\
import sys
def start(blob):
    if sys.version_info < (3, 8):
        sys.stderr.write("Python %d.%d is too old" % sys.version_info[:2])
        sys.exit({too_old})
    import base64, importlib, importlib.abc, importlib.machinery, json, zlib
    given = json.loads(zlib.decompress(base64.b64decode(blob)).decode("utf-8"))
    sources = given["sources"]
    class Memory(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path=None, target=None):
            if name in sources:
                return importlib.machinery.ModuleSpec(name, self, is_package=sources[name][0])
        def create_module(self, spec):
            return None
        def exec_module(self, module):
            name = module.__spec__.name
            exec(compile(sources[name][1], "<agent " + name + ">", "exec"), module.__dict__)
    sys.meta_path.insert(0, Memory())
    importlib.import_module("treegraft_agent.entry").main(given["request"])
start("""
{blob}
""")
'''

AnswerT = TypeVar("AnswerT")
OnProgress = Callable[[int, int], None]  # (bytes read, files read)


class _Progress(msgspec.Struct, frozen=True):
    bytes: int = 0
    files: int = 0


class _Failure(msgspec.Struct, frozen=True):
    message: str
    is_free: bool = False


def ask(
    host: Host,
    request: Mapping[str, Any],
    answer_type: type[AnswerT],
    interpreters: Sequence[str],
    on_progress: OnProgress | None = None,
) -> AnswerT:
    """Put one request to the agent, under the first interpreter that can run it. Raises HostError."""
    marker = secrets.token_hex(16)
    program = build_program({**request, "marker": marker})
    tried: list[str] = []
    candidates = list(dict.fromkeys(interpreters))
    has_looked = host.is_local
    while candidates or not has_looked:
        if not candidates:
            has_looked = True
            candidates = [path for path in _look_for_interpreters(host) if path not in tried]
            continue
        interpreter = candidates.pop(0)
        reader = FrameReader(marker, answer_type, on_progress)
        done = host.run([interpreter, "-I", "-B", "-"], program, on_output=reader.feed)
        if reader.has_answer:
            return reader.take(host.name)
        if not _is_unfit(done):
            raise HostError(_describe_failure(host, interpreter, done))
        tried.append(interpreter)
    raise HostError(
        f"host {terminal(host.name)}: no Python 3.8 or newer was found (tried {terminal(', '.join(tried))}); "
        "install one, or name an environment that has one"
    )


def build_program(request: Mapping[str, Any]) -> bytes:
    """The whole program as ASCII source."""
    sources: dict[str, tuple[bool, str]] = {}
    _collect(resources.files("treegraft.environments.agent"), "treegraft_agent", sources)
    given = msgspec.json.encode({"sources": sources, "request": request})
    text = base64.b64encode(zlib.compress(given, 1)).decode("ascii")
    lines = [text[at : at + LINE_CHARACTERS] for at in range(0, len(text), LINE_CHARACTERS)]
    return BOOTSTRAP.format(too_old=TOO_OLD, blob="\n".join(lines)).encode("ascii")


def _collect(folder: Traversable, package: str, sources: dict[str, tuple[bool, str]]) -> None:
    for item in folder.iterdir():
        if item.is_dir() and item.joinpath("__init__.py").is_file():
            _collect(item, f"{package}.{item.name}", sources)
        elif item.name == "__init__.py":
            sources[package] = (True, item.read_text(encoding="utf-8"))
        elif item.name.endswith(".py"):
            sources[f"{package}.{item.name[:-3]}"] = (False, item.read_text(encoding="utf-8"))


def _look_for_interpreters(host: Host) -> list[str]:
    done = host.run(["sh", "-c", FIND_INTERPRETERS], idle_timeout_s=30.0)
    lines = done.output.decode("utf-8", "replace").splitlines()
    found = [line for line in lines if line.startswith("/") and not line.endswith("-config")]
    return sorted(found, key=_version_key, reverse=True)[:16]


def _version_key(path: str) -> tuple[int, ...]:
    version = path.rsplit("python", 1)[-1].split(".")
    return tuple(int(part) if part.isdigit() else 0 for part in version)


def _is_unfit(done: Completed) -> bool:
    """Whether another interpreter is worth a try: this one is missing, too old, or knows no -I (Python 2)."""
    no_isolation = "unknown option -I" in done.error.lower() or "Unknown option: -I" in done.error
    return done.returncode in (*NOT_FOUND, TOO_OLD) or no_isolation


def _describe_failure(host: Host, interpreter: str, done: Completed) -> str:
    last = [line.strip() for line in done.error.splitlines() if line.strip()][-1:] or ["no message"]
    return (
        f"host {terminal(host.name)}: the agent under {terminal(interpreter)} ended with status {done.returncode} "
        f"and no answer ({terminal(last[0][:300])})"
    )


class FrameReader(Generic[AnswerT]):
    """Picks frames out of a stream that a shell's banners may precede or interrupt."""

    def __init__(self, marker: str, answer_type: type[AnswerT], on_progress: OnProgress | None) -> None:
        self._marker = marker.encode("ascii")
        self._type = answer_type
        self._on_progress = on_progress
        self._buffer = bytearray()
        self._answer: tuple[bytes, bytes] | None = None  # (kind, payload)

    @property
    def has_answer(self) -> bool:
        return self._answer is not None

    def feed(self, chunk: bytes) -> None:
        self._buffer += chunk
        head = len(self._marker) + 9
        while True:
            start = self._buffer.find(self._marker)
            if start < 0:
                del self._buffer[: max(0, len(self._buffer) - len(self._marker))]
                return
            del self._buffer[:start]
            if len(self._buffer) < head:
                return
            kind, digits = self._buffer[head - 9 : head - 8], self._buffer[head - 8 : head]
            try:
                size = int(digits, 16)
            except ValueError:
                del self._buffer[:1]
                continue
            if len(self._buffer) < head + size:
                return
            payload = bytes(self._buffer[head : head + size])
            del self._buffer[: head + size]
            self._take(bytes(kind), payload)

    def _take(self, kind: bytes, payload: bytes) -> None:
        if kind == b"P" and self._on_progress is not None:
            progress = _decode(payload, _Progress)
            self._on_progress(progress.bytes, progress.files)
        elif kind in (b"R", b"E"):
            self._answer = (kind, payload)

    def take(self, name: str) -> AnswerT:
        """The answer. Raises HostError for what the agent refused (NothingThereError where nothing is at the path),
        or an answer that is not what it must be."""
        assert self._answer is not None
        kind, payload = self._answer
        if kind == b"E":
            failure = _decode(payload, _Failure)
            error = NothingThereError if failure.is_free else HostError
            raise error(f"{terminal(name)}: {terminal(failure.message)}")
        return _decode(payload, self._type)


def _decode(payload: bytes, kind: type[AnswerT]) -> AnswerT:
    try:
        text = zlib.decompressobj().decompress(payload, MAX_ANSWER_BYTES)
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, zlib.error) as error:
        raise HostError(f"the agent's answer is damaged ({terminal(str(error))})") from error
