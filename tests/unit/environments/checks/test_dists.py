"""dist.*: RECORD and metadata faults, each beside its healthy twin."""

from inventories import SITE, Recipe, dist, entry, inventory

from treegraft.environments.compatibility import check
from treegraft.environments.findings import Finding
from treegraft.environments.inventory import ChangedFile, Origin, PthFile

CHANGED = (ChangedFile(path=f"{SITE}/a/x.py", recorded="sha256=0", found="sha256=1"),)


def of_rule(recipe: Recipe, rule: str) -> list[Finding]:
    return [f for f in check(inventory(recipe)) if f.rule == rule]


def test_modified() -> None:
    (finding,) = of_rule(Recipe([dist("a", modified=CHANGED), dist("b")]), "dist.modified")
    assert (finding.dist, finding.file, finding.level) == ("a", f"{SITE}/a/x.py", "warn")


def test_missing_file_that_no_import_reaches_warns() -> None:
    (finding,) = of_rule(Recipe([dist("a", missing=(f"{SITE}/a/table.txt",)), dist("b")]), "dist.missing-file")
    assert (finding.dist, finding.level) == ("a", "warn")


def test_unowned_files_name_the_dist_they_lie_in() -> None:
    path = f"{SITE}/a/srt/new_module.py"
    recipe = Recipe([dist("a")], files=[entry(path)], environment={"unowned": (path,)})
    (finding,) = of_rule(recipe, "dist.unowned")
    assert (finding.dist, finding.file) == ("a", path)
    assert of_rule(Recipe([dist("a")]), "dist.unowned") == []
    stray = f"{SITE}/stray.py"
    (alone,) = of_rule(Recipe(files=[entry(stray)], environment={"unowned": (stray,)}), "dist.unowned")
    assert alone.dist is None


def test_multi_owned() -> None:
    recipe = Recipe(
        [dist("a"), dist("b")], files=[entry(f"{SITE}/shared.py", ("a", "b")), entry(f"{SITE}/o.py", ("a",))]
    )
    found = of_rule(recipe, "dist.multi-owned")
    assert {f.dist for f in found} == {"a", "b"}
    assert all("1 files" in f.evidence and f.level == "info" for f in found)
    changed = (ChangedFile(path=f"{SITE}/shared.py", recorded="sha256=0", found="sha256=1"),)
    recipe.dists = [dist("a", modified=changed), dist("b")]
    assert {f.level for f in of_rule(recipe, "dist.multi-owned")} == {"warn"}


def test_duplicate_metadata() -> None:
    (finding,) = of_rule(Recipe([dist("a", "1.0"), dist("a", "2.0"), dist("b")]), "dist.duplicate-metadata")
    assert finding.dist == "a"
    assert "1.0" in finding.evidence
    assert "2.0" in finding.evidence


def test_editables_and_paths_outside() -> None:
    editable = dist("a", origin=Origin(kind="editable", url="file:///src/a", how="direct_url.json"))
    pth = PthFile(path=f"{SITE}/more.pth", lines=("/elsewhere",), outside_paths=("/elsewhere",), executes=False)
    found = of_rule(Recipe([editable, dist("b")], environment={"pth_files": (pth,)}), "dist.editable-outside")
    assert {(f.dist, f.file) for f in found} == {("a", editable.metadata_path), (None, f"{SITE}/more.pth")}
    assert of_rule(Recipe([dist("b")]), "dist.editable-outside") == []


def test_hostile_record() -> None:
    (finding,) = of_rule(Recipe([dist("a", hostile=("/etc/passwd",)), dist("b")]), "dist.hostile-record")
    assert (finding.dist, "/etc/passwd" in finding.evidence) == ("a", True)


def test_requirements() -> None:
    needs = dist("a", requires=("b>=2", "c; python_version < '3'", "d; extra == 'x'", "absent"))
    found = of_rule(Recipe([needs, dist("b", "1.0")]), "dist.requirement-unmet")
    assert {f.evidence.partition("requires ")[2] for f in found} == {
        "b>=2; b 1.0 is there",
        "absent; it is not installed",
    }
    local = Recipe([dist("a", requires=("torch==2.11.0",)), dist("torch", "2.11.0+cu130")])
    assert of_rule(local, "dist.requirement-unmet") == []
