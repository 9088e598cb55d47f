"""The HTML that commands write, in a real Chromium: it shows hostile names as text and asks for nothing."""

import html
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from worlds.needs import require_program

from treegraft.environments.compare import DistDifference, EnvironmentDiff, FactDifference
from treegraft.environments.reports.diff_html import diff_html
from treegraft.training.report import write_report

pytestmark = pytest.mark.slow
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
)


@dataclass
class Listener:
    """A port that takes connections and says nothing."""

    port: int
    seen: list[str] = field(default_factory=list)


@pytest.fixture
def listener() -> Iterator[Listener]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = Listener(server.getsockname()[1])

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    found.seen.append(connection.recv(200).decode("latin-1").partition("\r\n")[0])

        threading.Thread(target=accept, daemon=True).start()
        yield found
        server.shutdown(socket.SHUT_RDWR)


def opened(page: Path, profile: Path) -> str:
    """The document as it is after loading."""
    command = [require_program("chromium"), *OPTIONS, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def hostile(listener: Listener) -> str:
    url = f"http://127.0.0.1:{listener.port}"
    return f"<img src='{url}/img' onerror='document.title=1'><script src={url}/js></script>\"><b id=broken>"


def test_a_page_that_does_ask_is_seen(tmp_path: Path, listener: Listener) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<title>0</title>{hostile(listener)}", encoding="utf-8")
    document = opened(page, tmp_path / "profile")
    assert {line.split()[1] for line in listener.seen} == {"/img", "/js"}
    assert "<title>1</title>" in document


def test_the_diff_page(tmp_path: Path, listener: Listener) -> None:
    name = hostile(listener)
    patched = DistDifference(
        name=name,
        relation="patched",
        left=name,
        right="1.0",
        altered=("left",),
        modified=(name,),
        added_modules=(name,),
        diffs={name: f"--- a\n+++ b\n-{name}\n+{name}\n@@ {name}"},
    )
    fact = FactDifference(fact=name, left=name, right=name)
    diff = EnvironmentDiff(left=name, right="b", partial=True, host=(fact,), environment=(fact,), dists=(patched,))
    page = tmp_path / "diff.html"
    page.write_text(diff_html(diff), encoding="utf-8")
    document = opened(page, tmp_path / "profile")
    assert listener.seen == []
    assert html.escape(name, quote=False) in document
    for tag in ("<img", "<script", "<b "):
        assert tag not in document


def test_the_training_report(tmp_path: Path, listener: Listener) -> None:
    metrics = tmp_path / "metrics.jsonl"
    record = {"gradient_norm": 1, "block_tokens_per_s": 5, "loss_marginal": [1, 2], "loss_conditional": [0, 1]}
    record |= {"hits_marginal": [0.5, 0.4], "hits_conditional": [0, 0.5]}
    lines = [json.dumps({"step": n, "seconds": n, "loss": 9 - n, **record}) for n in range(1, 6)]
    metrics.write_text("\n".join(lines), encoding="utf-8")
    name = hostile(listener)
    write_report(metrics, tmp_path / "report.html", name, f"target = {name}")
    document = opened(tmp_path / "report.html", tmp_path / "profile")
    assert listener.seen == []
    assert html.escape(name, quote=False) in document
    assert "<polyline" in document or "<path" in document
    for tag in ("<img", "<script", "<b "):
        assert tag not in document
