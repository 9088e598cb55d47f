"""Prompts become ids; models without template or tokenizer say so."""

import asyncio
import json

import pytest
from tiny_tokenizer import write_tokenizer

from treegraft.models.tokenizer import read_tokenizer
from treegraft.server.failures import RequestError
from treegraft.server.prompts import INLINE_CHARACTERS, chat_token_ids, completion_token_ids
from treegraft.server.protocol import ChatBody, CompletionBody, parse

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}{% if add_generation_prompt %}a{% endif %}"


@pytest.fixture
def tokenizer(tmp_path):
    return read_tokenizer(write_tokenizer(tmp_path, 26, TEMPLATE))


def chat_ids(tokenizer, content):
    body = parse(ChatBody, json.dumps({"messages": [{"role": "user", "content": content}]}).encode())
    return asyncio.run(chat_token_ids(tokenizer, body, "m"))


def completion_ids(tokenizer, prompt):
    body = parse(CompletionBody, json.dumps({"prompt": prompt}).encode())
    return asyncio.run(completion_token_ids(tokenizer, body, "m"))


def test_chat_goes_through_the_template(tokenizer):
    assert chat_ids(tokenizer, "bc") == (20, 1, 2, 0)


def test_long_and_short_texts_are_encoded_alike(tokenizer):
    times = INLINE_CHARACTERS // 2 + 1
    assert chat_ids(tokenizer, "bc" * times) == (20, *(1, 2) * times, 0)
    assert completion_ids(tokenizer, ["bc" * times, "d"]) == [(1, 2) * times, (3,)]


def test_ids_pass_unchanged(tokenizer):
    assert completion_ids(tokenizer, [[5, 6], [7]]) == [(5, 6), (7,)]
    assert completion_ids(None, [5, 6]) == [(5, 6)]


@pytest.mark.parametrize("prompt", ["", ["a", ""], [[]]])
def test_an_empty_prompt_is_refused(tokenizer, prompt):
    with pytest.raises(RequestError, match="no token"):
        completion_ids(tokenizer, prompt)


def test_text_without_a_tokenizer_is_refused():
    with pytest.raises(RequestError, match="model m has no tokenizer"):
        completion_ids(None, "a")
    with pytest.raises(RequestError, match="model m has no tokenizer"):
        chat_ids(None, "a")


def test_chat_without_a_template_is_refused(tmp_path):
    tokenizer = read_tokenizer(write_tokenizer(tmp_path, 26))
    with pytest.raises(RequestError, match="model m has no chat template") as caught:
        chat_ids(tokenizer, "a")
    assert caught.value.param == "messages"
