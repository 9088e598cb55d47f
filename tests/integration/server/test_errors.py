"""What is wrong with a request comes back as the OpenAI error object with a 4xx status, and nothing is lost."""

import json

import openai
import pytest

HELLO = {"model": "chat", "messages": [{"role": "user", "content": "abc"}]}
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"

TABLE = [
    # path, body, status, param, code
    (CHAT, HELLO | {"model": "gpt-4"}, 404, "model", "model_not_found"),
    (CHAT, HELLO | {"max_tokens": -1}, 400, "max_tokens", None),
    (CHAT, HELLO | {"max_tokens": 20000}, 400, None, "context_length_exceeded"),
    (CHAT, HELLO | {"temperature": "hot"}, 400, "temperature", "invalid_type"),
    (CHAT, HELLO | {"logprobs": True}, 400, "logprobs", "unsupported_parameter"),
    (CHAT, HELLO | {"presence_penalty": 1}, 400, "presence_penalty", "unsupported_parameter"),
    (CHAT, HELLO | {"no_such_field": 1}, 400, "no_such_field", "unknown_parameter"),
    (CHAT, {"model": "chat"}, 400, "messages", "missing_required_parameter"),
    (CHAT, HELLO | {"messages": [{"role": "user", "content": "ab" * 20000}]}, 400, None, "context_length_exceeded"),
    (COMPLETIONS, {"model": "chat", "prompt": ""}, 400, "prompt", None),
    (COMPLETIONS, {"model": "chat", "prompt": [24]}, 400, None, None),
    (COMPLETIONS, {"model": "chat", "prompt": ["a"] * 1000, "n": 2}, 400, "n", None),
    (COMPLETIONS, {"model": "chat", "prompt": ["a", "b" * 17000], "max_tokens": 9}, 400, None, None),
]


def assert_error(response, status, param=None, code=None):
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert "\n" not in error["message"]
    assert "Traceback" not in response.text
    assert error["type"] == ("invalid_request_error" if status < 500 else "server_error")
    assert error["param"] == param
    if code is not None:
        assert error["code"] == code


@pytest.mark.parametrize(("path", "body", "status", "param", "code"), TABLE)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_requests(http, path, body, status, param, code, stream):
    assert_error(http.post(path, json=body | {"stream": stream}), status, param, code)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"model": "chat", }', b"\xff\xfe", b"[" * 50000])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_malformed_json(http, path, data):
    assert_error(http.post(path, content=data), 400, None, "invalid_json")


def test_paths_and_methods(http):
    assert_error(http.get("/v1/nothing"), 404)
    assert_error(http.get(CHAT), 405)
    assert_error(http.post("/health"), 405)
    assert_error(http.get("/v1/models/other"), 404, "model", "model_not_found")


def test_a_body_that_is_too_large(http):
    body = json.dumps({"model": "chat", "prompt": "a" * (17 * 2**20)})
    assert_error(http.post(COMPLETIONS, content=body), 413, None, "body_too_large")


def test_the_client_raises_its_own_errors(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**HELLO, max_tokens=20000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(**(HELLO | {"model": "other"}))
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**HELLO, tools=[{"type": "function", "function": {"name": "f"}}])
    assert caught.value.param == "tools"


def test_a_refused_group_leaves_nothing_behind(server, http):
    before = server.health()
    # The second prompt does not fit: the first must not run either.
    body = {"model": "chat", "prompt": [[1, 2], [1] * 17000], "max_tokens": 9}
    assert_error(http.post(COMPLETIONS, json=body), 400, None, "context_length_exceeded")
    assert server.health() == before
    assert before["running"] == before["waiting"] == 0


def test_a_server_answers_after_all_of_this(client):
    assert client.chat.completions.create(**HELLO, max_tokens=3).usage.completion_tokens == 3
