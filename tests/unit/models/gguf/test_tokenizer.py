"""Byte-level BPE from GGUF metadata: equal to the tokenizer.json it was taken from, for each pre-tokenizer."""

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import tiny_gguf
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from treegraft.errors import CheckpointError, UnsupportedModelError, UsageError
from treegraft.models.gguf.file import read_gguf
from treegraft.models.gguf.tokenizer import build_tokenizer
from treegraft.models.tokenizer import Tokenizer

TEXTS = (
    "It's 12345 o'clock, WE'LL see: naïve café — 日本語 👩‍👩‍👧 x\u0301",
    "  two  spaces\n\n\ttabs\r\n and   more \n",
    "<|im_start|>user\nhi<tool><|im_end|>",
    "",
)
SPECIAL = ("<|end|>", "<|im_start|>", "<|im_end|>")


def split(pattern: str) -> pre_tokenizers.PreTokenizer:
    words = pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)
    return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# As the tokenizer.json files of Qwen2 and Llama 3 have them.
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
KINDS: dict[str, pre_tokenizers.PreTokenizer] = {
    "gpt-2": BYTES,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTES]),
    "qwen2": split(QWEN2),
    "llama-bpe": split(LLAMA3),
}


def train(kind: str) -> tokenizers.Tokenizer:
    pipeline = tokenizers.Tokenizer(models.BPE(ignore_merges=kind == "llama-bpe"))
    pipeline.pre_tokenizer = KINDS[kind]
    pipeline.decoder = decoders.ByteLevel()
    if kind == "qwen2":
        pipeline.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=[AddedToken(t, special=True) for t in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pipeline.train_from_iterator([*TEXTS, "12345 123 it's we'll " * 9], trainer)
    pipeline.add_tokens([AddedToken("<tool>", normalized=False)])
    if kind == "llama-bpe":
        pipeline.post_processor = processors.TemplateProcessing(single="<|end|> $A", special_tokens=[("<|end|>", 0)])
    return pipeline


def metadata(pipeline: tokenizers.Tokenizer, kind: str) -> dict[str, Any]:
    document = json.loads(pipeline.to_str())
    size = pipeline.get_vocab_size()
    types = [3 if i < len(SPECIAL) else 4 if pipeline.id_to_token(i) == "<tool>" else 1 for i in range(size)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": kind,
        "tokenizer.ggml.tokens": [pipeline.id_to_token(i) for i in range(size)],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in document["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{{ eos_token }}",
    }


def build(folder: Path, values: dict[str, Any]) -> Tokenizer | None:
    writer = gguf.GGUFWriter(folder / "t.gguf", "llama")
    for key, value in values.items():
        tiny_gguf.add(writer, key, value)
    return build_tokenizer(read_gguf(tiny_gguf.finish(writer, folder / "t.gguf")))


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_text_equal_the_original(kind: str, tmp_path: Path) -> None:
    original = train(kind)
    tokenizer = build(tmp_path, metadata(original, kind))
    assert tokenizer is not None
    for text in TEXTS:
        for special in (True, False):
            ids = tokenizer.encode(text, add_special_tokens=special)
            assert ids == original.encode(text, add_special_tokens=special).ids, text
            assert tokenizer.decode(ids) == original.decode(ids)
            assert tokenizer.decode(ids, skip_special=False) == original.decode(ids, skip_special_tokens=False)
    assert tokenizer.eos_token_ids == (2,)
    assert tokenizer.apply_chat_template([]) == "<|im_end|>"


def test_a_begin_token_is_added_where_metadata_says_so(tmp_path: Path) -> None:
    values = {**metadata(train("gpt-2"), "gpt-2"), "tokenizer.ggml.add_bos_token": True}
    tokenizer = build(tmp_path, values)
    assert tokenizer is not None
    assert tokenizer.encode("it")[0] == 0
    assert tokenizer.encode("it", add_special_tokens=False)[0] != 0


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"tokenizer.ggml.model": "llama"}, UnsupportedModelError, "kind 'llama'"),
        ({"tokenizer.ggml.pre": "gpt-9"}, UnsupportedModelError, "'gpt-9'"),
        ({"tokenizer.ggml.merges": None}, CheckpointError, "tokenizer.ggml.merges"),
    ],
)
def test_other_kinds_are_refused_by_name(
    tmp_path: Path, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    values = {k: v for k, v in {**metadata(train("gpt-2"), "gpt-2"), **change}.items() if v is not None}
    with pytest.raises(error, match=words):
        build(tmp_path, values)


def test_without_metadata_there_is_no_tokenizer_and_without_a_template_no_chat(tmp_path: Path) -> None:
    assert build(tmp_path, {}) is None
    values = metadata(train("gpt-2"), "gpt-2")
    del values["tokenizer.chat_template"]
    tokenizer = build(tmp_path, values)
    assert tokenizer is not None
    with pytest.raises(UsageError, match="no chat template"):
        tokenizer.apply_chat_template([])
