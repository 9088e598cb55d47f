"""Versioned JSON documents: every one carries `kind` and `version`; unknown ones and unknown keys are refused.

Knows no concrete record: each area defines its own `Record` subclasses beside the code that makes them.
"""

import hashlib
from typing import Any, ClassVar, TypeVar

import msgspec

from treegraft.errors import RecordError


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all documents. Subclasses set KIND and VERSION and are keyword-only frozen structs:

    class DrafterCard(Record, frozen=True, forbid_unknown_fields=True, kw_only=True):
        KIND: ClassVar[str] = "drafter-card"
        VERSION: ClassVar[int] = 1
        target: str
    """

    KIND: ClassVar[str]
    VERSION: ClassVar[int]


RecordT = TypeVar("RecordT", bound=Record)


def to_builtins(record: Record) -> dict[str, Any]:
    """The document as plain dicts and lists, `kind` and `version` first."""
    return {"kind": record.KIND, "version": record.VERSION, **msgspec.to_builtins(record)}


def to_json(record: Record) -> str:
    """Indented JSON for people and files, with a final newline."""
    return msgspec.json.format(msgspec.json.encode(to_builtins(record)), indent=2).decode() + "\n"


def canonical_json(record: Record) -> bytes:
    """One byte sequence per document: keys sorted, no white space. What hashes are taken over."""
    return msgspec.json.encode(to_builtins(record), order="deterministic")


def content_hash(record: Record) -> str:
    """sha256 (hex) of the canonical JSON."""
    return hashlib.sha256(canonical_json(record)).hexdigest()


def from_json(record_type: type[RecordT], data: bytes | str) -> RecordT:
    """Parse and check one document. Raises RecordError that names the kind, version, key or type that is wrong."""
    try:
        document = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise RecordError(f"not a JSON document: {error}") from error
    if not isinstance(document, dict):
        raise RecordError(f"expected a {record_type.KIND} document, got a JSON {type(document).__name__}")
    kind, version = document.pop("kind", None), document.pop("version", None)
    if kind != record_type.KIND:
        raise RecordError(f"expected a document of kind {record_type.KIND!r}, got {kind!r}")
    if version != record_type.VERSION:
        raise RecordError(f"{kind} document has version {version!r}; this version reads {record_type.VERSION}")
    try:
        return msgspec.convert(document, record_type)
    except msgspec.ValidationError as error:
        raise RecordError(f"{kind} document: {error}") from error
