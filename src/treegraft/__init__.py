"""treegraft: draft-tree speculative decoding for LLM servers. `LLM` and `SamplingParams` load on first use,
so that commands which need no model start without torch."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treegraft.engine.llm import LLM
    from treegraft.engine.request import Completion, SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "Completion", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "LLM":
        from treegraft.engine.llm import LLM

        return LLM
    if name in ("SamplingParams", "Completion"):
        from treegraft.engine import request

        return getattr(request, name)
    raise AttributeError(f"module 'treegraft' has no attribute {name!r}")
