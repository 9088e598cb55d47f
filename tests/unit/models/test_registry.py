"""Names to files, hub ids against a loopback hub, and drafters that do not fit their target."""

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from tiny_models import TinyShape, write_drafter, write_target

from treegraft.errors import (
    CheckpointError,
    DownloadError,
    DrafterError,
    ModelError,
    UnsupportedModelError,
    UsageError,
)
from treegraft.models import registry
from treegraft.models.registry import ModelFiles, load_drafter, load_target, resolve, resolve_drafter

SHAPE = TinyShape(num_layers=3)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREEGRAFT_CACHE_DIR", str(tmp_path / "cache"))


def test_an_embedded_model_that_was_not_pulled_says_how() -> None:
    with pytest.raises(ModelError, match="treegraft pull smollm2-135m"):
        resolve("smollm2-135m")


def test_folders_files_and_what_is_neither(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "model", SHAPE)
    assert resolve(str(folder)) == ModelFiles("folder", folder, str(folder))
    gguf_folder = tmp_path / "gguf"
    gguf_folder.mkdir()
    (gguf_folder / "a.gguf").write_bytes(b"GGUF")
    assert resolve(str(gguf_folder / "a.gguf")).kind == "gguf"
    assert resolve(str(gguf_folder)).path == gguf_folder / "a.gguf"
    (gguf_folder / "b.gguf").write_bytes(b"GGUF")
    with pytest.raises(UsageError, match="2 GGUF files"):
        resolve(str(gguf_folder))
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match="pickle"):
        resolve(str(tmp_path / "model.bin"))
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(CheckpointError, match="expected a model folder"):
        resolve(str(tmp_path / "notes.txt"))
    for name in ("no-such-model", "./org/name", "org/name/more", ""):
        with pytest.raises(UsageError):
            resolve(name or "no such")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_layers": 4}, "num_target_layers 4 for the target's layers 3"),
        ({"hidden_size": 16}, "hidden_size 16 for the target's hidden_size 32"),
        ({"vocab_size": 30}, "vocab_size 30 for the target's vocab_size 24"),
    ],
)
def test_a_drafter_of_another_target_is_refused_by_what_differs(
    tmp_path: Path, change: dict[str, int], words: str
) -> None:
    target = load_target(resolve(str(write_target(tmp_path / "target", SHAPE))), torch.float32, "cpu")
    folder = write_drafter(tmp_path / "drafter", replace(SHAPE, **change))  # type: ignore[arg-type]
    with pytest.raises(DrafterError, match=words):
        load_drafter(resolve(str(folder)), target, torch.float32, "cpu")


def test_a_target_given_as_drafter_and_the_other_way_round(tmp_path: Path) -> None:
    target_folder = write_target(tmp_path / "target", SHAPE)
    drafter_folder = write_drafter(tmp_path / "drafter", SHAPE)
    target = load_target(resolve(str(target_folder)), torch.float32, "cpu")
    with pytest.raises(DrafterError, match="LlamaForCausalLM"):
        load_drafter(resolve(str(target_folder)), target, torch.float32, "cpu")
    with pytest.raises(UnsupportedModelError, match="--drafter"):
        load_target(resolve(str(drafter_folder)), torch.float32, "cpu")


def test_a_conditional_head_comes_with_its_drafter(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    target = load_target(resolve(str(write_target(tmp_path / "target", SHAPE))), torch.float32, "cpu")
    folder = write_drafter(tmp_path / "drafter", SHAPE)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "treegraft_head": {"kind": "pairwise", "width": 6}}))
    files = resolve(str(folder))
    with pytest.raises(CheckpointError, match=r"missing tensor\(s\) head\.hidden\.weight"):
        load_drafter(files, target, torch.float32, "cpu")
    tensors = load_file(folder / "model.safetensors")
    tensors |= {f"head.{name}.weight": torch.randn(12, 32) for name in ("hidden", "parent")}
    save_file({**tensors, "head.output.weight": torch.randn(32, 6)}, folder / "model.safetensors")
    drafter = load_drafter(files, target, torch.float32, "cpu")
    assert drafter.head is not None
    scores = drafter.head.pair_scores(torch.randn(2, 4, 32), torch.randint(24, (2, 4, 3)))
    assert scores.shape == (2, 3, 3, 3)


def test_auto_finds_the_packaged_drafter_of_an_embedded_model_only(tmp_path: Path) -> None:
    embedded = ModelFiles("gguf", tmp_path / "any.gguf", "smollm2-135m")
    found = resolve_drafter("auto", embedded)
    assert found is not None
    assert (found.path / "model.safetensors").is_file()
    folder = resolve(str(write_target(tmp_path / "target", SHAPE)))
    assert resolve_drafter("auto", folder) is None
    assert resolve_drafter(None, embedded) is None
    (tmp_path / "d.gguf").write_bytes(b"GGUF")
    with pytest.raises(DrafterError, match="GGUF"):
        resolve_drafter(str(tmp_path / "d.gguf"), folder)


class Hub(ThreadingHTTPServer):
    """A hub of one repository, org/tiny, whose files lie in `folder`; remembers the paths it was asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.folder, self.asked = folder, []

    asked: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class HubHandler(BaseHTTPRequestHandler):
    server: Hub
    sha = "0123456789abcdef0123456789abcdef01234567"

    def log_message(self, *_args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, with_body: bool) -> None:
        path = self.path.split("?")[0]
        self.server.asked.append(path)
        files = sorted(p.name for p in self.server.folder.iterdir())
        if path.startswith("/api/models/org/tiny/tree/"):
            entries = [{"type": "file", "path": n, "size": self.size(n), "oid": self.etag(n)} for n in files]
            self.send(json.dumps(entries).encode(), with_body)
        elif path.startswith("/api/models/org/tiny"):
            document = {"id": "org/tiny", "sha": self.sha, "siblings": [{"rfilename": n} for n in files]}
            self.send(json.dumps(document).encode(), with_body)
        elif path.startswith("/org/tiny/resolve/") and path.rsplit("/", 1)[-1] in files:
            name = path.rsplit("/", 1)[-1]
            self.send((self.server.folder / name).read_bytes(), with_body, self.etag(name))
        else:
            self.send(b"{}", with_body, status=404, error="RepoNotFound")

    def size(self, name: str) -> int:
        return (self.server.folder / name).stat().st_size

    def etag(self, name: str) -> str:
        return hashlib.sha1((self.server.folder / name).read_bytes()).hexdigest()

    def send(
        self, body: bytes, with_body: bool, etag: str | None = None, status: int = 200, error: str | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", self.sha)
        if etag is not None:
            self.send_header("ETag", f'"{etag}"')
        if error is not None:
            self.send_header("X-Error-Code", error)
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants

    folder = write_target(tmp_path / "served", SHAPE)
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "modeling_tiny.py").write_text("raise SystemExit")
    server = Hub(folder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    # The library reads HF_HUB_CACHE when it is imported, which an earlier test may have done.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_hub_id_is_fetched_without_pickles_and_code(hub: Hub) -> None:
    files = resolve("org/tiny")
    assert files.name == "org/tiny"
    assert {p.name for p in files.path.iterdir()} == {"config.json", "model.safetensors"}
    assert not [path for path in hub.asked if path.endswith((".bin", ".py"))]
    assert load_target(files, torch.float32, "cpu").config.num_layers == 3


def test_a_hub_id_that_is_not_there_is_one_line(hub: Hub) -> None:
    with pytest.raises(DownloadError, match="'org/other' is no local folder and not on the hub") as caught:
        resolve("org/other")
    assert "\n" not in str(caught.value)
    assert hub.asked


def test_a_hub_that_does_not_answer_is_one_line_and_a_cached_model_is_served(hub: Hub) -> None:
    cached = resolve("org/tiny").path
    hub.shutdown()
    hub.server_close()
    assert resolve("org/tiny").path == cached
    with pytest.raises(DownloadError, match="'org/other' cannot be fetched") as caught:
        resolve("org/other")
    assert "\n" not in str(caught.value)


def test_hub_ids_are_told_from_paths() -> None:
    good = ("org/name", "Qwen/Qwen3-0.6B", "a/b_c.d")
    bad = ("name", "/abs/path", "./a/b", "../b", "a/b/c", "a/", "org/na me", "a//b", "-a/b")
    assert all(registry.HUB_ID.fullmatch(name) for name in good)
    assert not any(registry.HUB_ID.fullmatch(name) for name in bad)
