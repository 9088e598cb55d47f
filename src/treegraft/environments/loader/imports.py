"""What importing packages does, module by module, as far as their module-level statements tell. Judges nothing.

The statements come from the probe (`python_loads`); files without any are taken to load nothing. An extension's own
imports from C are not seen.
"""

import posixpath
from dataclasses import dataclass, field

from treegraft.environments.inventory import LoadEvent
from treegraft.environments.loader.catalogue import Catalogue
from treegraft.environments.loader.modules import Module, Modules
from treegraft.environments.loader.process import LoadProblem, Process
from treegraft.environments.loader.world import World


@dataclass(frozen=True)
class ImportFailure:
    """Why an import raises. exception: I ImportError, M ModuleNotFoundError, O OSError.

    reason: dlopen | no-init | not-elf | python-tag | missing-file | missing-module | missing-name | missing-library.
    chain: module names from the first import to the failing one. path: the file at fault, relative to the prefix.
    """

    exception: str
    reason: str
    path: str
    chain: tuple[str, ...]
    detail: str = ""
    problems: tuple[LoadProblem, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Ground:
    """What all imports of one World share."""

    world: World
    catalogue: Catalogue
    modules: Modules
    events: dict[str, tuple[LoadEvent, ...]]


def ground_of(world: World) -> Ground:
    return Ground(world, Catalogue(world), Modules(world), {m.path: m.events for m in world.python_loads})


class Importer:
    """One Python process that imports modules. `doubtful` collects failures under conditions that are not known."""

    def __init__(self, ground: Ground, process: Process) -> None:
        self.ground = ground
        self.process = process
        self.results: dict[str, ImportFailure | None] = {}
        self.doubtful: list[ImportFailure] = []
        self.is_global = False

    def fork(self) -> "Importer":
        twin = Importer(self.ground, self.process.copy())
        twin.results = dict(self.results)
        twin.is_global = self.is_global
        return twin

    def forget(self, name: str) -> None:
        """Let the next import of a failed module try again, as Python does."""
        self.results.pop(name, None)

    def import_module(self, name: str, chain: tuple[str, ...] = ()) -> ImportFailure | None:
        """Import parents, then the module. None when nothing is known to fail."""
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            part = ".".join(parts[:end])
            if part not in self.results:
                self.results[part] = None  # being imported: a cycle finds it
                self.results[part] = self._load(part, (*chain, part))
            failure = self.results[part]
            if failure is not None:
                return failure
        return None

    def _load(self, name: str, chain: tuple[str, ...]) -> ImportFailure | None:
        module = self.ground.modules.find(name)
        if module is None:
            return self._absent(name, chain)
        if module.kind == "extension":
            return self._load_extension(module, chain)
        if module.kind in ("package", "source"):
            return self._run(module, self.ground.events.get(module.path, ()), chain)
        return None

    def _absent(self, name: str, chain: tuple[str, ...]) -> ImportFailure | None:
        """A name without a usable file: known to be missing, or perhaps made at run time."""
        modules = self.ground.modules
        variants = modules.unusable_variants(name)
        if variants:
            detail = f"this interpreter imports {', '.join(modules.suffixes)}"
            return ImportFailure("IM", "python-tag", variants[0], chain, detail)
        missing = modules.missing_files(name)
        if missing:
            return ImportFailure("IM", "missing-file", missing[0], chain)
        if "." not in name and not modules.is_open:
            return ImportFailure("IM", "missing-module", "", chain, name)
        return None

    def _load_extension(self, module: Module, chain: tuple[str, ...]) -> ImportFailure | None:
        path = posixpath.join(self.ground.world.prefix, module.path)
        library = self.ground.catalogue.at(path)
        if library is None:
            return ImportFailure("I", "not-elf", module.path, chain)
        problems = self.process.open_path(path, is_global=self.is_global)
        if problems:
            return ImportFailure("I", "dlopen", module.path, chain, problems=tuple(problems))
        init = "PyInit_" + module.name.rpartition(".")[2]
        if init not in library.plain_names and init.isascii():
            return ImportFailure("I", "no-init", module.path, chain, init)
        return None

    def _run(self, module: Module, events: tuple[LoadEvent, ...], chain: tuple[str, ...]) -> ImportFailure | None:
        failed_tries: set[str] = set()
        for event in events:
            if not self._is_reached(event.guards, failed_tries):
                continue
            failure = self._execute(module, event, chain)
            if failure is None:
                continue
            guard = _catching(event.guards, failure.exception)
            if guard is None:
                return failure
            if guard == "if":
                self.doubtful.append(failure)
            else:
                failed_tries.add(guard)
        return None

    def _is_reached(self, guards: tuple[str, ...], failed_tries: set[str]) -> bool:
        for guard in guards:
            kind, _, rest = guard.partition(":")
            number = rest.partition(":")[0]
            if kind == "try" and number in failed_tries:
                return False
            if kind == "except" and number not in failed_tries:
                return False
            if kind == "python" and not _version_holds(rest, self.ground.world.python.version):
                return False
        return True

    def _execute(self, module: Module, event: LoadEvent, chain: tuple[str, ...]) -> ImportFailure | None:
        if event.kind == "flags":
            if "if" not in event.guards:
                self.is_global = event.detail == "global"
            return None
        if event.kind == "load":
            return self._load_library(module, event, chain)
        failure = self.import_module(event.name, chain)
        if failure is not None or event.kind == "import":
            return failure
        return self._import_names(event, chain)

    def _import_names(self, event: LoadEvent, chain: tuple[str, ...]) -> ImportFailure | None:
        """`from NAME import a, b`: each is a submodule when there is such a file, else an attribute."""
        modules = self.ground.modules
        owner = modules.find(event.name)
        if owner is None or owner.kind not in ("package", "namespace"):
            return None
        for item in event.detail.split(","):
            name = f"{event.name}.{item}"
            known = modules.find(name) or modules.unusable_variants(name) or modules.missing_files(name)
            if known:
                failure = self.import_module(name, chain)
                if failure is not None:
                    return failure
            elif owner.kind == "namespace" and item != "*" and not modules.is_open:
                missing = modules.missing_files(event.name)
                return ImportFailure("I", "missing-name", missing[0] if missing else owner.path, chain, name)
        return None

    def _load_library(self, module: Module, event: LoadEvent, chain: tuple[str, ...]) -> ImportFailure | None:
        """ctypes.CDLL. A path that cannot be made out is passed over."""
        is_global = event.detail == "global"
        prefix = self.ground.world.prefix
        if event.name.startswith("file:"):
            tail = event.name[len("file:") :]
            found = self.ground.modules.library_files(tail, module.path)
            if not found:
                missing = self.ground.modules.missing_library(tail)
                if missing:
                    return ImportFailure("O", "missing-file", missing[0], chain)
                return None
            failures = [
                self._open_file(posixpath.join(prefix, path), path, is_global, chain)
                for path in (found if "*" in tail else found[:1])
            ]
            # a pattern may mean all of them or the one that fits: it fails when none can be loaded
            return failures[0] if all(failures) else None
        if event.name.startswith("/"):
            if self.ground.catalogue.at(event.name) is None:
                return None
            return self._open_file(event.name, event.name, is_global, chain)
        problems = self.process.open_name(event.name, is_global=is_global)
        if problems is None:
            return ImportFailure("O", "missing-library", module.path, chain, event.name)
        if problems:
            return ImportFailure("O", "dlopen", problems[0].library.file.path, chain, problems=tuple(problems))
        return None

    def _open_file(self, absolute: str, path: str, is_global: bool, chain: tuple[str, ...]) -> ImportFailure | None:
        if self.ground.catalogue.at(absolute) is None:
            return ImportFailure("O", "not-elf", path, chain)
        problems = self.process.open_path(absolute, is_global=is_global)
        return ImportFailure("O", "dlopen", path, chain, problems=tuple(problems)) if problems else None


def _catching(guards: tuple[str, ...], exception: str) -> str | None:
    """The innermost guard that swallows the exception: a try's number, "if", or None.

    exception: "I" an ImportError, "IM" a ModuleNotFoundError (either handler catches it), "O" an OSError.
    """
    for guard in reversed(guards):
        if guard == "if":
            return "if"
        kind, _, rest = guard.partition(":")
        number, _, kinds = rest.partition(":")
        if kind == "try" and any(k in kinds for k in exception):
            return number
    return None


def _version_holds(test: str, version: str) -> bool:
    """`>=:3.12` or `!>=:3.12` (its negation) for the interpreter's version."""
    operator, _, bound = test.partition(":")
    wanted = [int(n) for n in bound.split(".") if n.isdigit()]
    numbers = [int(n) for n in version.split(".") if n.isdigit()]
    holds = {">=": numbers >= wanted, ">": numbers > wanted, "<=": numbers <= wanted, "<": numbers < wanted}
    name = operator.removeprefix("!")
    return holds[name] != operator.startswith("!") if name in holds else True
