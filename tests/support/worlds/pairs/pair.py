"""A pair of environments as data: what lies in each, what is moved, and under which loader settings.

Knows nothing of how pairs are made (kinds), written to disk (lay_out) or judged (judge).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from worlds.compiling import Compiler, Link, Native
from worlds.venvs import Python
from worlds.wheels import Wheel


@dataclass(frozen=True)
class Pair:
    """The result environment is `target` with `moved` laid over it.

    moved: dists of the source that are put into the target. source_only: dists that stay behind.
    outside: path below the world's folder -> content, for libraries that belong to no environment.
    library_path: entries of LD_LIBRARY_PATH; "{world}" is filled in. preload: of LD_PRELOAD, likewise.
    removed: paths in site-packages to delete wherever they are; symlinks: path in site-packages -> target as written,
    where nothing lies yet.
    variant: what was drawn, for people.
    """

    variant: str
    moved: tuple[Wheel, ...]
    target: tuple[Wheel, ...] = ()
    source_only: tuple[Wheel, ...] = ()
    outside: Mapping[str, bytes] = field(default_factory=dict)
    library_path: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    symlinks: Mapping[str, str] = field(default_factory=dict)

    def result(self) -> tuple[Wheel, ...]:
        """Dists of the result environment; a moved one replaces its namesake."""
        names = {wheel.name for wheel in self.moved}
        return (*(w for w in self.target if w.name not in names), *self.moved)


@dataclass(frozen=True)
class Kit:
    """What a kind makes a pair with. All choices come from `rng`, so that a seed gives one pair."""

    rng: Random
    compiler: Compiler
    python: Python

    def library(self, soname: str, source: str, **link: object) -> Native:
        return self.compiler.library(source, Link(soname=soname, **link))  # type: ignore[arg-type]

    def extension(self, source: str, *, module: str = "_ext", defines: tuple[str, ...] = (), **link: object) -> bytes:
        made = self.compiler.extension(module, source, Link(**link), str(self.python.include), defines)  # type: ignore[arg-type]
        return made.data

    def package(
        self, name: str, files: Mapping[str, bytes | str], init: str = "", requires: tuple[str, ...] = ()
    ) -> Wheel:
        """A dist of one package; paths of `files` are inside it. Suffix "@" stands for the extension suffix."""
        inside = {f"{name}/{path.replace('@', self.python.extension_suffix)}": data for path, data in files.items()}
        return Wheel(name, "1.0", {f"{name}/__init__.py": init, **inside}, requires=requires, tag=self.python.tag)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share


Kind = Callable[[Kit], Pair]


def functions(*names: str) -> str:
    """C source that defines them."""
    return "".join(f"int {name}(void) {{ return 1; }}\n" for name in names)


def calls(*names: str, weak: tuple[str, ...] = ()) -> str:
    """C source that needs them; `weak` ones may stay unresolved."""
    lines = [f"extern int {name}(void);\n" for name in names]
    lines += [f"extern int {name}(void) __attribute__((weak));\n" for name in weak]
    total = " + ".join([f"{name}()" for name in names] + [f"({name} ? {name}() : 0)" for name in weak])
    return "".join(lines) + f"int call_all(void) {{ return {total or '0'}; }}\n"
