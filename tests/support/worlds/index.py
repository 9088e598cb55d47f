"""A package index on loopback: PEP 503 pages over a folder of wheels, and the same folder as find-links.

Knows HTTP and wheel names; does not know what is in the wheels.
"""

import hashlib
import html
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote


class FolderIndex:
    """Serves /simple/, /simple/NAME/ and /files/WHEEL of `folder`. `requests` lists the paths asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[str] = []

    def projects(self) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for wheel in sorted(self.folder.glob("*.whl")):
            found.setdefault(normalised(wheel.name.split("-")[0]), []).append(wheel)
        return found

    def page(self, path: str) -> bytes | None:
        """The body for a path; None for one that does not exist."""
        self.requests.append(path)
        parts = [unquote(part) for part in path.split("?")[0].split("/") if part]
        projects = self.projects()
        if parts == ["simple"]:
            return _links((f"/simple/{name}/", name) for name in projects)
        if len(parts) == 2 and parts[0] == "simple" and parts[1] in projects:
            return _links((f"/files/{w.name}#sha256={_sha256(w)}", w.name) for w in projects[parts[1]])
        if len(parts) == 2 and parts[0] == "files" and re.fullmatch(r"[\w.+!-]+\.whl", parts[1]):
            wheel = self.folder / parts[1]
            return wheel.read_bytes() if wheel.exists() else None
        return None


@contextmanager
def serve(index: FolderIndex, host: str = "127.0.0.1") -> Iterator[str]:
    """URL of the simple index, served by a thread until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(is_head=False)

        def do_HEAD(self) -> None:
            self.answer(is_head=True)

        def answer(self, *, is_head: bool) -> None:
            body = index.page(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "text/html" if "/simple" in self.path else "application/octet-stream")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if not is_head:
                self.wfile.write(body or b"")

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer((host, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}/simple/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _links(rows: Iterator[tuple[str, str]]) -> bytes:
    anchors = "".join(f'<a href="{html.escape(url)}">{html.escape(text)}</a><br>\n' for url, text in rows)
    return f"<!DOCTYPE html><html><body>\n{anchors}</body></html>".encode()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
