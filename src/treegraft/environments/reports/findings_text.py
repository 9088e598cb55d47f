"""Findings as lines. Knows no rule."""

from collections import Counter
from collections.abc import Sequence

from treegraft.environments.escape import terminal as t
from treegraft.environments.findings import LEVELS, Finding


def findings_text(findings: Sequence[Finding]) -> str:
    """One paragraph a finding, blocks first, and a count."""
    lines = []
    for finding in findings:
        where = " ".join(t(w) for w in (finding.dist, finding.file) if w)
        lines.append(f"{finding.level.upper():5} {finding.rule}  {where}".rstrip())
        lines.append(f"      {t(finding.evidence)}")
        lines.append(f"      -> {t(finding.remedy)}")
    counts = Counter(f.level for f in findings)
    total = ", ".join(f"{counts[level]} {level}" for level in LEVELS if counts[level])
    return "\n".join([*lines, total or "no findings"])
