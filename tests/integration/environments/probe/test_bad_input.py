"""Environments that are broken, hostile or half there: a clear line each, a partial inventory, never a crash."""

import base64
import hashlib
import os
import shutil
import socket
from pathlib import Path

import pytest
from worlds.compiling import Compiler, Link, truncated
from worlds.needs import require, require_program
from worlds.venvs import Venv, empty_shell, quick_venv, this_python
from worlds.wheels import Wheel, record_hash

from treegraft.environments.inventory import Dist, Environment, Inventory
from treegraft.environments.inventory_text import summarise
from treegraft.environments.probe import probe
from treegraft.errors import HostError

SITE = f"lib/python{this_python().minor}/site-packages"


def environment_of(inventory: Inventory) -> Environment:
    assert inventory.environment is not None
    return inventory.environment


def dist(environment: Environment, name: str) -> Dist:
    return next(dist for dist in environment.dists if dist.name == name)


def problems(inventory: Inventory) -> str:
    assert inventory.partial == bool(inventory.problems)
    return "\n".join(f"{problem.subject}: {problem.message}" for problem in inventory.problems)


def test_whole_environment_is_not_partial(venv: Venv) -> None:
    inventory = probe(str(venv.prefix))
    assert problems(inventory) == ""
    environment = environment_of(inventory)
    assert (environment.kind, environment.is_empty, environment.has_pip) == ("uv-venv", False, False)
    assert environment.python.is_runnable
    alpha = dist(environment, "alpha")
    assert (alpha.version, alpha.local, alpha.requires) == ("1.2+cu130", "cu130", ("beta>=2",))
    assert (alpha.modified, alpha.missing, alpha.unchecked, alpha.hostile) == ((), (), (), ())
    assert alpha.top_level == ("alpha",)
    assert dist(environment, "beta").entry_points[0].value == "beta:main"


def test_modified_missing_unowned_and_multi_owned(venv: Venv) -> None:
    (venv.site_packages / "alpha/part.py").write_text("x = 2\n")
    (venv.site_packages / "beta.py").unlink()
    (venv.site_packages / "alpha/extra.py").write_text("patched = True\n")
    Wheel("gamma", "1", {"alpha/__init__.py": "import beta\n"}).unpack(venv.site_packages)
    environment = environment_of(probe(str(venv.prefix)))
    alpha = dist(environment, "alpha")
    assert [file.path for file in alpha.modified] == [f"{SITE}/alpha/part.py"]
    assert alpha.modified[0].found.startswith("sha256=")
    assert alpha.modified[0].found != alpha.modified[0].recorded
    assert dist(environment, "beta").missing == (f"{SITE}/beta.py",)
    assert environment.unowned == (f"{SITE}/alpha/extra.py",)
    shared = next(file for file in environment.files if file.path == f"{SITE}/alpha/__init__.py")
    assert shared.owners == ("alpha", "gamma")


def test_byte_code_is_neither_listed_nor_unowned(venv: Venv) -> None:
    folder = venv.site_packages / "alpha" / "__pycache__"
    folder.mkdir()
    (folder / "part.cpython-311.pyc").write_bytes(b"x" * 100)
    environment = environment_of(probe(str(venv.prefix)))
    assert environment.unowned == ()
    assert not any("__pycache__" in file.path for file in environment.files)
    assert [(c.num_files, c.size_bytes) for c in environment.caches if c.kind == "bytecode"] == [(1, 100)]


def test_duplicate_metadata(venv: Venv) -> None:
    Wheel("Alpha", "0.9", {}).unpack(venv.site_packages)
    environment = environment_of(probe(str(venv.prefix)))
    assert sorted(d.version for d in environment.dists if d.name == "alpha") == ["0.9", "1.2+cu130"]
    assert "alpha has 2 metadata folders" in summarise(probe(str(venv.prefix)))


def test_hostile_record_is_named_and_not_followed(venv: Venv, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    record = venv.site_packages / "beta-2.0.dist-info" / "RECORD"
    lines = [
        f"{secret},sha256={record_hash(b'x')},4",
        "../../../../secret,,",
        "a/../../../../../secret,,",
        '"x\ny.py",,',
    ]
    record.write_text(record.read_text() + "\n".join([*lines, ""]))
    inventory = probe(str(venv.prefix))
    beta = dist(environment_of(inventory), "beta")
    assert beta.hostile == (str(secret), "../../../../secret", "a/../../../../../secret")
    assert beta.missing == (f"{SITE}/x\ny.py",)
    assert not any("secret" in file.path for file in environment_of(inventory).files)
    assert "3 RECORD lines point outside" in summarise(inventory)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"beta.py,sha256=not base64!,6\n", "hash of beta.py cannot be decoded"),
        (b'"unclosed,,\n', ""),
        (b"\xff\xfe\x00,,\n", ""),
        (b"", ""),
        (b"beta.py\n", ""),
    ],
)
def test_malformed_record(venv: Venv, content: bytes, said: str) -> None:
    (venv.site_packages / "beta-2.0.dist-info" / "RECORD").write_bytes(content)
    inventory = probe(str(venv.prefix))
    assert said in problems(inventory)
    assert dist(environment_of(inventory), "beta").version == "2.0"


def test_other_hashes_are_checked_too(venv: Venv) -> None:
    record = venv.site_packages / "beta-2.0.dist-info" / "RECORD"
    digest = base64.urlsafe_b64encode(hashlib.sha512(b"y = 2\n").digest()).rstrip(b"=").decode()
    record.write_text(f"beta.py,sha512={digest},6\n")
    assert dist(environment_of(probe(str(venv.prefix))), "beta").modified == ()
    (venv.site_packages / "beta.py").write_text("y = 3\n")
    assert len(dist(environment_of(probe(str(venv.prefix))), "beta").modified) == 1


def test_half_deleted_venv(venv: Venv) -> None:
    (venv.prefix / "pyvenv.cfg").unlink()
    shutil.rmtree(venv.prefix / "bin")
    (venv.site_packages / "alpha-1.2+cu130.dist-info" / "METADATA").unlink()
    (venv.site_packages / "beta-2.0.dist-info" / "RECORD").unlink()
    inventory = probe(str(venv.prefix))
    environment = environment_of(inventory)
    assert environment.kind == "venv"
    assert not environment.python.is_runnable
    said = problems(inventory)
    assert "pyvenv.cfg: missing: a half-deleted venv" in said
    assert "bin/python: missing: the environment has no interpreter" in said
    assert "METADATA: missing" in said
    assert "RECORD: missing: the dist's files cannot be checked" in said
    assert (dist(environment, "alpha").version, dist(environment, "beta").has_record) == ("1.2+cu130", False)
    assert "PARTIAL" in summarise(inventory)


def test_interpreter_link_leads_nowhere(venv: Venv) -> None:
    (venv.prefix / "bin" / "python").unlink()
    (venv.prefix / "bin" / "python").symlink_to("/gone/python3.11")
    inventory = probe(str(venv.prefix))
    assert "bin/python: leads nowhere: it is a link to /gone/python3.11, which does not exist" in problems(inventory)
    link = next(link for link in environment_of(inventory).links if link.path == "bin/python")
    assert (link.exists, link.is_inside, link.target) == (False, False, "/gone/python3.11")


def test_interpreter_that_fails(venv: Venv) -> None:
    (venv.prefix / "bin" / "python").unlink()
    (venv.prefix / "bin" / "python").write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    (venv.prefix / "bin" / "python").chmod(0o755)
    assert "bin/python: does not run: broken" in problems(probe(str(venv.prefix)))


def test_empty_shell(tmp_path: Path) -> None:
    shell = empty_shell(tmp_path / "shell", this_python())
    environment = environment_of(probe(str(shell.prefix)))
    assert (environment.kind, environment.is_empty, environment.dists) == ("uv-venv", True, ())
    assert environment.python.is_runnable


def test_folder_of_patched_modules(tmp_path: Path) -> None:
    (tmp_path / "patch" / "pkg").mkdir(parents=True)
    (tmp_path / "patch" / "pkg" / "new.py").write_text("x = 1\n")
    inventory = probe(str(tmp_path / "patch"))
    environment = environment_of(inventory)
    assert (environment.kind, environment.unowned) == ("folder", ("pkg/new.py",))
    assert not inventory.partial


def test_symlink_loops(venv: Venv) -> None:
    (venv.site_packages / "loop").symlink_to("loop")
    (venv.site_packages / "alpha" / "up").symlink_to("..")
    (venv.site_packages / "one").symlink_to("two")
    (venv.site_packages / "two").symlink_to("one")
    environment = environment_of(probe(str(venv.prefix)))
    links = {link.path: link for link in environment.links}
    assert not links[f"{SITE}/loop"].exists
    assert not links[f"{SITE}/one"].exists
    assert links[f"{SITE}/alpha/up"].exists
    assert sum(file.path.endswith("part.py") for file in environment.files) == 1


def test_links_in_place_of_listed_files(venv: Venv) -> None:
    """RECORD speaks of contents: of what a link leads to, wherever that is; a loop has none."""
    part = venv.site_packages / "alpha" / "part.py"
    part.rename(part.with_name("moved.py"))
    part.symlink_to("moved.py")
    alpha = dist(environment_of(probe(str(venv.prefix))), "alpha")
    assert (alpha.modified, alpha.missing, alpha.unchecked) == ((), (), ())
    part.with_name("moved.py").write_text("x = 2\n")
    alpha = dist(environment_of(probe(str(venv.prefix))), "alpha")
    assert [file.path for file in alpha.modified] == [f"{SITE}/alpha/part.py"]
    part.unlink()
    part.symlink_to("part.py")
    assert dist(environment_of(probe(str(venv.prefix))), "alpha").missing == (f"{SITE}/alpha/part.py",)


def test_metadata_without_name_or_version(venv: Venv) -> None:
    (venv.site_packages / "beta-2.0.dist-info" / "METADATA").write_text("Name:\nVersion: \nRequires-Dist: alpha\n")
    beta = dist(environment_of(probe(str(venv.prefix))), "beta")
    assert (beta.version, beta.requires) == ("2.0", ("alpha",))


def test_names_with_newlines_escapes_and_odd_bytes(venv: Venv) -> None:
    (venv.site_packages / "a\nb.py").write_text("")
    (venv.site_packages / "c\x1b[31md.py").write_text("")
    Path(os.fsdecode(os.fsencode(venv.site_packages) + b"/e\xfff.py")).write_text("")
    inventory = probe(str(venv.prefix))
    unowned = environment_of(inventory).unowned
    assert unowned == (f"{SITE}/a\nb.py", f"{SITE}/c\x1b[31md.py", f"{SITE}/e\\udcfff.py")
    shown = summarise(inventory)
    assert "\x1b" not in shown
    assert "a\\nb.py" in shown
    assert "c\\x1b[31md.py" in shown


@pytest.mark.usefixtures("unprivileged")
def test_unreadable_files(venv: Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent runs as another user, by way of an interpreter that changes to it first."""
    closed = venv.prefix.parent / "closed"
    closed.mkdir(mode=0o700)
    (closed / "python3").symlink_to("/usr/bin/python3")
    (venv.prefix / "bin" / "python").unlink()
    (venv.prefix / "bin" / "python").symlink_to(closed / "python3")
    monkeypatch.setenv("PATH", f"{closed}:/usr/bin:/bin")
    (venv.site_packages / "beta.py").chmod(0)
    (venv.site_packages / "alpha").chmod(0)
    folder = venv.prefix
    while folder != Path("/tmp"):
        folder.chmod(0o755 if folder != venv.site_packages / "alpha" else 0)
        folder = folder.parent
    require(Path("/usr/bin/python3").exists(), "another user can run no interpreter of root")
    become = f"{require_program('setpriv')} --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent"
    wrapper = venv.prefix.parent / "as-nobody"
    wrapper.write_text(f'#!/bin/sh\nexec {become} /usr/bin/python3 "$@"\n')
    wrapper.chmod(0o755)
    inventory = probe(str(venv.prefix), interpreter=str(wrapper), use_cache=False)
    said = problems(inventory)
    assert "beta.py: cannot be read: Permission denied" in said
    assert "alpha: folder cannot be listed: Permission denied" in said
    environment = environment_of(inventory)
    assert dist(environment, "beta").unchecked == (f"{SITE}/beta.py",)
    assert dist(environment, "alpha").missing == ()
    assert f"{closed}/python3, which this user may not reach" in said
    assert "nvidia-smi" not in said, "a folder of the PATH that is closed is no program that fails"


def test_special_files_are_left_out(venv: Venv) -> None:
    os.mkfifo(venv.site_packages / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(venv.site_packages / "s"))
        inventory = probe(str(venv.prefix))
    assert problems(inventory).count("neither file, folder nor link") == 2


def test_truncated_library(venv: Venv, tmp_path: Path) -> None:
    library = Compiler(tmp_path / "objects").library("int f(void) { return 1; }", Link(soname="libx.so")).data
    Wheel("cut", "1", {"cut/libx.so": truncated(library, 0.5), "cut/liby.so": library}).unpack(venv.site_packages)
    for _ in range(2):  # the second time it comes from the cache
        inventory = probe(str(venv.prefix))
        natives = {native.path: native for native in environment_of(inventory).native}
        assert natives[f"{SITE}/cut/libx.so"].partial
        assert "damaged ELF file: truncated" in problems(inventory)
        assert natives[f"{SITE}/cut/liby.so"].exports == ("f",)
        assert natives[f"{SITE}/cut/liby.so"].owners == ("cut",)


def test_pth_lines_are_read_and_never_run(venv: Venv, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (venv.site_packages / "paths.pth").write_text(f"{tmp_path}/src\nalpha\n# comment\n../../../../src\n")
    marker = tmp_path / "ran"
    (venv.site_packages / "code.pth").write_text(f"import pathlib; pathlib.Path({str(marker)!r}).touch()\n")
    (venv.site_packages / "__editable__.pth").write_text("import __editable___pkg_finder; x.install()\n")
    finder = f"MAPPING: dict[str, str] = {{'pkg': {str(tmp_path / 'src' / 'pkg')!r}}}\nNAMESPACES = {{}}\n"
    (venv.site_packages / "__editable___pkg_finder.py").write_text(finder)
    environment = environment_of(probe(str(venv.prefix)))
    files = {pth.path.rsplit("/", 1)[-1]: pth for pth in environment.pth_files}
    assert files["paths.pth"].outside_paths == (f"{tmp_path}/src",)
    assert files["code.pth"].executes
    assert files["__editable__.pth"].outside_paths == (f"{tmp_path}/src/pkg",)
    assert not marker.exists()


def test_scripts_and_their_interpreters(venv: Venv) -> None:
    scripts = {
        "here": f"#!{venv.prefix}/bin/python\n",
        "gone": "#!/old/place/bin/python3 -E\n",
        "wrapped": f"#!/bin/sh\n'''exec' \"{venv.prefix}/bin/python\" \"$0\" \"$@\"\n' '''\n",
    }
    for name, text in scripts.items():
        (venv.prefix / "bin" / name).write_text(text)
    found = {script.path: script for script in environment_of(probe(str(venv.prefix))).scripts}
    assert (found["bin/here"].interpreter_exists, found["bin/here"].is_inside) == (True, True)
    assert (found["bin/gone"].interpreter_exists, found["bin/gone"].is_inside) == (False, False)
    assert found["bin/wrapped"].shebang == f"{venv.prefix}/bin/python"
    assert (found["bin/python"].kind, found["bin/python"].is_inside) == ("link", False)


def test_hard_links_between_environments_are_seen(tmp_path: Path) -> None:
    one = quick_venv(tmp_path / "one", this_python(), [Wheel("a", "1", {"a.py": "x = 1\n"})])
    two = quick_venv(tmp_path / "two", this_python())
    os.link(one.site_packages / "a.py", two.site_packages / "a.py")
    files = [
        next(file for file in environment_of(probe(str(venv.prefix))).files if file.path.endswith("/a.py"))
        for venv in (one, two)
    ]
    assert [file.num_links for file in files] == [2, 2]
    assert files[0].inode == files[1].inode


def test_linked_into_an_installers_cache(venv: Venv, tmp_path: Path) -> None:
    """`uv --link-mode symlink`: the content behind the link is what RECORD speaks of."""
    cached = tmp_path / "uv-cache-beta.py"
    shutil.move(venv.site_packages / "beta.py", cached)
    (venv.site_packages / "beta.py").symlink_to(cached)
    assert dist(environment_of(probe(str(venv.prefix))), "beta").modified == ()
    cached.write_text("y = 3\n")
    assert len(dist(environment_of(probe(str(venv.prefix))), "beta").modified) == 1


def test_path_that_is_no_environment(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"^this machine: .*/none: no such file or directory$"):
        probe(str(tmp_path / "none"))
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match=r"is a file; expected an environment's folder$"):
        probe(str(tmp_path / "file"))
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(HostError, match=r"loop: too many levels of symbolic links$"):
        probe(str(tmp_path / "loop"))
