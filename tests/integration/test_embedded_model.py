"""The embedded default against transformers' own reading of the same GGUF file: weights, tokens, template."""

import pytest
import torch
from model_feeding import allocate, feed, scattered_slots

from treegraft.models.registry import ModelFiles, load_target, load_tokenizer, resolve

pytestmark = pytest.mark.slow
TEXTS = (
    "The capital of France is Paris, since 987 A.D. or so; isn't it?",
    "def f(x):\n    return x ** 2  # naïve — 日本語 👩‍👩‍👧\n\n\tend",
    "<|im_start|>user\n12345<|im_end|>\n",
)


@pytest.fixture(scope="module")
def embedded(embedded_model: str) -> ModelFiles:
    return resolve(embedded_model)


def test_logits_equal_transformers(embedded: ModelFiles) -> None:
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(
        embedded.path.parent, gguf_file=embedded.path.name, dtype=torch.float32
    ).eval()
    target = load_target(embedded, torch.float32, "cpu")
    tokenizer = load_tokenizer(embedded)
    assert tokenizer is not None
    token_ids = torch.tensor([tokenizer.encode(TEXTS[0])])
    count = token_ids.shape[1]
    with torch.inference_mode():
        expected = reference(token_ids).logits
    found = feed(target, token_ids, allocate(target, 64), scattered_slots(1, count, 64), [count - 1, 1])
    # A logit is a sum over thirty layers of this model; its own rounding between kernels is of this size.
    assert (target.logits(found.hidden) - expected).abs().max() < 1e-3


def test_tokens_and_template_equal_transformers(embedded: ModelFiles) -> None:
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(embedded.path.parent, gguf_file=embedded.path.name)
    tokenizer = load_tokenizer(embedded)
    assert tokenizer is not None
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == reference.encode(text)
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True)
    messages = [{"role": "user", "content": "What is 2+2?"}]
    expected = reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert tokenizer.apply_chat_template(messages) == expected
