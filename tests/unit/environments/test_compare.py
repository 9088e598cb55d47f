"""Same, other version, other build, patched, only on one side; host facts; unified diffs."""

import msgspec
from inventories import SITE, Recipe, dist, entry, gpu, inventory, with_gpus

from treegraft import records
from treegraft.environments.compare import DistDifference, EnvironmentDiff, compare, wanted_texts, with_texts
from treegraft.environments.inventory import ChangedFile, Inventory

X, NEW = f"{SITE}/a/x.py", f"{SITE}/a/fresh/__init__.py"


def end(
    version: str = "1.0", digest: str = "1", *, is_edited: bool = False, added: bool = False, name: str = "a"
) -> Inventory:
    changed = (ChangedFile(path=X, recorded="sha256=1", found="sha256=2"),) if is_edited else ()
    files = [entry(X, (name,), sha256=digest * 64)]
    files += [entry(NEW, sha256="9" * 64)] if added else []
    return inventory(Recipe([dist(name, version, modified=changed, top_level=("a",))], files=files))


def one(left: Inventory, right: Inventory) -> DistDifference:
    (found,) = compare(left, right).dists
    return found


def test_relations() -> None:
    assert one(end(), end()).relation == "same"
    assert one(end("1.0"), end("1.1")).relation == "other-version"
    assert one(end("1.0+cu130"), end("1.0+cu128")).relation == "other-build"
    assert one(end(digest="1"), end(digest="2")).relation == "other-build"
    assert one(end(), end(digest="2", is_edited=True)).relation == "patched"
    assert {d.relation for d in compare(end(), end(name="b")).dists} == {"only-left", "only-right"}


def test_patched_lists_files_and_new_modules() -> None:
    found = one(end(), end(digest="2", is_edited=True, added=True))
    assert found.altered == ("right",)
    assert found.modified == ("a/x.py",)
    assert found.added == ("a/fresh/__init__.py",)
    assert found.added_modules == ("a.fresh",)
    back = one(end(digest="2", is_edited=True, added=True), end())
    assert (back.altered, back.removed) == (("left",), ("a/fresh/__init__.py",))


def test_who_lists_a_file_is_no_difference() -> None:
    listed = inventory(Recipe([dist("a")], files=[entry(X, ("a",))]))
    unlisted = inventory(Recipe([dist("a")], files=[entry(X)]))
    assert one(listed, unlisted).relation == "same"


def test_unified_diffs_of_patched_files_only() -> None:
    right = end(digest="2", is_edited=True, added=True)
    diff = compare(end(), right)
    assert right.environment is not None
    assert wanted_texts(diff, "right", right.environment) == (X, NEW)
    assert wanted_texts(diff, "left", right.environment) == (X,)
    full = with_texts(diff, {"a/x.py": "one\ntwo\n"}, {"a/x.py": "one\n2\n", "a/fresh/__init__.py": "new\n"})
    diffs = full.dists[0].diffs
    assert "-two\n+2" in diffs["a/x.py"]
    assert "+new" in diffs["a/fresh/__init__.py"]
    other = with_texts(compare(end(digest="1"), end(digest="2")), {"a/x.py": "1"}, {"a/x.py": "2"})
    assert other.dists[0].diffs == {}


def test_host_and_environment_facts() -> None:
    left, right = (
        with_gpus(end(), gpu("8.6"), gpu("8.6", 1)),
        with_gpus(end(), gpu("12.0"), driver="570.1", cuda="12.8"),
    )
    facts = {f.fact: (f.left, f.right) for f in compare(left, right).host}
    assert facts["gpus"] == ("2 x synthetic sm_86 (ok)", "1 x synthetic sm_120 (ok)")
    assert facts["driver"] == ("580.95.05", "570.1")
    assert compare(left, left).host == compare(left, left).environment == ()
    host_only = msgspec.structs.replace(left, environment=None)
    assert compare(host_only, right).dists == ()


def test_the_document_round_trips() -> None:
    diff = compare(end(), end(digest="2", is_edited=True))
    assert records.from_json(EnvironmentDiff, records.to_json(diff)) == diff
