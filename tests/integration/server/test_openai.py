"""The openai client's calls: whole and streamed answers, choices, prompts in all forms, usage, models."""

import threading

import openai
import pytest

MESSAGES = [{"role": "user", "content": "abcdefabc"}]
SAMPLED = {"model": "chat", "seed": 11, "temperature": 0.9, "max_tokens": 24}


def extras(response):
    return response.model_extra["treegraft"]


def chat(client, **fields):
    return client.chat.completions.create(messages=MESSAGES, **(SAMPLED | fields))


def complete(client, **fields):
    return client.completions.create(**(SAMPLED | {"prompt": "abcdefabc"} | fields))


def chat_text(response):
    return response.choices[0].message.content


def test_a_chat_answer(client):
    response = chat(client)
    assert response.object == "chat.completion"
    assert response.id.startswith("chatcmpl-")
    assert response.model == "chat"
    [choice] = response.choices
    assert choice.finish_reason == "length"
    assert choice.message.role == "assistant"
    assert len(choice.message.content) == 24  # one character a token
    assert response.usage.prompt_tokens == 9
    assert response.usage.completion_tokens == 24
    assert response.usage.total_tokens == 33
    own = extras(response)
    assert own["method"] == "ddtree"
    assert own["seed"] == 11
    assert own["rounds"] == len(own["accept_lengths"][0])
    assert sum(own["accept_lengths"][0]) == 23  # the first token is prefill's
    assert own["tau"] == pytest.approx(23 / own["rounds"])


@pytest.mark.parametrize("temperature", [0, 1.2])
def test_a_chat_stream_is_the_whole_answer_in_pieces(client, temperature):
    whole = chat(client, temperature=temperature)
    chunks = list(chat(client, temperature=temperature, stream=True, stream_options={"include_usage": True}))
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == chat_text(whole)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert extras(chunks[-1])["accept_lengths"] == extras(whole)["accept_lengths"]


def test_a_stream_without_usage_ends_with_reason_and_extras(client):
    chunks = list(chat(client, stream=True))
    assert chunks[-1].choices[0].finish_reason == "length"
    assert extras(chunks[-1])["seed"] == 11
    assert all(chunk.usage is None for chunk in chunks)


def test_a_completion_stream_is_the_whole_answer_in_pieces(client):
    whole = complete(client)
    assert whole.object == "text_completion"
    chunks = list(complete(client, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "length"


def test_chat_and_completion_of_the_same_prompt_agree(client):
    assert chat_text(chat(client)) == complete(client).choices[0].text


def test_a_seed_is_drawn_stated_and_gives_the_answer_again(client):
    first = chat(client, seed=openai.omit)
    again = chat(client, seed=extras(first)["seed"])
    other = chat(client, seed=openai.omit)
    assert chat_text(again) == chat_text(first)
    assert extras(other)["seed"] != extras(first)["seed"]


def test_choices_differ_and_the_first_is_the_single_one(client):
    several = chat(client, n=3)
    texts = [choice.message.content for choice in several.choices]
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts[0] == chat_text(chat(client))
    assert several.usage.prompt_tokens == 9
    assert several.usage.completion_tokens == 72


def test_streamed_choices_carry_their_index(client):
    whole = [choice.message.content for choice in chat(client, n=3).choices]
    streamed, reasons = ["", "", ""], [None, None, None]
    for chunk in chat(client, n=3, stream=True):
        [choice] = chunk.choices
        streamed[choice.index] += choice.delta.content or ""
        reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    assert streamed == whole
    assert reasons == ["length"] * 3


def test_prompts_in_all_forms(client):
    alone = [complete(client, prompt=prompt).choices[0].text for prompt in ("abcdef", "bcd")]
    ids = [[0, 1, 2, 3, 4, 5], [1, 2, 3]]
    for prompts in (["abcdef", "bcd"], ids):
        response = complete(client, prompt=prompts)
        assert [choice.text for choice in response.choices] == alone
        assert response.usage.prompt_tokens == 9
    assert complete(client, prompt=ids[0]).choices[0].text == alone[0]


def test_prompts_and_choices_together_are_numbered_prompt_by_prompt(client):
    response = complete(client, prompt=["abcdef", "bcd"], n=2)
    assert [choice.index for choice in response.choices] == [0, 1, 2, 3]
    assert response.choices[2].text == complete(client, prompt="bcd").choices[0].text


def test_stop_strings_end_the_text_before_them(client):
    full = chat_text(chat(client))
    for stop in (full[7:9], [full[20], full[7:9]]):
        expected = full[: min(full.find(s) for s in ([stop] if isinstance(stop, str) else stop))]
        response = chat(client, stop=stop)
        assert chat_text(response) == expected
        assert response.choices[0].finish_reason == "stop"
        streamed = list(chat(client, stop=stop, stream=True))
        assert "".join(c.choices[0].delta.content or "" for c in streamed) == expected
        assert streamed[-1].choices[0].finish_reason == "stop"


def test_extensions_reach_the_sampler(client):
    greedy = chat_text(chat(client, temperature=0))
    assert chat_text(chat(client, extra_body={"top_k": 1})) == greedy
    assert chat_text(chat(client, extra_body={"min_p": 1.0})) == greedy
    assert chat_text(chat(client, top_p=1e-9)) == greedy
    stop_id = ord(greedy[3]) - ord("a")
    response = chat(client, temperature=0, extra_body={"stop_token_ids": [stop_id], "ignore_eos": True})
    assert chat_text(response) == greedy[: greedy.find(greedy[3])]
    assert response.choices[0].finish_reason == "stop"


def test_defaults(client):
    assert complete(client, max_tokens=openai.omit).usage.completion_tokens == 16
    assert chat(client, max_tokens=openai.omit, max_completion_tokens=7).usage.completion_tokens == 7


def test_a_second_call_hits_the_prefix_cache(client):
    messages = [{"role": "user", "content": "xwvutsrqponmlkjihgfedcba"}]
    first = client.chat.completions.create(messages=messages, **SAMPLED)
    second = client.chat.completions.create(messages=messages, **SAMPLED)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert second.usage.prompt_tokens_details.cached_tokens == 23
    assert extras(second)["cached_tokens"] == 23
    assert extras(second)["accept_lengths"] == extras(first)["accept_lengths"]


def test_models(client):
    [model] = client.models.list().data
    assert model.id == "chat"
    assert client.models.retrieve("chat").id == "chat"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_eight_at_once_are_each_as_alone(client):
    def ask(number):
        return chat_text(chat(client, seed=number, max_tokens=20 + number))

    alone = [ask(number) for number in range(8)]
    together = [""] * 8

    def run(number):
        together[number] = ask(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone
