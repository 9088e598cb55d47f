"""A diff of environments as one HTML page: no script, no font, no image, no other resource. Knows no inventory."""

from string import Template

from treegraft.environments.compare import DistDifference, EnvironmentDiff, FactDifference
from treegraft.environments.escape import html as h
from treegraft.environments.reports.diff_text import WORDS

PAGE = Template(
    """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; width: 100%; margin: 0.5em 0 1.5em }
th, td { text-align: left; padding: 0.25em 0.75em; border-bottom: 1px solid #ddd; vertical-align: top }
td { overflow-wrap: anywhere }
pre { background: #f6f6f6; padding: 0.75em; overflow-x: auto }
.add { color: #116329 } .del { color: #a40e26 } .at { color: #6639ba }
.patched { background: #fff4d6 } .other-version { background: #e9f2ff } .other-build { background: #f3ecff }
.partial { color: #a40e26 }
</style></head><body>
<h1>Environment diff</h1>
<table><tr><th>left</th><td>$left</td></tr><tr><th>right</th><td>$right</td></tr></table>
$partial
<h2>Host</h2>
$host
<h2>Environment</h2>
$environment
<h2>Distributions</h2>
<table><tr><th>name</th><th>left</th><th>right</th><th>relation</th></tr>
$dists
</table>
$patches
</body></html>
"""
)


def diff_html(diff: EnvironmentDiff) -> str:
    return PAGE.substitute(
        title=h(f"{diff.left} | {diff.right}"),
        left=h(diff.left),
        right=h(diff.right),
        partial='<p class="partial">Partial: something could not be read on one side.</p>' if diff.partial else "",
        host=_facts(diff.host),
        environment=_facts(diff.environment),
        dists="\n".join(_row(d) for d in sorted(diff.dists, key=lambda d: (d.relation == "same", d.name))),
        patches="\n".join(_patch(d) for d in diff.dists if d.relation == "patched"),
    )


def _facts(facts: tuple[FactDifference, ...]) -> str:
    if not facts:
        return "<p>No difference.</p>"
    rows = "\n".join(
        f"<tr><th>{h(f.fact)}</th><td>{h(f.left) or '–'}</td><td>{h(f.right) or '–'}</td></tr>" for f in facts
    )
    return f"<table><tr><th>fact</th><th>left</th><th>right</th></tr>\n{rows}\n</table>"


def _row(dist: DistDifference) -> str:
    word = WORDS[dist.relation] + (f" (altered: {', '.join(dist.altered)})" if dist.altered else "")
    cells = "".join(f"<td>{h(v)}</td>" for v in (dist.name, dist.left or "–", dist.right or "–", word))
    return f'<tr class="{dist.relation}">{cells}</tr>'


def _patch(dist: DistDifference) -> str:
    parts = [f"<h3>{h(dist.name)}: patched</h3>"]
    lists = (("new modules", dist.added_modules), ("changed", dist.modified), ("only left", dist.removed))
    for title, names in lists:
        if names:
            items = "".join(f"<li>{h(n)}</li>" for n in names)
            parts.append(f"<p>{title}</p><ul>{items}</ul>")
    for path, text in dist.diffs.items():
        lines = "\n".join(_line(line) for line in text.splitlines())
        parts.append(f"<details><summary>{h(path)}</summary><pre>{lines}</pre></details>")
    return "\n".join(parts)


def _line(line: str) -> str:
    kind = {"+": "add", "-": "del", "@": "at"}.get(line[:1])
    return f'<span class="{kind}">{h(line)}</span>' if kind else h(line)
