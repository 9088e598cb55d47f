import json
import logging

import pytest

from treegraft.errors import TrainingError
from treegraft.training.corpus.prompts import PromptFilter, read_prompts, user_turns

TURNS = [{"from": "human", "value": "How do I knit?"}, {"from": "gpt", "value": "Like this."}]
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "first"},
    {"role": "assistant", "content": "never taken"},
    {"role": "user", "content": "second"},
]


def write(path, text, encoding="utf-8"):
    path.write_text(text, encoding=encoding)
    return path


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"id": "a", "conversations": TURNS}, ["How do I knit?"]),
        ({"messages": MESSAGES}, ["first", "second"]),
        ({"prompt": "say hello"}, ["say hello"]),
        ({"instruction": "say hello", "output": "hello"}, ["say hello"]),
        ({"messages": [{"role": "user", "content": None}, "odd", {"role": "user"}]}, []),
        ({"text": "unknown"}, []),
        (["a list"], []),
        (None, []),
    ],
)
def test_only_what_users_said_is_taken(document, expected):
    assert user_turns(document) == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_arrays_and_lines_read_the_same(tmp_path, encoding):
    documents = [{"conversations": TURNS}, {"messages": MESSAGES}, {"prompt": "third"}]
    expected = ["How do I knit?", "first", "second", "third"]
    array = write(tmp_path / "a.json", json.dumps(documents, indent=1), encoding)
    lines = write(tmp_path / "b.jsonl", "\n".join(map(json.dumps, documents)) + "\n\n", encoding)
    assert list(read_prompts(array)) == list(read_prompts(lines)) == expected


def test_separators_inside_strings_end_no_line(tmp_path):
    prompt = "one\u2028two\u2029three\x85four"
    path = write(tmp_path / "a.jsonl", json.dumps({"prompt": prompt}, ensure_ascii=False) + "\r\n")
    assert list(read_prompts(path)) == [prompt]


def test_an_array_cut_short_gives_what_stands_before_the_cut(tmp_path, caplog):
    text = json.dumps([{"prompt": f"number {n}"} for n in range(5)])
    path = write(tmp_path / "cut.json", text[: text.index("number 3") + 4])
    with caplog.at_level(logging.WARNING, "treegraft"):
        assert list(read_prompts(path)) == ["number 0", "number 1", "number 2"]
    assert "cut short or damaged after 3 documents" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"messages": [{"role": "assistant", "content": "mine"}]}', "1 documents but no user turn"),
        ("[]", "0 documents but no user turn"),
        ("", "0 documents but no user turn"),
        ('{"prompt": "fine"}\n{"prompt": ', "line 2 is no JSON"),
        ("How are you?", "line 1 is no JSON"),
    ],
)
def test_files_without_prompts_are_refused_by_name(tmp_path, text, message):
    path = write(tmp_path / "odd.jsonl", text)
    with pytest.raises(TrainingError, match=message) as caught:
        list(read_prompts(path))
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TrainingError, match=r"none\.json cannot be read"):
        list(read_prompts(tmp_path / "none.json"))


def test_prompts_are_kept_once_and_counted_by_reason():
    keep = PromptFilter()
    assert keep.keep("Tell me about the sea, please")
    assert not keep.keep("tell me   about the SEA please!")
    assert not keep.keep("short")
    assert not keep.keep("long enough " * 200)
    assert not keep.keep("1234567890 1234567890")
    assert keep.dropped == {"seen before": 1, "length": 2, "few letters": 1}


def test_held_out_prompts_stay_out_whole_and_in_part():
    held = "Write a short poem about the old lighthouse keeper and his dog"
    keep = PromptFilter([held, "Name three rivers"])
    assert not keep.keep(held.upper())
    assert not keep.keep("name three rivers.")
    assert not keep.keep("Please: " + held + ", in French.")
    assert not keep.keep("poem about the old lighthouse keeper and his wife")  # eight words in a row
    assert keep.keep("about the old lighthouse keeper and his cat")  # seven
    assert keep.dropped == {"overlaps a held-out prompt": 4}
