"""Prompts to token ids: chat templates and tokenisation, off the event loop when the text is long.

Knows no HTTP and no engine. A model may lack a chat template or a tokenizer; then the request is refused by name.
"""

import asyncio

from treegraft.models.tokenizer import Tokenizer
from treegraft.server.failures import RequestError
from treegraft.server.protocol import ChatBody, CompletionBody, chat_messages, completion_prompts

# Above this many characters tokenising takes longer than a hop to a thread.
INLINE_CHARACTERS = 4000


async def chat_token_ids(tokenizer: Tokenizer | None, body: ChatBody, model: str) -> tuple[int, ...]:
    """Ids of the templated conversation. Raises RequestError when the model has no chat template."""
    if tokenizer is None or not tokenizer.has_chat_template:
        missing = "tokenizer" if tokenizer is None else "chat template"
        raise RequestError(
            f"model {model} has no {missing}; use /v1/completions" + (" with token ids" if tokenizer is None else ""),
            param="messages",
            code="chat_not_supported",
        )
    messages = chat_messages(body)

    def encode() -> list[int]:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        return tokenizer.encode(text, add_special_tokens=False)

    if sum(len(message["content"]) for message in messages) > INLINE_CHARACTERS:
        return tuple(await asyncio.to_thread(encode))
    return tuple(encode())


async def completion_token_ids(tokenizer: Tokenizer | None, body: CompletionBody, model: str) -> list[tuple[int, ...]]:
    """Ids of each prompt. Raises RequestError for an empty one, or for text where the model has no tokenizer."""
    encoded = []
    for prompt in completion_prompts(body):
        if isinstance(prompt, list):
            ids = prompt
        elif tokenizer is None:
            raise RequestError(f"model {model} has no tokenizer; give token ids", param="prompt", code="no_tokenizer")
        elif len(prompt) > INLINE_CHARACTERS:
            ids = await asyncio.to_thread(tokenizer.encode, prompt, add_special_tokens=True)
        else:
            ids = tokenizer.encode(prompt, add_special_tokens=True)
        if not ids:
            raise RequestError("prompt holds no token", param="prompt", code="invalid_value")
        encoded.append(tuple(ids))
    return encoded
