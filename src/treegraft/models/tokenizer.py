"""Text to token ids and back, and text as it grows. Wraps a `tokenizers` pipeline; knows no model and no file kind
but tokenizer.json with its side files (gguf/tokenizer.py builds the same from GGUF metadata).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers

from treegraft.errors import CheckpointError, UsageError
from treegraft.models.chat_template import ChatTemplate, Message
from treegraft.models.json_fields import read_json

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class Tokenizer:
    """`special_tokens`: name (eos_token ...) -> text. `templates`: name -> Jinja source; "default" is used, and
    "tool_use" when tools are given and it exists."""

    def __init__(
        self, pipeline: tokenizers.Tokenizer, special_tokens: dict[str, str], templates: dict[str, str]
    ) -> None:
        self.pipeline = pipeline
        self.special_tokens = special_tokens
        self._templates = {name: ChatTemplate(source, special_tokens) for name, source in templates.items()}

    @property
    def vocab_size(self) -> int:
        """Ids that have a text, added tokens included."""
        return int(self.pipeline.get_vocab_size(with_added_tokens=True))

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The id of the tokenizer's own end token, if it names one."""
        token_id = self.pipeline.token_to_id(self.special_tokens.get("eos_token", ""))
        return () if token_id is None else (token_id,)

    @property
    def has_chat_template(self) -> bool:
        return "default" in self._templates

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids. add_special_tokens: let the tokenizer add its begin token (chat templates write it themselves).
        Raises UsageError for text that is not valid Unicode (lone surrogates)."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UsageError(f"text is not valid Unicode at character {error.start}: a lone surrogate") from error
        return list(self.pipeline.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of token ids; ids without a text (padded vocabulary rows) give nothing."""
        return str(self.pipeline.decode(list(ids), skip_special_tokens=skip_special))

    def apply_chat_template(
        self, messages: list[Message], add_generation_prompt: bool = True, tools: list[dict[str, Any]] | None = None
    ) -> str:
        """The prompt text for messages; encode it with add_special_tokens=False. Raises UsageError when the model has
        no chat template or it refuses the messages."""
        if not self.has_chat_template:
            raise UsageError("this model has no chat template; send a plain prompt to the completions endpoint")
        template = self._templates["default"]
        if tools:
            template = self._templates.get("tool_use", template)
        return template.render(messages, add_generation_prompt, tools)

    def stream(self, skip_special: bool = True) -> "TokenStream":
        return TokenStream(self, skip_special)


class TokenStream:
    """Text of ids that arrive bit by bit. What `push` returns no later id can change; all pieces together are
    `decode` of all ids.

    A piece ends where the bytes so far are whole characters. From there a window is decoded anew, begun one piece
    earlier, since some decoders treat the first token apart:  ids = [ done | window start .. emitted | new ]
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool) -> None:
        self._tokenizer, self._skip_special = tokenizer, skip_special
        self._ids: list[int] = []
        self._window_start = self._emitted_to = 0
        self._emitted_chars = 0

    def push(self, ids: Sequence[int]) -> str:
        """New text that is final."""
        self._ids.extend(ids)
        known = self._decode(self._window_start, self._emitted_to)
        grown = self._decode(self._window_start, len(self._ids))
        if len(grown) <= len(known) or grown.endswith(REPLACEMENT):
            return ""
        self._window_start, self._emitted_to = self._emitted_to, len(self._ids)
        return self._count(grown[len(known) :])

    def finish(self) -> str:
        """The rest, incomplete characters as U+FFFD."""
        return self._count(self._decode(0, len(self._ids))[self._emitted_chars :])

    def _decode(self, start: int, end: int) -> str:
        return self._tokenizer.decode(self._ids[start:end], self._skip_special)

    def _count(self, text: str) -> str:
        self._emitted_chars += len(text)
        return text


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """Tokenizer of a Hugging Face folder; None when it has no tokenizer.json (such models serve token ids)."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        return None
    try:
        pipeline = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:
        raise CheckpointError(f"{file} is no readable tokenizer: {error}") from error
    pipeline.no_truncation()
    pipeline.no_padding()
    config = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    return Tokenizer(pipeline, _special_tokens(config), _templates(folder, config))


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    found = {}
    for name in SPECIAL_NAMES:
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[name] = text
    return found


def _templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """Templates by name: chat_template.jinja wins over tokenizer_config.json, which has one or a list of them."""
    value = config.get("chat_template")
    templates: dict[str, str] = {}
    if isinstance(value, str):
        templates["default"] = value
    elif isinstance(value, list):
        templates = {str(entry.get("name")): str(entry.get("template")) for entry in value if isinstance(entry, dict)}
    if (folder / "chat_template.jinja").is_file():
        file = folder / "chat_template.jinja"
        try:
            templates["default"] = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{file} is no readable text: {error}") from error
    return templates
