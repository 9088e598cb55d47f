"""Clients that mean harm or are broken: the answer is one error object, others are served, nothing is left behind."""

import json
import os
import signal
import socket
import threading

import httpx
import pytest
from server_runs import PATIENCE_SECONDS, wait_until

COMPLETIONS = "/v1/completions"
ASK = {"prompt": "abcdef", "max_tokens": 20, "temperature": 1.0, "seed": 5}
ENDLESS = ASK | {"max_tokens": 8000, "ignore_eos": True, "n": 64, "stream": True}


def is_idle(server):
    health = server.health()
    return health["running"] == health["waiting"] == 0


def address(server):
    return "127.0.0.1", int(server.url.rpartition(":")[2])


def request_bytes(body):
    data = json.dumps(body).encode()
    return b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(data) + data


def with_deep_field(depth):
    return b'{"prompt": "a", "metadata": ' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize(
    "data",
    [
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "temperature": Infinity}',
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "a", "seed": 1000000000000000000000000000000}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "a", "\\ud800": 1}',
        b'{"prompt": "\xff"}',
        b'\xef\xbb\xbf{"prompt": "a"}',
        '{"prompt": "a"}'.encode("utf-16"),
        with_deep_field(100_000),
        b'{"prompt": "a", "a\\nb": 1}',
        b'{"prompt": "a", "' + b"x" * 100_000 + b'": 1}',
        b'{"prompt": "a", "max_tokens": ' + b"9" * 100_000 + b"}",
        json.dumps({"prompt": "a", "stop": ["x"] * 100_000}).encode(),
        json.dumps({"prompt": "a", "stop": "x" * 100_000}).encode(),
        json.dumps({"prompt": "a", "stop_token_ids": [1] * 100_000}).encode(),
        json.dumps({"prompt": "a", "n": 10**9}).encode(),
        json.dumps({"prompt": "a" * 3_000_000, "n": 128}).encode(),
        json.dumps({"prompt": [[1] * 8000] * 128, "n": 8}).encode(),
    ],
    ids=lambda data: repr(data[:50]),
)
def test_hostile_bodies(http, data):
    response = http.post(COMPLETIONS, content=data)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert "\n" not in error["message"]
    assert len(response.content) < 2000


def test_the_last_of_two_equal_keys_counts(http):
    answer = http.post(COMPLETIONS, content=b'{"prompt": "ab", "max_tokens": 9, "max_tokens": 2}').json()
    assert answer["usage"]["completion_tokens"] == 2


def test_content_types_and_chunked_bodies(http):
    plain = http.post(COMPLETIONS, json=ASK).json()["choices"]
    for kind in ("text/plain", "application/x-www-form-urlencoded", "image/png"):
        answer = http.post(COMPLETIONS, content=json.dumps(ASK), headers={"content-type": kind})
        assert answer.json()["choices"] == plain
    letters = (letter.encode() for letter in json.dumps(ASK))
    assert http.post(COMPLETIONS, content=letters).json()["choices"] == plain


def test_methods_and_paths(http):
    for method, path, status in [
        ("OPTIONS", COMPLETIONS, 405),
        ("PUT", COMPLETIONS, 405),
        ("GET", "/v1/models/%ff", 404),
        ("POST", COMPLETIONS + "/", 404),
        ("GET", "/%00", 404),
    ]:
        response = http.request(method, path)
        assert response.status_code == status
        assert "\n" not in response.json()["error"]["message"]
    assert http.head(COMPLETIONS).status_code == 405
    assert http.head("/health").status_code == 200


def test_a_client_that_never_reads_holds_up_nobody_and_leaves_nothing(server, http):
    free = server.health()["free_slots"]
    with socket.create_connection(address(server)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request_bytes(ENDLESS | {"n": 4}))
        assert wait_until(lambda: server.health()["running"] == 4)
        assert http.post(COMPLETIONS, json=ASK).json()["usage"]["completion_tokens"] == 20
    assert wait_until(lambda: is_idle(server))
    assert server.health()["free_slots"] == free


@pytest.mark.parametrize("cut", [10, 60, -1])
def test_leaving_in_the_middle_of_a_request(server, cut):
    with socket.create_connection(address(server)) as connection:
        connection.sendall(request_bytes(ENDLESS)[:cut])
    assert wait_until(lambda: is_idle(server))


def test_sixty_four_streams_at_once(server, http):
    bodies = [ASK | {"seed": n, "prompt": "abcdefgh"[: 1 + n % 8]} for n in range(64)]
    alone = [http.post(COMPLETIONS, json=body).json()["choices"][0]["text"] for body in bodies[:8]]
    streamed = [""] * 64

    def ask(number):
        body = bodies[number] | {"stream": True, "stream_options": {"include_usage": True}}
        with httpx.stream("POST", server.url + COMPLETIONS, json=body, timeout=PATIENCE_SECONDS) as response:
            *chunks, last = [line.removeprefix("data: ") for line in response.iter_lines() if line]
        assert last == "[DONE]"
        *pieces, usage = map(json.loads, chunks)
        assert usage["usage"]["completion_tokens"] == 20
        assert pieces[-1]["choices"][0]["finish_reason"] == "length"
        streamed[number] = "".join(piece["choices"][0]["text"] for piece in pieces)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert streamed[:8] == alone
    assert all(len(text) == 20 for text in streamed)


def test_every_stop_string_streamed_is_the_whole_answer(http):
    """The stream holds back what may become a stop string, and gives it out when it does not."""
    full = http.post(COMPLETIONS, json=ASK).json()["choices"][0]["text"]
    for start in range(0, 18, 3):
        for stop in (full[start : start + 2], full[start : start + 2] + "?", full[start:] + "?"):
            body = ASK | {"stop": [stop, "never"]}
            whole = http.post(COMPLETIONS, json=body).json()
            lines = http.post(COMPLETIONS, json=body | {"stream": True}).text.split("\n\n")
            chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
            assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]
            assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
            assert chunks[-1]["treegraft"] == whole["treegraft"] | {
                "cached_tokens": chunks[-1]["treegraft"]["cached_tokens"]
            }


def test_a_stopped_engine_process_keeps_health_and_a_signal_ends_both(start_server):
    """An engine that hangs: /health still answers, and SIGTERM ends the server in bounded time."""
    server = start_server("chat")
    os.kill(server.engine_process_id, signal.SIGSTOP)
    assert server.health()["status"] == "ok"
    with socket.create_connection(address(server)) as connection:
        connection.sendall(request_bytes(ASK))
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 0
        assert b"503" in connection.recv(100)
    assert "Traceback" not in server.log.read_text()
