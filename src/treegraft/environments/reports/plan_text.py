"""A plan as text: a table of what changes, a "why is this here" tree, the findings. Knows no inventory."""

from collections import Counter

from treegraft.environments.escape import terminal as t
from treegraft.environments.plan import Plan, PlannedDist
from treegraft.environments.reports.findings_text import findings_text

MIB = 1 << 20


def plan_text(plan: Plan) -> str:
    request = plan.request
    counts = Counter(d.action for d in plan.dists)
    lines = [
        f"plan {plan.hash[:16]}: {', '.join(map(t, request.take))} from {t(request.source)} to {t(request.target)}"
        + (f" on a copy of {t(request.base)}" if request.base else ""),
        f"Python {t(plan.python)} on {t(plan.platform)}",
        ", ".join(f"{n} {a}" for a, n in sorted(counts.items())),
        f"to move {_size(plan.bytes_to_move)}, already there {_size(plan.bytes_present)}, "
        f"disk needed {_size(plan.disk_needed_bytes)}",
        "",
        *_table([d for d in plan.dists if d.action != "keep"]),
        "",
        "why is this here",
        *why_tree(plan),
        "",
        findings_text(plan.findings),
    ]
    if plan.is_blocked:
        lines.append("BLOCKED: the plan cannot be applied as it is")
    return "\n".join(lines)


def _table(dists: list[PlannedDist]) -> list[str]:
    """One row a dist that is not simply kept, then its reason."""
    rows = [
        (d.action, t(d.name), t(d.replaces or "-"), t(d.version) if d.action != "drop" else "-", _size(d.bytes))
        for d in dists
    ]
    header = ("action", "dist", "from", "to", "size")
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = ["  ".join(f"{cell:{w}}" for cell, w in zip(header, widths, strict=True)).rstrip()]
    for dist, row in zip(dists, rows, strict=True):
        lines.append("  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)).rstrip())
        lines.append(f"    {t(dist.reason)}")
        lines += [f"    . {t(line)}" for line in dist.evidence if line not in dist.reason]
        for word, paths in (("changed", dist.patched_files), ("new", dist.added_files)):
            lines += [f"    {word} {t(path)}" for path in paths]
    return lines


def why_tree(plan: Plan) -> list[str]:
    """Each dist that comes along, below the one that brings it."""
    brought = [d for d in plan.dists if d.because and d.action not in ("keep", "drop")]
    children: dict[str, list[PlannedDist]] = {}
    names = {d.name for d in brought}
    roots = []
    for dist in brought:
        parent = next((n for n in reversed(dist.because[:-1]) if n in names), None)
        if parent is None:
            roots.append(dist)
        else:
            children.setdefault(parent, []).append(dist)
    lines: list[str] = []
    seen: set[str] = set()

    def walk(dist: PlannedDist, depth: int) -> None:
        if dist.name in seen:
            return
        seen.add(dist.name)
        lines.append(f"{'  ' * (depth + 1)}{t(dist.name)} {t(dist.version)} [{dist.action}]: {t(dist.reason)}")
        for child in children.get(dist.name, []):
            walk(child, depth + 1)

    for dist in [*roots, *brought]:  # what hangs on a cycle comes last, as a root
        walk(dist, 0)
    return lines


def _size(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 30):.1f} GiB" if num_bytes >= 1 << 30 else f"{num_bytes / MIB:.1f} MiB"
