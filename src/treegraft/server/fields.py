"""Request fields that are known and not served: which values of them change nothing. Knows no field that is
served.

A field that would change the answer is refused by name, never ignored; one whose value says "as without it"
passes.
"""

from typing import Any

from treegraft.server.failures import RequestError

# Bookkeeping of the caller's, or hints that cannot change a text.
HARMLESS = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)

# field -> the values that ask for nothing; null is one for every field.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "prediction": (),
    "presence_penalty": (0,),
    "reasoning_effort": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "suffix": (),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": (),
    "web_search_options": (),
}


def drop_unserved(body: dict[str, Any]) -> dict[str, Any]:
    """`body` without harmless fields and those with a neutral value. Raises RequestError for one with
    effect."""
    served = {}
    for name, value in body.items():
        if name in NEUTRAL:
            if value is not None and not any(_is_same(value, neutral) for neutral in NEUTRAL[name]):
                raise RequestError(f"{name} is not supported; leave it out", param=name, code="unsupported_parameter")
        elif name not in HARMLESS:
            served[name] = value
    return served


def _is_same(value: Any, neutral: Any) -> bool:
    # In Python 0 == False: "logprobs": 0 asks for log-probabilities, false does not.
    return isinstance(value, bool) == isinstance(neutral, bool) and bool(value == neutral)
