"""What module-level statements load, in order, without running any."""

import textwrap
from pathlib import Path

import pytest

from treegraft.environments.agent.python_loads import MAX_BYTES, library_names, scan, scan_environment


def events(source: str, module: str = "pkg", is_package: bool = True) -> list[tuple[object, ...]]:
    return [
        (kind, name, detail, *guards)
        for kind, name, detail, guards in scan(textwrap.dedent(source).encode(), module, is_package)
        if name not in ("os", "ctypes", "sys", "pathlib", "importlib", "glob")
    ]


def test_imports_are_absolute() -> None:
    assert events("import a.b, c\nfrom . import x, y\nfrom ..up import z\n", "pkg.sub") == [
        ("import", "a.b", ""),
        ("import", "c", ""),
        ("from", "pkg.sub", "x,y"),
        ("from", "pkg.up", "z"),
    ]
    assert events("from . import x\n", "pkg.mod", is_package=False) == [("from", "pkg", "x")]
    assert events("from .... import x\n") == []
    assert events("import importlib\nimportlib.import_module('._ext', __package__)\n") == [("import", "pkg._ext", "")]


def test_guards() -> None:
    source = """
    try:
        import a
    except ImportError:
        import b
    else:
        import c
    try:
        import d
    except OSError:
        raise RuntimeError
    if TYPE_CHECKING:
        import never
    if cond:
        import e
    if sys.platform == "win32":
        import never
    else:
        import f
    if sys.version_info >= (3, 12):
        import g
    def later():
        import never
    class K:
        import h
    """
    assert events(source) == [
        ("import", "a", "", "try:1:IM"),
        ("import", "b", "", "except:1"),
        ("import", "c", "", "try:1:"),
        ("import", "d", "", "try:2:"),
        ("import", "e", "", "if"),
        ("import", "f", ""),
        ("import", "g", "", "python:>=:3.12"),
        ("import", "h", ""),
    ]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('ctypes.CDLL("libm.so.6")', ("libm.so.6", "local")),
        ('ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "liba.so"))', ("file:lib/liba.so", "local")),
        ('ctypes.CDLL(here + "/liba.so", ctypes.RTLD_GLOBAL)', ("file:liba.so", "global")),
        ('ctypes.CDLL(str(Path(__file__).parent / "liba.so"), mode=ctypes.RTLD_GLOBAL)', ("file:liba.so", "global")),
        ('ctypes.CDLL(f"{here}/lib{name}.so")', ("file:*/lib*.so", "local")),
        ('ctypes.CDLL("/opt/x/liba.so")', ("/opt/x/liba.so", "local")),
        ('ctypes.cdll.LoadLibrary("liba.so.1")', ("liba.so.1", "local")),
        ('torch.ops.load_library(os.path.join(here, "_C.so"))', ("file:_C.so", "local")),
    ],
)
def test_libraries(call: str, expected: tuple[str, str]) -> None:
    found = events(f"here = os.path.dirname(__file__)\n{call}\n")
    assert [e[1:] for e in found if e[0] == "load"] == [expected]


def test_functions_and_loops_at_module_level() -> None:
    source = """
    def preload(folder):
        for name in ("liba.so", "libb.so"):
            ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL)
    preload(os.path.dirname(__file__))
    """
    assert [e[1] for e in events(source)] == ["file:liba.so", "file:libb.so"]


def test_what_follows_a_return_may_not_run() -> None:
    source = """
    def setup():
        import a
        if cond:
            return
        import b
    setup()
    import c
    """
    assert events(source) == [("import", "a", ""), ("import", "b", "", "if"), ("import", "c", "")]


def test_flags_and_unknown_paths() -> None:
    assert events("sys.setdlopenflags(sys.getdlopenflags() | os.RTLD_GLOBAL)\n") == [("flags", "", "global")]
    assert events("ctypes.CDLL(find_it())\n") == []


@pytest.mark.parametrize("source", [b"def (", b"\0", b"x = " + b"(" * 500, b"#" * (MAX_BYTES + 1), b"\xff\xfe", b""])
def test_unreadable_sources_load_nothing(source: bytes) -> None:
    assert scan(source, "pkg", True) == []


def test_endless_recursion_ends() -> None:
    assert events("def f():\n    import a\n    f()\nf()\n") == [("import", "a", "")]


def test_environment(tmp_path: Path) -> None:
    files = {
        "site/pkg/__init__.py": "from . import sub\nfrom .deep import thing\n",
        "site/pkg/sub.py": "import numpy\n",
        "site/pkg/deep.py": "import ctypes\nctypes.CDLL('libz.so.1')\n",
        "site/pkg/unrelated.py": "import never\n",
        "site/single.py": "import other\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    owned = {"pkg": [*[p for p in files if "/pkg/" in p], "site/pkg/gone.py"], "single": ["site/single.py"]}
    found = dict(scan_environment(str(tmp_path), ["site"], owned))
    assert set(found) == {p for p in files if "unrelated" not in p}
    assert library_names([{"path": p, "events": e} for p, e in found.items()]) == ["libz.so.1"]
