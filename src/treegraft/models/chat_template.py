"""Chat templates in Jinja's sandbox, with the helpers that published templates expect. Knows no tokenizer.

A template comes with a model and is not to be trusted: it reaches no internals, changes nothing that it is given, and
has no files and no imports.
"""

import json
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from treegraft.errors import UnsupportedModelError, UsageError

Message = dict[str, Any]
# What running a template's expressions can raise, the sandbox's own refusals among them.
TEMPLATE_FAULTS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class _GenerationBlock(Extension):
    """`{% generation %}` marks what a model wrote, for training; to serve, its body is all that matters."""

    tags = {"generation"}  # noqa: RUF012 - the attribute is jinja2's

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateRuntimeError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    # Jinja's own filter escapes HTML characters, which would end up in prompts.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


class ChatTemplate:
    """One compiled template. `special_tokens`: the names (bos_token, eos_token ...) that templates may use."""

    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise UnsupportedModelError(f"the model's chat template is no valid Jinja: {error}") from error
        self._special_tokens = special_tokens

    def render(
        self, messages: list[Message], add_generation_prompt: bool = True, tools: list[dict[str, Any]] | None = None
    ) -> str:
        """The prompt text. Raises UsageError when the template refuses the messages (a role it does not know, an
        order it does not like) or asks for what the sandbox does not give."""
        try:
            return self._template.render(
                messages=messages, tools=tools, add_generation_prompt=add_generation_prompt, **self._special_tokens
            )
        except TEMPLATE_FAULTS as error:
            raise UsageError(f"the model's chat template refuses these messages: {error}") from error
