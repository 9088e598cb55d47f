"""The token pieces between the turns of a conversation, read off the target's own chat template.

Knows no model. A template is rendered with marks in place of the contents; between the marks stand the pieces:

    prefix | user text | to_assistant | reply | to_user | user text | to_assistant | ...
"""

from dataclasses import dataclass

from treegraft.errors import TrainingError
from treegraft.models.tokenizer import Tokenizer

MARKS = ("\ue000\ue001", "\ue002\ue003", "\ue004\ue005")


@dataclass(frozen=True)
class Turns:
    """Token ids of the pieces. `end_token` closes a turn of either side and is the first id of to_assistant and
    to_user; a reply that ends is one that says it."""

    prefix: tuple[int, ...]
    to_assistant: tuple[int, ...]
    to_user: tuple[int, ...]
    end_token: int

    def prompt(self, user_ids: list[int]) -> list[int]:
        """Ids up to where the reply begins, for one user turn."""
        return [*self.prefix, *user_ids, *self.to_assistant]


def read_turns(tokenizer: Tokenizer) -> Turns:
    """Pieces of the tokenizer's template. Raises TrainingError when it has none, drops or changes contents, or closes
    turns with no token of their own (then a model cannot write the user's side)."""
    if not tokenizer.has_chat_template:
        raise TrainingError("the target has no chat template; conversations cannot be written with it")
    first, reply, second = MARKS
    messages = [
        {"role": "user", "content": first},
        {"role": "assistant", "content": reply},
        {"role": "user", "content": second},
    ]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    places = [text.find(mark) for mark in MARKS]
    if sorted(places) != places or places[0] < 0:
        raise TrainingError("the target's chat template drops or reorders messages; expected user, assistant, user")
    prefix = text[: places[0]]
    to_assistant = text[places[0] + len(first) : places[1]]
    to_user = text[places[1] + len(reply) : places[2]]
    if text[places[2] + len(second) :] != to_assistant:
        raise TrainingError(
            "the target's chat template closes a prompt otherwise than a past user turn: "
            f"{text[places[2] + len(second) :]!r} against {to_assistant!r}"
        )

    def encode(piece: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(piece, add_special_tokens=False))

    pieces = encode(prefix), encode(to_assistant), encode(to_user)
    if not all(pieces[1:]) or pieces[1][0] != pieces[2][0]:
        raise TrainingError(
            f"the target's chat template closes turns with {to_assistant[:20]!r} and {to_user[:20]!r}; "
            "expected one end-of-turn token for both sides"
        )
    return Turns(*pieces, end_token=pieces[1][0])
