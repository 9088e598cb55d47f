"""Faults that other tools shipped, each made for real: what Python does, and what is found before it is tried."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from worlds.compiling import Compiler
from worlds.needs import require_program
from worlds.pairs.kinds_symbols import BESIDE, base_with, graft
from worlds.pairs.pair import Kit, calls, functions
from worlds.venvs import Uv, Venv, quick_venv, this_python
from worlds.wheels import Wheel

from treegraft.environments.checks.gpu import runs_on
from treegraft.environments.compatibility import check
from treegraft.environments.findings import Finding
from treegraft.environments.index.resolve import resolve
from treegraft.environments.inventory import GpuCode
from treegraft.environments.plan import PlanRequest, make_plan
from treegraft.environments.probe import probe

C10 = "namespace c10 {{ namespace cuda {{ void c10_cuda_check_implementation(int e, const char* f, {0} l){1} }} }}\n"
CALL = "int go() {{ c10::cuda::c10_cuda_check_implementation(0, 0, ({0})1); return 0; }}\n"
SYMBOL = "_ZN3c104cuda29c10_cuda_check_implementation"


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kit:
    require_program("gcc")
    monkeypatch.setenv("TREEGRAFT_CACHE_DIR", str(tmp_path / "cache"))
    return Kit(random.Random(0), Compiler(tmp_path / "objects"), this_python())


def findings(venv: Venv, rule: str | None = None) -> list[Finding]:
    found = check(probe(str(venv.prefix), use_cache=False))
    return [f for f in found if rule is None or f.rule == rule]


def blocking(venv: Venv) -> list[Finding]:
    return [f for f in findings(venv) if f.level == "block"]


def test_undefined_symbol_after_the_copy(kit: Kit, tmp_path: Path) -> None:
    """Two libraries whose symbol differs by one argument type, and an extension that needs the other one."""

    def library(argument: str) -> Wheel:
        made = kit.library("libc10_cuda.so", C10.format(argument, " {}"), cplusplus=True)
        return base_with(kit, made)

    other = kit.library("libc10_cuda.so", C10.format("unsigned int", " {}"), cplusplus=True)
    source = C10.format("unsigned int", ";") + CALL.format("unsigned int")
    extension = graft(kit, source, needs=[other], rpath=BESIDE, cplusplus=True)
    good = quick_venv(tmp_path / "good", kit.python, [library("unsigned int"), extension])
    bad = quick_venv(tmp_path / "bad", kit.python, [library("int"), extension])
    assert good.run("import graft").returncode == 0
    assert blocking(good) == []
    error = bad.run("import graft").stderr
    assert f"undefined symbol: {SYMBOL}" in error
    (found,) = blocking(bad)
    assert (found.rule, found.dist) == ("abi.undefined-symbol", "graft")
    symbol = error.split("undefined symbol: ")[1].split()[0]
    assert symbol in found.evidence
    assert found.file is not None
    assert found.file.endswith(f"graft/_ext{kit.python.extension_suffix}")


def test_soname_of_the_other_cuda_major(kit: Kit, tmp_path: Path) -> None:
    twelve, thirteen = (kit.library(f"libcudart_toy.so.{major}", functions("cudaMalloc")) for major in (12, 13))
    extension = graft(kit, calls("cudaMalloc"), needs=[thirteen], rpath=BESIDE)
    venv = quick_venv(tmp_path / "venv", kit.python, [base_with(kit, twelve), extension])
    assert "libcudart_toy.so.13: cannot open shared object file" in venv.run("import graft").stderr
    (found,) = blocking(venv)
    assert (found.rule, found.dist) == ("abi.missing-soname", "graft")
    assert "libcudart_toy.so.13" in found.evidence


@pytest.mark.parametrize(
    ("library", "version", "rule"),
    [("libc.so.6", "GLIBC_2.99", "abi.libc"), ("libstdc++.so.6", "GLIBCXX_3.4.99", "abi.libstdcxx")],
)
@pytest.mark.parametrize("is_vendored", [False, True], ids=["own", "vendored"])
def test_version_that_the_host_lacks_although_the_tag_promises_less(
    kit: Kit, tmp_path: Path, library: str, version: str, rule: str, is_vendored: bool
) -> None:
    """The need is read from the ELF files, those of NAME.libs included; the wheel's tag says manylinux2014."""
    stub = kit.library(library, functions("future"), version_script=f"{version} {{ global: future; local: *; }};\n")
    if is_vendored:
        vendored = kit.library("libvendored-0a1b.so.1", calls("future") + functions("first"), needs=[stub])
        data = kit.extension(calls("first"), needs=[vendored], rpath="$ORIGIN/../graft.libs")
        files = {"graft.libs/libvendored-0a1b.so.1": vendored.data}
    else:
        data, files = kit.extension(calls("future"), needs=[stub]), {}
    tag = kit.python.tag.replace("linux_", "manylinux2014_")
    extension = {f"graft/_ext{kit.python.extension_suffix}": data, "graft/__init__.py": "from . import _ext\n"}
    venv = quick_venv(tmp_path / "venv", kit.python, [Wheel("graft", "1.0", {**extension, **files}, tag=tag)])
    assert f"version `{version}' not found" in venv.run("import graft").stderr
    (found,) = blocking(venv)
    assert (found.rule, found.dist) == (rule, "graft")
    assert version in found.evidence


def test_one_file_without_code_for_the_gpu() -> None:
    """Of real nvcc output, file by file: tests/machines/fatbins holds the files, the rule's tests judge them."""
    answers = {
        ("cubin", "sm_86"): ("8.6", "8.9"),
        ("cubin", "sm_90a"): ("9.0",),
        ("cubin", "sm_100f"): ("10.0", "10.3"),
        ("ptx", "compute_80"): ("8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0"),
        ("ptx", "compute_90a"): ("9.0",),
    }
    for (kind, arch), expected in answers.items():
        devices = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0")
        assert tuple(d for d in devices if runs_on(GpuCode(kind=kind, arch=arch), d)) == expected, arch


def test_edit_in_one_uv_environment_changes_the_other(kit: Kit, tmp_path: Path) -> None:
    """uv links files from its cache: both environments hold the same file."""
    links = tmp_path / "links"
    Wheel("alpha", "1.0", {"alpha/__init__.py": "VALUE = 1\n"}).build(links)
    uv = Uv(tmp_path / "uv", [links])
    first, second = (uv.venv(tmp_path / name, kit.python) for name in ("first", "second"))
    for venv in (first, second):
        uv.install(venv, "alpha", link_mode="hardlink")
    with (first.site_packages / "alpha" / "__init__.py").open("a") as stream:
        stream.write("VALUE = 2\n")
    assert second.run("import alpha; print(alpha.VALUE)").stdout == "2\n", "the fault itself"
    for venv in (first, second):
        (shared,) = findings(venv, "venv.hardlink-shared")
        assert shared.level == "warn"
        assert "alpha/__init__.py" in shared.evidence
        assert [f.dist for f in findings(venv, "dist.modified")] == ["alpha"]
    copied = uv.venv(tmp_path / "copied", kit.python)
    uv.install(copied, "alpha", link_mode="copy")
    assert findings(copied, "venv.hardlink-shared") == []


def test_patches_that_a_reinstall_would_lose(kit: Kit, tmp_path: Path) -> None:
    links = tmp_path / "links"
    files = {"alpha/__init__.py": "", "alpha/a.py": "x = 1\n", "alpha/gone.py": "y = 1\n"}
    Wheel("alpha", "1.0", files).build(links)
    uv = Uv(tmp_path / "uv", [links])
    venv = uv.venv(tmp_path / "venv", kit.python)
    uv.install(venv, "alpha")
    package = venv.site_packages / "alpha"
    (package / "a.py").write_text("x = 2\n")
    (package / "added.py").write_text("z = 1\n")
    (package / "gone.py").unlink()
    expected = {"dist.modified": "a.py", "dist.missing-file": "gone.py", "dist.unowned": "added.py"}
    for rule, name in expected.items():
        (found,) = findings(venv, rule)
        assert f"alpha/{name}" in found.evidence, rule
    uv.install(venv, "alpha", "--reinstall")
    assert (package / "a.py").read_text() == "x = 1\n", "the fault itself: the edit is lost, silently"
    assert findings(venv, "dist.modified") == []


def test_copied_environment_still_points_to_the_old_place(kit: Kit, tmp_path: Path) -> None:
    links = tmp_path / "links"
    code = "def main():\n    print('from', __file__)\n"
    Wheel("alpha", "1.0", {"alpha.py": code}, entry_points={"console_scripts": {"alpha": "alpha:main"}}).build(links)
    uv = Uv(tmp_path / "uv", [links])
    old = uv.venv(tmp_path / "old", kit.python)
    uv.install(old, "alpha")
    assert findings(old, "venv.relocation") == []
    new = Venv(tmp_path / "new", old.minor)
    shutil.copytree(old.prefix, new.prefix, symlinks=True)
    shutil.rmtree(old.prefix)
    with pytest.raises(FileNotFoundError):
        subprocess.run([new.prefix / "bin" / "alpha"], check=True)
    (script,) = [f for f in findings(new, "venv.relocation") if f.dist == "alpha"]
    assert script.file == "bin/alpha"
    assert str(old.prefix) in script.evidence
    (new.prefix / "bin" / "python").unlink()
    (new.prefix / "bin" / "python").symlink_to(tmp_path / "removed" / "python3")
    (gone,) = [f for f in findings(new, "venv.relocation") if f.level == "block"]
    assert "no interpreter" in gone.evidence


def test_keeping_torch_never_falls_back_to_an_ancient_release(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index has an old sglang that goes with any torch; a resolver alone would pick it without a word."""
    links = tmp_path / "links"
    Wheel("sglang", "0.5.17", {"sglang/__init__.py": ""}, ("torch==2.11.0", "sgl-kernel==0.4.5")).build(links)
    Wheel("sglang", "0.1.0", {"sglang/__init__.py": ""}).build(links)
    Wheel("sgl-kernel", "0.4.5", {"sgl_kernel/__init__.py": ""}, ("torch==2.11.0",)).build(links)
    serving = [
        Wheel("sglang", "0.5.17", {"sglang/__init__.py": ""}, ("torch==2.11.0", "sgl-kernel==0.4.5")),
        Wheel("sgl-kernel", "0.4.5", {"sgl_kernel/__init__.py": ""}, ("torch==2.11.0",)),
        Wheel("torch", "2.11.0", {"torch/__init__.py": ""}),
    ]
    source = quick_venv(tmp_path / "source", kit.python, serving)
    base = quick_venv(tmp_path / "base", kit.python, [Wheel("torch", "2.9.1", {"torch/__init__.py": ""})])
    empty_index = tmp_path / "simple"
    empty_index.mkdir()
    monkeypatch.setenv("UV_DEFAULT_INDEX", empty_index.as_uri())
    monkeypatch.setenv("UV_FIND_LINKS", str(links))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    a, b = (probe(str(v.prefix), use_cache=False) for v in (source, base))
    request = PlanRequest(take=("sglang",), source="a", target="b", keep=("torch",))
    plan = make_plan(request, source=a, target=b, base=None, resolution=resolve(request, source=a, target=b, base=None))
    assert not [d for d in plan.dists if d.name == "sglang" and d.version == "0.1.0"]
    blocks = [f for f in plan.findings if f.level == "block"]
    assert {f.rule for f in blocks} == {"resolve.unsatisfiable"}
    assert "torch==2.11.0" in blocks[0].evidence
    assert "2.9.1" in blocks[0].evidence
