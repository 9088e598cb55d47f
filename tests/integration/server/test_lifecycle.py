"""Clients that leave, engines that die, signals, ports, models that cannot be served."""

import json
import os
import signal
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from server_runs import PATIENCE_SECONDS, command, environment, is_gone, wait_until

# Far more than any test waits for: whoever sees it end has seen it ended.
ENDLESS = {"model": "chat", "prompt": "abc", "max_tokens": 8000, "ignore_eos": True, "temperature": 1, "n": 8}


def is_idle(server):
    health = server.health()
    return health["running"] == health["waiting"] == 0


def events_of(response):
    """The data of all events until the stream ends."""
    return [line.removeprefix("data: ") for line in response.iter_lines() if line]


@pytest.mark.parametrize("num_events", [0, 1, 20])
def test_leaving_a_stream_frees_the_engine(server, http, num_events):
    free = server.health()["free_slots"]
    with http.stream("POST", "/v1/completions", json=ENDLESS | {"stream": True}) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        for _ in range(2 * num_events):
            next(lines)
        assert wait_until(lambda: not is_idle(server))
    assert wait_until(lambda: is_idle(server))
    assert server.health()["free_slots"] == free


def test_leaving_before_the_answer_frees_the_engine(server):
    free = server.health()["free_slots"]
    body = json.dumps(ENDLESS).encode()
    port = int(server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        assert wait_until(lambda: not is_idle(server))
    assert wait_until(lambda: is_idle(server))
    assert server.health()["free_slots"] == free


def test_others_are_answered_while_long_requests_run(server, http, client):
    with http.stream("POST", "/v1/completions", json=ENDLESS | {"stream": True}):
        assert client.completions.create(model="chat", prompt="b", max_tokens=4).usage.completion_tokens == 4
        assert not is_idle(server)
    assert wait_until(lambda: is_idle(server))


def test_without_a_template_and_an_interrupt_while_idle(start_server):
    server = start_server("text")
    with server.http() as http:
        chat = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "a"}]})
        assert chat.status_code == 400
        assert "model text has no chat template" in chat.json()["error"]["message"]
        assert len(http.post("/v1/completions", json={"prompt": "a"}).json()["choices"][0]["text"]) == 16
    server.process.send_signal(signal.SIGINT)
    assert_stopped_cleanly(server)


def test_without_a_tokenizer_and_the_death_of_the_server(start_server):
    server = start_server("ids")
    with server.http() as http:
        refused = http.post("/v1/completions", json={"prompt": "a"})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "prompt"
        body = {"prompt": [[1, 2], [3]], "max_tokens": 5, "seed": 1}
        whole = http.post("/v1/completions", json=body).json()
        ids = whole["treegraft"]["token_ids"]
        assert [len(each) for each in ids] == [5, 5]
        assert [choice["text"] for choice in whole["choices"]] == ["", ""]
        streamed = [[], []]
        with http.stream("POST", "/v1/completions", json=body | {"stream": True}) as response:
            *events, last, done = events_of(response)
        assert done == "[DONE]"
        for event in map(json.loads, [*events, last]):
            [choice] = event["choices"]
            streamed[choice["index"]] += choice.get("token_ids", [])
        assert streamed == ids
        assert json.loads(last)["treegraft"]["token_ids"] == ids
        endless = ENDLESS | {"model": "ids", "prompt": [1], "stream": True}
        with http.stream("POST", "/v1/completions", json=endless) as response:
            assert response.status_code == 200
            server.process.kill()
            server.wait()
    assert wait_until(lambda: is_gone(server.engine_process_id))
    assert "Traceback" not in server.log.read_text()


def assert_stopped_cleanly(server):
    assert server.wait() == 0
    assert is_gone(server.engine_process_id)
    assert "Traceback" not in server.log.read_text()


def test_an_engine_that_is_killed_ends_requests_and_server(start_server):
    server = start_server("chat")
    whole = {}

    def ask():
        whole["response"] = httpx.post(server.url + "/v1/completions", json=ENDLESS, timeout=PATIENCE_SECONDS)

    asking = threading.Thread(target=ask)
    with server.http() as http, http.stream("POST", "/v1/completions", json=ENDLESS | {"stream": True}) as response:
        asking.start()
        assert wait_until(lambda: server.health()["running"] + server.health()["waiting"] == 16)
        os.kill(server.engine_process_id, signal.SIGKILL)
        *_, last = events_of(response)
        assert json.loads(last)["error"]["code"] == "engine_unavailable"
        assert "signal 9" in json.loads(last)["error"]["message"]
        health = httpx.get(server.url + "/health")
        assert health.status_code == 503
        assert health.json()["status"] == "failed"
        later = httpx.post(server.url + "/v1/completions", json=ENDLESS)
        assert (later.status_code, later.json()["error"]["code"]) == (503, "engine_unavailable")
    asking.join()
    assert whole["response"].status_code == 503
    assert server.wait() == 1
    last_line = server.log.read_text().strip().splitlines()[-1]
    assert last_line.startswith("treegraft: error: the engine process")
    assert "Traceback" not in server.log.read_text()


def test_sigterm_gives_running_streams_their_error_and_stops_cleanly(start_server):
    server = start_server("chat")
    with server.http() as http, http.stream("POST", "/v1/completions", json=ENDLESS | {"stream": True}) as response:
        lines = response.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        *_, last = [line for line in lines if line]
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == "the server is stopping"
    assert_stopped_cleanly(server)


def run_serve(*arguments, **variables):
    env = environment() | variables
    return subprocess.run(command(*arguments), capture_output=True, text=True, env=env, timeout=PATIENCE_SECONDS)


def assert_one_line(result, exit_code, *words):
    assert result.returncode == exit_code, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("treegraft: error: ")
    for word in words:
        assert word in last


def test_a_port_in_use(server, models):
    port = server.url.rpartition(":")[2]
    assert_one_line(run_serve(models / "chat", "--port", port), 1, f"port {port}", "in use")


def test_models_that_cannot_be_served(models, tmp_path):
    cases = [
        ((models / "nothing-here",), 2, ("nothing-here",)),
        ((models / "chat", "--drafter", models / "misfit"), 1, ("misfit", "layers 5")),
        (("smollm2-135m",), 1, ("treegraft pull smollm2-135m",)),
    ]
    with ThreadPoolExecutor(len(cases)) as pool:
        runs = [
            pool.submit(run_serve, *arguments, "--port", 0, TREEGRAFT_CACHE_DIR=str(tmp_path))
            for arguments, _, _ in cases
        ]
    for run, (_, exit_code, words) in zip(runs, cases, strict=True):
        assert_one_line(run.result(), exit_code, *words)


def test_while_it_loads_health_and_requests_say_so_and_a_signal_ends_it(models):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    arguments = command(models / "chat", "--drafter", "none", "--port", port)
    process = subprocess.Popen(arguments, env=environment(), stderr=subprocess.PIPE, text=True)

    def is_up():
        try:
            return httpx.get(url + "/health", timeout=PATIENCE_SECONDS).json() == {"status": "starting"}
        except httpx.TransportError:
            return False

    assert wait_until(is_up)
    refused = httpx.post(url + "/v1/completions", json={"prompt": "a"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_unavailable")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, log
    assert "Traceback" not in log
    assert is_gone(children[0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--backend", "sglang"), ("sglang", "not in this version")),
        (("--port", "70000"), ("port is 70000",)),
        (("--budget", "-1"), ("budget is -1",)),
        (("--max-context", "1"), ("max_context is 1",)),
        (("--host", "no.such.host.invalid"), ("no.such.host.invalid",)),
    ],
)
def test_options_that_cannot_be(models, arguments, words):
    assert_one_line(run_serve(models / "chat", *arguments), 2, *words)
