"""One HTML file that shows a run: curves and its configuration, with nothing to fetch. Knows no training."""

import html
import json
from pathlib import Path
from typing import Any

from treegraft.errors import TrainingError

REPORT = "report.html"
WIDTH, HEIGHT, MARGIN = 640, 240, 46
COLOURS = ("#2563eb", "#dc2626", "#16a34a", "#9333ea", "#ea580c", "#0891b2")

Curve = tuple[str, list[tuple[float, float]]]


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Records of a metrics file; a last line that was cut short is left out. Raises TrainingError without a file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise TrainingError(f"{path} cannot be read: {error.strerror}") from error
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records


def forget_after(path: Path, step: int) -> None:
    """Drop the records of later steps: a run that goes on from `step` writes them anew. Raises TrainingError when the
    file cannot be written."""
    if not path.is_file():
        return
    kept = [record for record in read_metrics(path) if record["step"] <= step]
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise TrainingError(f"{path} cannot be written: {error.strerror}") from error


def write_report(metrics: Path, output: Path, title: str, configuration: str) -> None:
    """Draw the run's curves into one self-contained file."""
    records = read_metrics(metrics)
    steps = [r for r in records if "loss" in r]
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        f"<title>{html.escape(title)}</title>",
        "<style>body{font:15px system-ui,sans-serif;max-width:720px;margin:2em auto;padding:0 1em;color:#222}"
        "pre{background:#f4f4f5;padding:1em;overflow:auto}svg{width:100%;height:auto}h2{margin-top:1.6em}</style>",
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{len(steps)} measurements, last step {steps[-1]['step'] if steps else 0}.</p>",
    ]
    for heading, curves in _charts(records, steps):
        if any(points for _, points in curves):
            parts += [f"<h2>{html.escape(heading)}</h2>", chart(curves)]
    parts += ["<h2>Configuration</h2>", f"<pre>{html.escape(configuration)}</pre>", "</html>"]
    try:
        output.write_text("\n".join(parts), encoding="utf-8")
    except OSError as error:
        raise TrainingError(f"{output} cannot be written: {error.strerror}") from error


def _charts(records: list[dict[str, Any]], steps: list[dict[str, Any]]) -> list[tuple[str, list[Curve]]]:
    def over_steps(name: str) -> list[tuple[float, float]]:
        return [(r["step"], r[name]) for r in steps]

    def at_depth(name: str, depth: int) -> list[tuple[float, float]]:
        return [(r["step"], r[name][depth - 1]) for r in steps if depth <= len(r[name])]

    depths = [d for d in (1, 2, 4, 7, 15) if steps and d <= len(steps[0]["hits_marginal"])]
    taus = [r for r in records if "tau" in r]
    names = sorted({name for r in taus for name in r["tau"]})
    return [
        ("Loss", [("all learnt rows", over_steps("loss"))]),
        ("Hits of the marginals by depth", [(f"depth {d}", at_depth("hits_marginal", d)) for d in depths]),
        (
            "Hits of the conditional head by depth (true token above)",
            [(f"depth {d}", at_depth("hits_conditional", d)) for d in depths if d > 1],
        ),
        (
            "tau on held-out replies (t1: at T = 1)",
            [(n, [(r["step"], r["tau"][n]) for r in taus if n in r["tau"]]) for n in names],
        ),
        ("Block tokens per second", [("", over_steps("block_tokens_per_s"))]),
        ("Gradient norm", [("", over_steps("gradient_norm"))]),
    ]


def chart(curves: list[Curve]) -> str:
    """An SVG line chart with axes and a legend."""
    points = [p for _, own in curves for p in own]
    x_low, x_high = min(p[0] for p in points), max(p[0] for p in points)
    y_low, y_high = min(p[1] for p in points), max(p[1] for p in points)
    x_span, y_span = (x_high - x_low) or 1, (y_high - y_low) or 1

    def place(point: tuple[float, float]) -> str:
        x = MARGIN + (point[0] - x_low) / x_span * (WIDTH - 2 * MARGIN)
        y = HEIGHT - MARGIN / 2 - (point[1] - y_low) / y_span * (HEIGHT - MARGIN)
        return f"{x:.1f},{y:.1f}"

    lines = [f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img'>"]
    lines.append(f"<rect x='{MARGIN}' y='{MARGIN / 2}' width='{WIDTH - 2 * MARGIN}' height='{HEIGHT - MARGIN}' ")
    lines[-1] += "fill='none' stroke='#d4d4d8'/>"
    labels = (
        (4, HEIGHT - MARGIN / 2, f"{y_low:.3g}"),
        (4, MARGIN / 2 + 10, f"{y_high:.3g}"),
        (MARGIN, HEIGHT - 8, f"{x_low:g}"),
        (WIDTH - MARGIN - 40, HEIGHT - 8, f"{x_high:g}"),
    )
    lines += [f"<text x='{x}' y='{y}' font-size='11'>{text}</text>" for x, y, text in labels]
    for index, (name, own) in enumerate(curves):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(place(p) for p in own)
        lines.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='1.5'/>")
        if len(own) == 1:
            x, y = place(own[0]).split(",")
            lines.append(f"<circle cx='{x}' cy='{y}' r='3' fill='{colour}'/>")
        lines.append(
            f"<text x='{MARGIN + 8}' y='{MARGIN / 2 + 14 * (index + 1)}' font-size='11' fill='{colour}'>"
            f"{html.escape(name)}</text>"
        )
    return "".join(lines) + "</svg>"
