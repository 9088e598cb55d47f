"""A diff of environments as text. Knows no inventory."""

from collections import Counter

from treegraft.environments.compare import DistDifference, EnvironmentDiff, FactDifference
from treegraft.environments.escape import terminal as t

WORDS = {
    "same": "same",
    "other-version": "other version",
    "other-build": "same version, other build",
    "patched": "patched",
    "only-left": "only left",
    "only-right": "only right",
}
MAX_FILES = 20


def diff_text(diff: EnvironmentDiff) -> str:
    lines = [f"left   {t(diff.left)}", f"right  {t(diff.right)}"]
    if diff.partial:
        lines.append("PARTIAL: something could not be read on one side (treegraft env probe says what)")
    for title, facts in (("host", diff.host), ("environment", diff.environment)):
        lines += ["", f"{title}:", *_facts(facts)]
    counts = Counter(d.relation for d in diff.dists)
    lines += ["", "distributions: " + (", ".join(f"{n} {WORDS[r]}" for r, n in sorted(counts.items())) or "none")]
    for dist in diff.dists:
        if dist.relation != "same":
            lines += _dist(dist)
    return "\n".join(lines)


def _facts(facts: tuple[FactDifference, ...]) -> list[str]:
    width = max((len(f.fact) for f in facts), default=0)
    return [f"  {t(f.fact):{width}}  {t(f.left) or '-'}  |  {t(f.right) or '-'}" for f in facts] or ["  no difference"]


def _dist(dist: DistDifference) -> list[str]:
    lines = [f"  {t(dist.name)}  {t(dist.left or '-')}  |  {t(dist.right or '-')}  {WORDS[dist.relation]}"]
    if dist.altered:
        lines[0] += f" (files differ from RECORD: {', '.join(dist.altered)})"
    if dist.relation == "patched":
        lines += [f"    new module {t(m)}" for m in dist.added_modules]
        for word, paths in (("changed", dist.modified), ("only left", dist.removed), ("only right", dist.added)):
            shown = [p for p in paths if not (word == "only right" and p.endswith(".py"))]
            lines += [f"    {word} {t(p)}" for p in shown[:MAX_FILES]]
            lines += [f"    and {len(shown) - MAX_FILES} more"] if len(shown) > MAX_FILES else []
        for text in dist.diffs.values():
            lines += [f"    {t(line)}" for line in text.splitlines()]
    elif dist.relation == "other-build":
        num_files = len(dist.modified) + len(dist.added) + len(dist.removed)
        lines.append(f"    {num_files} files differ")
    return lines
