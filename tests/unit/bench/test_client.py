"""The HTTP arm against a real socket that speaks OpenAI's stream, well and badly."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from treegraft.bench.alternate import Arm
from treegraft.bench.client import ServerSampling, events, server_arm
from treegraft.bench.workloads import load_prompts
from treegraft.errors import ServerError, UsageError

PROMPT = load_prompts("report", limit=1)[0]
SAMPLING = ServerSampling(max_tokens=8, temperature=0.0, seed=1)


def chunk(text: str, finish: str | None = None, **more: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], **more}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}}
EXTRAS = {**USAGE, "treegraft": {"accept_lengths": [[3, 1]]}}
GOOD = [chunk("Hel"), chunk("lo"), chunk("", "stop"), EXTRAS]


@contextmanager
def serving(chunks: list[dict[str, object]], status: int = 200) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """A server that streams these chunks to every question; its URL and the bodies it was sent."""
    bodies: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(200, json.dumps({"data": [{"id": "tiny"}]}).encode())

        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            lines = [b": keep-alive\n\n", *(f"data: {json.dumps(c)}\n\n".encode() for c in chunks), b"data: [DONE]\n\n"]
            self.answer(status, b"".join(lines) if status == 200 else b'{"error": {"message": "too long"}}')

        def answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def arm_of(url: str, sampling: ServerSampling = SAMPLING, concurrency: int = 1) -> Arm:
    return server_arm("ours", url, sampling, concurrency)


def test_tokens_come_from_usage_not_from_chunks() -> None:
    with serving(GOOD) as (url, _):
        answer = arm_of(url).ask([PROMPT])[0]
    assert (answer.completion_tokens, answer.prompt_tokens, answer.finish_reason) == (5, 7, "stop")
    assert answer.accept_lengths == (3, 1)
    assert 0 < answer.first_token_seconds <= answer.seconds


def test_foreign_servers_say_nothing_of_passes() -> None:
    with serving([chunk("Hi", "length"), USAGE]) as (url, _):
        answer = arm_of(url).ask([PROMPT])[0]
    assert (answer.accept_lengths, answer.cached_tokens, answer.finish_reason) == ((), 0, "length")


def test_what_is_asked() -> None:
    with serving(GOOD) as (url, bodies):
        arm_of(url + "/v1").ask([PROMPT])
        arm_of(url, ServerSampling(8, 0.7, 3)).ask([PROMPT])
    assert bodies[0]["model"] == "tiny"
    assert bodies[0]["messages"] == [{"role": "user", "content": PROMPT.text}]
    assert bodies[0]["stream_options"] == {"include_usage": True}
    assert "seed" not in bodies[0]
    assert (bodies[1]["seed"], bodies[1]["temperature"]) == (3, 0.7)


def test_several_at_a_time_keep_their_order() -> None:
    prompts = load_prompts("report", limit=2)
    with serving(GOOD) as (url, bodies):
        answers = arm_of(url, concurrency=4).ask(prompts)
    assert [answer.prompt_id for answer in answers] == [prompt.id for prompt in prompts]
    assert len(bodies) == len(prompts)


def test_equal_texts_have_equal_hashes_and_loops_are_seen() -> None:
    with serving(GOOD) as (url, _), serving([chunk("Hello", "stop"), USAGE]) as (other, _):
        assert arm_of(url).ask([PROMPT])[0].content_hash == arm_of(other).ask([PROMPT])[0].content_hash
    with serving([chunk("and then " * 60, "length"), USAGE]) as (url, _):
        assert arm_of(url).ask([PROMPT])[0].is_loop


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([chunk("Hi"), USAGE], "without finish_reason"),
        ([chunk("Hi", "stop")], "without usage"),
        ([{"error": {"message": "out of memory"}}], "out of memory"),
    ],
)
def test_streams_that_cannot_be_measured(chunks: list[dict[str, object]], words: str) -> None:
    with serving(chunks) as (url, _), pytest.raises(ServerError, match=words):
        arm_of(url).ask([PROMPT])


def test_http_errors_nobody_there_and_no_url() -> None:
    with serving(GOOD, status=400) as (url, _):
        arm = arm_of(url)
        with pytest.raises(ServerError, match=r"HTTP 400: .*too long"):
            arm.ask([PROMPT])
    with pytest.raises(ServerError, match="is the server up"):
        arm_of(url)
    with pytest.raises(UsageError, match="server URL is"):
        arm_of("ftp://x")


@pytest.mark.parametrize(
    ("lines", "payloads"),
    [
        ([b"data: a\n", b"\n", b"data: b\r\n", b"data: [DONE]\n", b"data: c\n"], [b"a", b"b"]),
        ([b": note\n", b"event: x\n", b"data:a\n"], [b"a"]),
    ],
)
def test_event_lines(lines: list[bytes], payloads: list[bytes]) -> None:
    assert list(events(iter(lines))) == payloads
