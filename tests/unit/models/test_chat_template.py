"""Templates in the sandbox: what published ones use works, what a hostile one tries does not."""

import pytest

from treegraft.errors import UnsupportedModelError, UsageError
from treegraft.models.chat_template import ChatTemplate

USER = [{"role": "user", "content": "a <b> & 'c'"}]


def render(source: str, **options: object) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(USER, **options)  # type: ignore[arg-type]


def test_what_published_templates_use() -> None:
    assert render("{{ bos_token }}{{ messages[0]['content'] }}") == "<s>a <b> & 'c'"
    assert render("{{ messages | tojson }}") == '[{"role": "user", "content": "a <b> & \'c\'"}]'
    assert render("{{ {'k': 'é'} | tojson(indent=2) }}") == '{\n  "k": "é"\n}'
    assert render("{% if add_generation_prompt %}go{% endif %}", add_generation_prompt=False) == ""
    assert render("{{ tools[0].name }}", tools=[{"name": "f"}]) == "f"
    assert len(render("{{ strftime_now('%Y') }}")) == 4
    assert render("{% for m in messages %}{% generation %}x{% endgeneration %}{% break %}{% endfor %}") == "x"
    # Blocks take their own line with them.
    assert render("{% if true %}\n    {% if true %}\nx\n    {% endif %}\n{% endif %}\n") == "x\n"


def test_the_same_as_transformers_renders() -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    source = (
        "{%- set ns = namespace(n=0) -%}{%- for m in messages %}{% set ns.n = ns.n + 1 %}\n"
        "  {{- '<' + m.role + '>' + m.content | trim }}{{ ns.n }}\n{% endfor %}{{ messages | tojson }}"
    )
    expected, _ = render_jinja_template(conversations=[USER], chat_template=source)
    assert render(source) == expected[0]


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% include '/etc/passwd' %}",
        "{{ messages.missing.attribute }}",
        "{{ 1 + messages[0].content }}",
        "{{ raise_exception('roles must alternate') }}",
        "{% for i in range(10**9) %}{% endfor %}",
    ],
)
def test_refusals_are_usage_errors_of_one_line(source: str) -> None:
    with pytest.raises(UsageError, match="chat template refuses") as caught:
        render(source)
    assert "\n" not in str(caught.value)


def test_the_words_of_raise_exception_reach_the_user() -> None:
    with pytest.raises(UsageError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


def test_a_template_that_does_not_parse_is_the_models_fault() -> None:
    with pytest.raises(UnsupportedModelError, match="no valid Jinja"):
        ChatTemplate("{% if %}", {})
