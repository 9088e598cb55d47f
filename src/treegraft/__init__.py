"""treegraft: draft-tree speculative decoding for LLM servers. `LLM` and `SamplingParams` load on first use,
so that commands which need no model start without torch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treegraft.engine.llm import LLM
    from treegraft.engine.request import Completion, SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "Completion", "SamplingParams", "__version__"]


# By name, so that the ground can be imported from any layer without reaching the engine.
_HOMES = {
    "LLM": "treegraft.engine.llm",
    "SamplingParams": "treegraft.engine.request",
    "Completion": "treegraft.engine.request",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'treegraft' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
