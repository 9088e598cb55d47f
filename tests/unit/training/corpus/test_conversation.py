import pytest
from tiny_tokenizer import write_tokenizer

from treegraft.errors import TreegraftError
from treegraft.models import registry
from treegraft.training.corpus.conversation import read_turns

SIDES = "{% for m in messages %}{{ 'U' if m.role == 'user' else 'A' }}{{ m.content }}Z{% endfor %}"
REPLY = "{% if add_generation_prompt %}A{% endif %}"


def tokenizer(folder, template):
    return registry.load_tokenizer(registry.ModelFiles("folder", write_tokenizer(folder, 62, template), "tiny"))


def test_pieces_put_together_are_the_template(tmp_path):
    its = tokenizer(tmp_path, "B" + SIDES + REPLY)
    turns = read_turns(its)

    def ids(text):
        return its.encode(text, add_special_tokens=False)

    assert list(turns.prefix) == ids("BU")
    assert list(turns.to_assistant) == ids("ZA")
    assert list(turns.to_user) == ids("ZU")
    assert [turns.end_token] == ids("Z")
    asked = its.apply_chat_template([{"role": "user", "content": "hello"}])
    assert turns.prompt(ids("hello")) == ids(asked)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "no chat template"),
        ("{{ messages[-1].content }}", "drops or reorders"),
        ("{% for m in messages | reverse %}{{ m.content }}Z{% endfor %}", "drops or reorders"),
        ("{% for m in messages %}{{ m.content | replace(m.content[0], 'x') }}Z{% endfor %}", "drops or reorders"),
        (SIDES, "closes a prompt otherwise"),
        (
            "{% for m in messages %}{{ 'U' if m.role == 'user' else 'A' }}{{ m.content }}{% endfor %}" + REPLY,
            "closes turns",
        ),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "closes turns"),
        ("{{ raise_exception('only one turn') }}", "only one turn"),
    ],
)
def test_templates_that_do_not_fit_say_why(tmp_path, template, message):
    with pytest.raises(TreegraftError, match=message):
        read_turns(tokenizer(tmp_path, template))
