"""Builds the tokenizer of a GGUF file from its metadata: byte-level BPE with the pre-tokenizer that it names.

Knows the metadata and the `tokenizers` library, no model. Other kinds (SentencePiece ...) are refused by name.
"""

from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from treegraft.errors import CheckpointError, UnsupportedModelError
from treegraft.models.gguf.file import GGUFFile
from treegraft.models.tokenizer import Tokenizer

CONTROL, USER_DEFINED = 3, 4

# Word patterns as the models' own tokenizer files have them; digits in runs of up to three, or one by one.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL_KEYS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    words = pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated", invert=False)
    return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _pre_tokenizer(kind: str, where: str) -> pre_tokenizers.PreTokenizer:
    if kind in ("default", "gpt-2", "gpt2"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if kind == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    if kind in ("llama-bpe", "llama3", "llama-v3"):
        return _split(WORDS.replace("DIGITS", r"\p{N}{1,3}"))
    if kind in ("qwen2", "deepseek-r1-qwen"):
        return _split(WORDS.replace("DIGITS", r"\p{N}"))
    raise UnsupportedModelError(f"{where} needs the pre-tokenizer {kind!r}; supported: gpt-2, smollm, llama-bpe, qwen2")


def build_tokenizer(file: GGUFFile) -> Tokenizer | None:
    """The tokenizer of a GGUF file, None when the file has none.

    Raises UnsupportedModelError for kinds other than byte-level BPE, CheckpointError for metadata that does not fit
    together.
    """
    metadata = file.metadata
    kind = metadata.get("tokenizer.ggml.model")
    if kind is None or kind == "no_vocab":
        return None
    if kind != "gpt2":
        raise UnsupportedModelError(
            f"{file.path} has a tokenizer of kind {kind!r}; only 'gpt2' (byte-level BPE) is read"
        )
    tokens, merges = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.merges")
    if not tokens or merges is None:
        raise CheckpointError(f"{file.path} has no tokenizer.ggml.tokens or no tokenizer.ggml.merges")
    pre = metadata.get("tokenizer.ggml.pre", "default")
    pipeline = tokenizers.Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[_pair(merge) for merge in merges],
            ignore_merges=pre in ("llama-bpe", "llama3", "llama-v3"),
        )
    )
    pipeline.pre_tokenizer = _pre_tokenizer(pre, str(file.path))
    pipeline.decoder = decoders.ByteLevel()
    if pre in ("qwen2", "deepseek-r1-qwen"):
        pipeline.normalizer = normalizers.NFC()
    _add_tokens(pipeline, tokens, metadata.get("tokenizer.ggml.token_type") or [])
    special = {name: tokens[metadata[key]] for name, key in SPECIAL_KEYS.items() if metadata.get(key) is not None}
    if metadata.get("tokenizer.ggml.add_bos_token", pre == "llama-bpe") and "bos_token" in special:
        bos = special["bos_token"]
        pipeline.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, pipeline.token_to_id(bos))]
        )
    template = metadata.get("tokenizer.chat_template")
    return Tokenizer(pipeline, special, {"default": template} if template else {})


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _add_tokens(pipeline: tokenizers.Tokenizer, tokens: list[str], kinds: list[Any]) -> None:
    """Mark control tokens (left out of decoded text) and user-defined ones (found whole in any text)."""
    control = [
        AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, kinds, strict=False) if k == CONTROL
    ]
    whole = [AddedToken(t, normalized=False) for t, k in zip(tokens, kinds, strict=False) if k == USER_DEFINED]
    pipeline.add_special_tokens(control)
    pipeline.add_tokens(whole)
