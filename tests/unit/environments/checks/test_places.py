"""venv.*, loader.*, host.*: the prefix on its host."""

from typing import Any

from inventories import PREFIX, SITE, Recipe, dist, entry, extension, inventory, native

from treegraft.environments.compatibility import check
from treegraft.environments.findings import Finding
from treegraft.environments.inventory import ChangedFile, Filesystem, Loader, Port, Script


def of_rule(recipe: Recipe, rule: str) -> list[Finding]:
    return [f for f in check(inventory(recipe)) if f.rule == rule]


def script(shebang: str, exists: bool = True, inside: bool = True) -> Script:
    return Script(
        path="bin/tool", kind="script", shebang=shebang, interpreter_exists=exists, is_inside=inside, owners=("a",)
    )


def filesystem(**facts: Any) -> Filesystem:
    defaults: dict[str, Any] = {
        "how": "test", "path": PREFIX, "mount_point": "/", "type": "ext4", "device": "/dev/sda1",
        "total_bytes": 1 << 40, "free_bytes": 1 << 38, "free_inodes": 1 << 20, "is_noexec": False, "is_readonly": False,
    }  # fmt: skip
    return Filesystem(**{**defaults, **facts})


def test_copied_venv_whose_interpreter_is_gone() -> None:
    gone = Recipe(
        [dist("a")], python={"real_executable": "", "is_runnable": False, "pyvenv": {"home": "/old/bin"}, "native": ()}
    )
    (finding,) = of_rule(gone, "venv.relocation")
    assert finding.level == "block"
    assert "/old/bin" in finding.evidence
    assert of_rule(Recipe([dist("a")]), "venv.relocation") == []
    (stuck,) = of_rule(Recipe([dist("a")], python={"is_runnable": False}), "venv.relocation")
    assert (stuck.level, "does not run" in stuck.evidence) == ("block", True)


def test_shebangs_of_the_old_place() -> None:
    old = Recipe([dist("a")], environment={"scripts": (script("/old/bin/python", False, False),)})
    (finding,) = of_rule(old, "venv.relocation")
    assert (finding.dist, finding.file, finding.level) == ("a", "bin/tool", "warn")
    fine = Recipe(
        [dist("a")],
        environment={"scripts": (script(f"{PREFIX}/bin/python"), script("/usr/bin/env python3", True, False))},
    )
    assert of_rule(fine, "venv.relocation") == []


def test_search_path_into_another_environment() -> None:
    stray = extension("a", runpath=("/other/lib/python3.11/site-packages/b/lib",))
    (finding,) = of_rule(Recipe([dist("a")], [stray]), "venv.relocation")
    assert finding.level == "info"
    own = extension("a", runpath=(f"{PREFIX}/{SITE}/b/lib", "$ORIGIN/lib"))
    assert of_rule(Recipe([dist("a")], [own]), "venv.relocation") == []


def test_hard_links_and_edited_hard_links() -> None:
    path = f"{SITE}/a/x.py"
    linked = entry(path, ("a",), num_links=2)
    (finding,) = of_rule(Recipe([dist("a")], files=[linked]), "venv.hardlink-shared")
    assert finding.level == "info"
    edited = dist("a", modified=(ChangedFile(path=path, recorded="sha256=0", found="sha256=1"),))
    (worse,) = of_rule(Recipe([edited], files=[linked]), "venv.hardlink-shared")
    assert (worse.level, worse.file) == ("warn", path)
    assert of_rule(Recipe([dist("a")], files=[entry(path, ("a",))]), "venv.hardlink-shared") == []


def test_polluted_loader() -> None:
    shipped = native(f"{SITE}/a/lib/libx.so.1", "a", soname="libx.so.1")
    foreign = native("/opt/old/libx.so.1", soname="libx.so.1")
    loader = Loader(how="test", library_path=("/opt/old", "/opt/empty"), preload=("/opt/pre.so",))
    recipe = Recipe(
        [dist("a")],
        [shipped],
        system_libraries=[foreign],
        host={"loader": loader, "variables": {"CONDA_PREFIX": "/conda"}},
    )
    found = of_rule(recipe, "loader.polluted")
    assert sorted(f.level for f in found) == ["info", "warn", "warn", "warn"]
    assert any("libx.so.1, which the environment ships too" in f.evidence for f in found)
    assert of_rule(Recipe([dist("a")], [shipped]), "loader.polluted") == []


def test_one_library_twice() -> None:
    twice = [native(f"{SITE}/{d}/lib/libx.so.1", d, soname="libx.so.1") for d in ("a", "b")]
    different = [entry(f.path, f.owners, sha256=str(n) * 64) for n, f in enumerate(twice)]
    (finding,) = of_rule(Recipe([dist("a"), dist("b")], twice, different), "loader.twice")
    assert finding.level == "warn"
    (same,) = of_rule(Recipe([dist("a"), dist("b")], twice), "loader.twice")
    assert same.level == "info"
    assert of_rule(Recipe([dist("a")], twice[:1]), "loader.twice") == []


def test_two_cuda_majors() -> None:
    majors = [
        native(f"{SITE}/nvidia/{m}/libcudart.so.{m}", f"nvidia-cuda-runtime-cu{m}", soname=f"libcudart.so.{m}")
        for m in (12, 13)
    ]
    dists = [dist(f.owners[0], top_level=()) for f in majors]
    (finding,) = of_rule(Recipe(dists, majors), "loader.twice")
    assert (finding.level, "libcudart.so.12 and libcudart.so.13" in finding.evidence) == ("warn", True)
    assert of_rule(Recipe(dists[:1], majors[:1]), "loader.twice") == []


def test_noexec_and_full_disks() -> None:
    (noexec,) = of_rule(Recipe(host={"filesystems": (filesystem(is_noexec=True),)}), "host.noexec")
    assert noexec.level == "block"
    (full,) = of_rule(Recipe(host={"filesystems": (filesystem(free_bytes=1 << 20),)}), "host.disk")
    assert full.level == "warn"
    assert len(of_rule(Recipe(host={"filesystems": (filesystem(free_inodes=5),)}), "host.disk")) == 1
    for fine in (filesystem(), filesystem(type="btrfs", free_inodes=-1)):
        recipe = Recipe(host={"filesystems": (fine,)})
        assert of_rule(recipe, "host.noexec") == of_rule(recipe, "host.disk") == []


def test_busy_port() -> None:
    busy = Port(port=30000, address="0.0.0.0", pid=7, command="python -m ddtree_service")
    (finding,) = of_rule(Recipe(host={"ports": (busy,)}), "host.port-busy")
    assert "ddtree_service" in finding.evidence
    assert of_rule(Recipe(host={"ports": (Port(port=8080, address="::"),)}), "host.port-busy") == []
