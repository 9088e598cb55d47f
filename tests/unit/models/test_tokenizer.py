"""Tokenizers of folders against transformers, and text that grows piece by piece."""

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers

from treegraft.errors import CheckpointError, UsageError
from treegraft.models.tokenizer import Tokenizer, read_tokenizer

TEXTS = (
    "Hello, world! 12345",
    "naïve café — “quotes” and 日本語 and 👩‍👩‍👧‍👦 emoji",
    "  leading and trailing  \n\n\ttabs\r\n",
    "<|im_start|>user\nhi<|im_end|>",
    "",
)
TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"


def train_pipeline() -> tokenizers.Tokenizer:
    pipeline = tokenizers.Tokenizer(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    special = [AddedToken(t, special=True) for t in ("<|bos|>", "<|im_start|>", "<|im_end|>")]
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pipeline.train_from_iterator([*TEXTS, "the quick brown fox " * 5], trainer)
    pipeline.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
    return pipeline


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    train_pipeline().save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": {"__type": "AddedToken", "content": "<|im_end|>", "special": True},
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    found = read_tokenizer(folder)
    assert found is not None
    return found


def test_ids_text_and_template_equal_transformers(folder: Path, tokenizer: Tokenizer) -> None:
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        for special in (True, False):
            ids = tokenizer.encode(text, add_special_tokens=special)
            assert ids == reference.encode(text, add_special_tokens=special)
            for skip in (True, False):
                decoded = reference.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
                assert tokenizer.decode(ids, skip_special=skip) == decoded
    messages = [{"role": "user", "content": "hé"}]
    assert tokenizer.apply_chat_template(messages) == reference.apply_chat_template(messages, tokenize=False)
    assert tokenizer.eos_token_ids == (reference.eos_token_id,)


def test_ids_without_a_text_give_nothing(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([5000, *tokenizer.encode("ab", add_special_tokens=False), 4999]) == "ab"


def test_lone_surrogates_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="character 3"):
        tokenizer.encode("abc\ud800")


@settings(deadline=None, max_examples=60)
@given(text=st.text(max_size=60), cuts=st.lists(st.integers(1, 4), min_size=1))
def test_streamed_text_is_the_decoded_text_and_never_half_a_character(text: str, cuts: list[int]) -> None:
    tokenizer = _shared()
    ids = tokenizer.encode(text)
    _check_stream(tokenizer, ids, cuts)


@settings(deadline=None, max_examples=60)
@given(ids=st.lists(st.integers(0, 329), max_size=40), cuts=st.lists(st.integers(1, 4), min_size=1))
def test_streaming_holds_for_any_ids_also_broken_bytes(ids: list[int], cuts: list[int]) -> None:
    _check_stream(_shared(), ids, cuts)


def _check_stream(tokenizer: Tokenizer, ids: list[int], cuts: list[int]) -> None:
    stream, text, at, turn = tokenizer.stream(), "", 0, 0
    whole = tokenizer.decode(ids)
    while at < len(ids):
        step = cuts[turn % len(cuts)]
        piece = stream.push(ids[at : at + step])
        at, turn = at + step, turn + 1
        text += piece
        assert whole.startswith(text)  # what was given out is never taken back
    assert text + stream.finish() == whole


@functools.cache
def _shared() -> Tokenizer:
    return Tokenizer(train_pipeline(), {}, {})


def test_a_character_of_several_tokens_is_held_back_until_whole(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a🦜b", add_special_tokens=False)
    assert len(ids) > 4
    stream = tokenizer.stream()
    pieces = [stream.push([token_id]) for token_id in ids]
    assert "".join(pieces) == "a🦜b"
    assert all(piece in ("", "a", "🦜", "b") for piece in pieces)
    assert stream.finish() == ""


@pytest.mark.parametrize("prepend", ["always", "first"])
def test_streaming_with_a_decoder_that_strips_the_first_space(prepend: str) -> None:
    words = ["<unk>", "▁a", "▁b", "c", "▁"]
    pipeline = tokenizers.Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, [], unk_token="<unk>"))
    pipeline.decoder = decoders.Metaspace(prepend_scheme=prepend)
    tokenizer = Tokenizer(pipeline, {}, {})
    _check_stream(tokenizer, [1, 2, 3, 4, 1, 3, 2], [1])
    assert tokenizer.decode([1, 2, 3]) == "a bc"


def test_a_folder_without_a_tokenizer_has_none(tmp_path: Path) -> None:
    assert read_tokenizer(tmp_path) is None


def test_a_broken_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        read_tokenizer(tmp_path)


def test_the_template_file_wins_and_tools_have_their_own(
    tmp_path: Path, folder: Path, write_config: Callable[[Path, dict[str, object]], None]
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "with tools"}]
    write_config(tmp_path, {"chat_template": named})
    tokenizer = read_tokenizer(tmp_path)
    assert tokenizer is not None
    assert tokenizer.apply_chat_template([]) == "plain"
    assert tokenizer.apply_chat_template([], tools=[{"type": "function"}]) == "with tools"
    (tmp_path / "chat_template.jinja").write_text("from the file")
    again = read_tokenizer(tmp_path)
    assert again is not None
    assert again.apply_chat_template([]) == "from the file"


def test_without_a_template_messages_are_refused(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    tokenizer = read_tokenizer(tmp_path)
    assert tokenizer is not None
    assert not tokenizer.has_chat_template
    with pytest.raises(UsageError, match="no chat template"):
        tokenizer.apply_chat_template([{"role": "user", "content": "hi"}])


@pytest.fixture
def write_config() -> Callable[[Path, dict[str, object]], None]:
    def write(folder: Path, document: dict[str, object]) -> None:
        (folder / "tokenizer_config.json").write_text(json.dumps(document))

    return write
