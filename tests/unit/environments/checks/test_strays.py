"""Native files that no import reaches warn, and never block."""

from inventories import SITE, Recipe, dist, inventory, native

from treegraft.environments.compatibility import check


def levels(recipe: Recipe) -> set[tuple[str, str]]:
    return {(f.rule, f.level) for f in check(inventory(recipe)) if f.rule.startswith("abi.")}


def test_plugins_and_programs() -> None:
    newer = {"version_needs": {"libc.so.6": ("GLIBC_2.39",), "libstdc++.so.6": ("GLIBCXX_3.4.40",)}}
    plugin = native(f"{SITE}/a/libplugin.so", "a", **newer)
    assert levels(Recipe([dist("a")], [plugin])) == {("abi.libc", "warn"), ("abi.libstdcxx", "warn")}
    foreign = native(f"{SITE}/a/libarm.so", "a", machine="aarch64")
    assert levels(Recipe([dist("a")], [foreign])) == {("abi.machine", "warn")}
    fine = native(f"{SITE}/a/libplugin.so", "a", version_needs={"libc.so.6": ("GLIBC_2.17",)})
    assert levels(Recipe([dist("a")], [fine])) == set()
