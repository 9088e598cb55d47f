"""Answers: a stream's pieces add up to the whole answer, usage counts tokens, tau counts rounds."""

import pytest

from treegraft.engine.request import StepOutput
from treegraft.server.answers import Answer, AnswerHead


def output(index, ids, text, accept_length, finish_reason=None, cached=2):
    return StepOutput(
        request_id=f"g/{index}",
        token_ids=tuple(ids),
        text=text,
        finish_reason=finish_reason,
        accept_length=accept_length,
        num_prompt_tokens=4,
        cached_tokens=cached,
        seed=9,
    )


# Two choices of one prompt, interleaved: prefill token, a round whose text is held back, the last round.
STEPS = [
    (0, output(0, [1], "a", 0)),
    (1, output(1, [5], "v", 0, cached=4)),
    (0, output(0, [2, 3], "", 2)),
    (1, output(1, [6], "w", 1, "length", cached=4)),
    (0, output(0, [4, 5, 6], "bcd", 3, "stop")),
]


def make(kind, has_text=True, num_prompts=1, choices_per_prompt=2):
    return Answer(AnswerHead("id", kind, "m", "ddtree", 9, has_text), num_prompts, choices_per_prompt)


def run(answer):
    chunks = []
    for index, step in STEPS:
        answer.take(index, step)
        chunks += answer.chunks(index, step)
    return chunks


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_chunks_add_up_to_the_whole(kind):
    answer = make(kind)
    chunks = run(answer)
    texts, reasons = ["", ""], [None, None]
    for chunk in chunks:
        [choice] = chunk["choices"]
        assert reasons[choice["index"]] is None, "a chunk after the finish reason"
        texts[choice["index"]] += choice["delta"].get("content", "") if kind == "chat" else choice["text"]
        reasons[choice["index"]] = choice["finish_reason"]
    whole = answer.whole()["choices"]
    assert texts == [c["message"]["content"] if kind == "chat" else c["text"] for c in whole] == ["abcd", "vw"]
    assert reasons == [c["finish_reason"] for c in whole] == ["stop", "length"]


def test_each_choice_of_a_chat_begins_with_its_role_once():
    chunks = run(make("chat"))
    roles = [chunk["choices"][0]["index"] for chunk in chunks if "role" in chunk["choices"][0]["delta"]]
    assert roles == [0, 1]


def test_usage_counts_tokens_and_a_prompt_once():
    answer = make("chat")
    run(answer)
    assert answer.usage() == {
        "prompt_tokens": 4,
        "completion_tokens": 8,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


def test_usage_counts_every_prompt():
    answer = make("completion", num_prompts=2, choices_per_prompt=1)
    run(answer)
    assert answer.usage()["prompt_tokens"] == 8
    assert answer.usage()["prompt_tokens_details"]["cached_tokens"] == 6


def test_extras():
    answer = make("completion")
    run(answer)
    assert answer.extras() == {
        "method": "ddtree",
        "seed": 9,
        "rounds": 3,
        "tau": 2.0,
        "accept_lengths": [[2, 3], [1]],
        "cached_tokens": 2,
    }


def test_tau_is_null_without_a_round():
    answer = make("completion", choices_per_prompt=1)
    answer.take(0, output(0, [1], "a", 0, "length"))
    assert answer.extras()["tau"] is None


def test_without_a_tokenizer_the_ids_are_given():
    answer = make("completion", has_text=False)
    chunks = run(answer)
    assert answer.whole()["treegraft"]["token_ids"] == [[1, 2, 3, 4, 5, 6], [5, 6]]
    streamed = [[], []]
    for chunk in chunks:
        [choice] = chunk["choices"]
        streamed[choice["index"]] += choice.get("token_ids", [])
    assert streamed == [[1, 2, 3, 4, 5, 6], [5, 6]]
