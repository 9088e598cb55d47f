"""A JSON object whose every key must be asked for: types, limits and left-over keys as errors that name them.

Knows that it belongs to a model, not which keys there are.
"""

import json
import math
from pathlib import Path
from typing import Any

from treegraft.errors import CheckpointError, UnsupportedModelError

# Only this value is served.
FIXED_KEYS: dict[str, Any] = {
    "hidden_act": "silu",
    "is_encoder_decoder": False,
    "is_decoder": False,
    "add_cross_attention": False,
    "partial_rotary_factor": 1.0,
    "rope_interleaved": False,
    "use_mrope": False,
    "quantization_config": None,
}
REQUIRED = object()
# Beyond these a size is a damaged file, and would be met as an exhausted memory.
MAX_COUNT, MAX_LAYERS, MAX_BLOCK_SIZE, MAX_NUMBER = 2**31 - 1, 4096, 1024, 1e300


class Fields:
    """A JSON object that remembers which keys were used. Wrong types and left-over keys are CheckpointErrors."""

    def __init__(self, document: dict[str, Any], where: str) -> None:
        self.document, self.where = document, where
        self.used: set[str] = set()

    def raw(self, key: str, default: Any = REQUIRED) -> Any:
        self.used.add(key)
        if key in self.document:
            return self.document[key]
        if default is REQUIRED:
            raise CheckpointError(f"{self.where} has no key {key!r}; it is needed")
        return default

    def _typed(self, key: str, default: Any, types: tuple[type, ...], expected: str) -> Any:
        value = self.raw(key, default)
        if value is None and default is not REQUIRED:
            return default
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise self.wrong(key, value, expected)
        return value

    def wrong(self, key: str, value: object, expected: str) -> CheckpointError:
        return CheckpointError(f"{self.where} has {key} = {shown(repr(value))}; expected {expected}")

    def count(self, key: str, default: Any = REQUIRED, limit: int = MAX_COUNT) -> int:
        value = self._typed(key, default, (int,), "a positive whole number")
        if value < 1:
            raise self.wrong(key, value, "a positive whole number")
        if value > limit:
            raise self.wrong(key, value, f"at most {limit}")
        return int(value)

    def number(self, key: str, default: Any = REQUIRED) -> float:
        given = self._typed(key, default, (int, float), "a positive number")
        value = float(given) if abs(given) < MAX_NUMBER else math.inf
        if not 0 < value < math.inf:
            raise self.wrong(key, value, "a positive number")
        return value

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._typed(key, default, (bool,), "true or false"))

    def text(self, key: str, default: str) -> str:
        return str(self._typed(key, default, (str,), "a string"))

    def section(self, key: str) -> "Fields":
        value = self.raw(key, None) or {}
        if not isinstance(value, dict):
            raise self.wrong(key, value, "a JSON object")
        return Fields(value, f"{key} in {self.where}")

    def finish(self, ignored: frozenset[str] = frozenset()) -> None:
        """Refuse what is fixed to another value and what nobody asked for."""
        for key, served in FIXED_KEYS.items():
            value = self.document.get(key, served)
            if value != served:
                raise UnsupportedModelError(
                    f"{self.where} has {key} = {shown(repr(value))}; only {served!r} is supported"
                )
        unknown = sorted(set(self.document) - self.used - ignored - set(FIXED_KEYS))
        if unknown:
            raise CheckpointError(
                f"{self.where} has unknown key(s) {shown(', '.join(unknown), 300)}; they could change the model's "
                "output, so it is refused; remove them if they do not"
            )


def shown(text: str, limit: int = 80) -> str:
    """One line of bounded length, for messages."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises CheckpointError that names the file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist; a model folder needs it") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not readable JSON: {error}") from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{path} holds a JSON {type(document).__name__}; expected an object")
    return document
