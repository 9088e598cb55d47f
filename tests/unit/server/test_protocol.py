"""Bodies: what is taken, and what each wrong one is told."""

import json

import pytest

from treegraft.server.failures import RequestError
from treegraft.server.protocol import (
    ChatBody,
    CompletionBody,
    chat_max_tokens,
    chat_messages,
    completion_prompts,
    parse,
    sampling_params,
)

HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def chat(**fields):
    return parse(ChatBody, json.dumps(HELLO | fields).encode())


def completion(**fields):
    return parse(CompletionBody, json.dumps({"prompt": "hello"} | fields).encode())


def refusal(make, **fields):
    with pytest.raises(RequestError) as caught:
        make(**fields)
    return caught.value


NEUTRAL_FIELDS = {
    "best_of": 1,
    "echo": False,
    "frequency_penalty": 0,
    "logit_bias": {},
    "logprobs": None,
    "metadata": {"a": "b"},
    "n": 1,
    "presence_penalty": 0.0,
    "response_format": {"type": "text"},
    "store": True,
    "suffix": None,
    "tools": [],
    "tool_choice": "auto",
    "user": "somebody",
}


def test_fields_that_ask_for_nothing_are_taken():
    assert chat(**NEUTRAL_FIELDS) == chat(n=1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("presence_penalty", 0.1),
        ("frequency_penalty", -1),
        ("logit_bias", {"5": 1}),
        ("logprobs", True),
        ("logprobs", 0),
        ("top_logprobs", 2),
        ("tools", [{"type": "function"}]),
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
        ("echo", True),
        ("best_of", 2),
        ("best_of", True),
        ("suffix", "x"),
        ("repetition_penalty", 1.1),
        ("no_such_field", None),
    ],
)
@pytest.mark.parametrize("make", [chat, completion])
def test_fields_with_an_effect_that_is_not_served_are_refused_by_name(make, field, value):
    error = refusal(make, **{field: value})
    assert error.param == field
    assert field in str(error)
    assert error.status == 400


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": True}, "top_p"),
        ({"min_p": 2}, "min_p"),
        ({"top_k": -2}, "top_k"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 2**70}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"stop": [1]}, "stop[0]"),
        ({"stop": ""}, "stop"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"what": 1}}, "stream_options.what"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "x", "tool_call_id": "1"}]}, "messages[0].tool_call_id"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0]",
        ),
    ],
)
def test_wrong_values_name_the_field(fields, param):
    def everything(**fields):
        body = chat(**fields)
        chat_messages(body)
        sampling_params(body, chat_max_tokens(body) or 5)

    assert refusal(everything, **fields).param == param


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"3", b'"x"', b"{'a': 1}", b'{"a": NaN}', b"\xff", b"[" * 100000, b'{"prompt": "\\ud800"}'],
)
def test_what_is_no_json_object_is_refused(data):
    with pytest.raises(RequestError) as caught:
        parse(CompletionBody, data)
    assert caught.value.code == "invalid_json"


def test_a_missing_field_is_named():
    with pytest.raises(RequestError, match="prompt is missing"):
        parse(CompletionBody, b"{}")


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_the_four_forms_of_a_prompt(prompt, prompts):
    assert completion_prompts(completion(prompt=prompt)) == prompts


@pytest.mark.parametrize("prompt", [[], ["a", 1], [1, [2]], ["a", [1]]])
def test_mixed_and_empty_prompt_lists_are_refused(prompt):
    with pytest.raises(RequestError) as caught:
        completion_prompts(completion(prompt=prompt))
    assert caught.value.param == "prompt"


@pytest.mark.parametrize("prompt", [None, 3, {"a": 1}, [1.5], [-1], [[2**40]], [None]])
def test_other_prompts_are_refused(prompt):
    assert refusal(completion, prompt=prompt).param.startswith("prompt")


def test_defaults_are_openai_s():
    params = sampling_params(chat(), 5)
    assert (params.temperature, params.top_p, params.top_k, params.min_p, params.stop) == (1.0, 1.0, 0, 0.0, ())
    assert params.seed is not None
    assert sampling_params(chat(), 5).seed != params.seed


def test_given_sampling_is_passed_on():
    body = chat(temperature=0, top_p=0.5, top_k=-1, min_p=0.1, stop="x", stop_token_ids=[7], ignore_eos=True, seed=3)
    params = sampling_params(body, 5)
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.0, 0.5, 0, 0.1)
    assert (params.stop, params.stop_token_ids, params.ignore_eos, params.seed) == (("x",), (7,), True, 3)
    assert params.max_tokens == 5


def test_null_is_absent():
    names = ["model", "stream", "temperature", "top_p", "n", "stop", "seed", "max_tokens", "top_k", "tools"]
    assert chat(**dict.fromkeys(names)) == chat()


def test_text_parts_are_joined_and_developer_is_system():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "developer", "content": "s"}, {"role": "user", "content": parts, "name": "me"}]
    assert chat_messages(chat(messages=messages)) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "ab", "name": "me"},
    ]


def test_max_tokens_under_both_names():
    assert chat_max_tokens(chat()) is None
    assert chat_max_tokens(chat(max_tokens=3)) == 3
    assert chat_max_tokens(chat(max_completion_tokens=4)) == 4
    assert chat_max_tokens(chat(max_tokens=4, max_completion_tokens=4)) == 4
