"""The grammar of a whole turn: thinking, then calls, an object of a schema, or either. Pure.

A forced choice beats an output format (issue 4, 2). Where nothing binds from the start, as with tools that may be
called or not, calls are bound from their opening on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from antiphon.prompt.dialects.base import Dialect, callable_tools
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import Prompt
from antiphon.prompt.room import ended
from antiphon.prompt.schema import Expressed, express
from antiphon.protocol.request import TextFormat

__all__ = [
    "CLOSED",
    "OPEN",
    "OPTIONAL",
    "SCHEMA_PATH",
    "Thinking",
    "binds_from_start",
    "call_grammar",
    "format_schema",
    "has_format",
    "turn_grammar",
]

CLOSED: Final = "closed"
OPTIONAL: Final = "optional"
OPEN: Final = "open"
"""Whether thinking may come before the answer: not at all, as the model likes, or it has begun in the prompt."""

SCHEMA_PATH: Final = "text.format.schema"
"""Where the schema of an output format stands in a request."""

_ANYTHING: Final = "/(?s:.*)/"
_MOST_CHARACTERS: Final = 8_192
"""Characters of thinking before a marker that is no token, where there is a budget: more is too much to count."""

_SPACE: Final = "/[ \\n\\r\\t]{1,4}/"


class Thinking(Struct, frozen=True):
    """The markers that the chat template puts around thinking, and where the prompt leaves it.

    `budget` are the tokens that thinking may take, None for as many as it likes.
    """

    markers: tuple[str, str]
    state: str
    budget: int | None = None


def has_format(prompt: Prompt) -> bool:
    """Whether the answer is to have a form other than text."""
    return prompt.format is not None and prompt.format.type != "text"


def binds_from_start(prompt: Prompt) -> bool:
    """Whether the whole turn is under a grammar."""
    return prompt.choice.mode == "required" or has_format(prompt)


def format_schema(form: TextFormat) -> Expressed:
    """What of an output format a grammar can hold an answer to.

    Raises:
        InvalidRequestError: the schema is too large (M12).
    """
    schema: dict[str, Any] = {"type": "object"}
    if form.type == "json_schema" and form.schema is not None:
        schema = form.schema
    return express(schema, SCHEMA_PATH)


def turn_grammar(
    prompt: Prompt,
    dialect: Dialect,
    thinking: Thinking,
    control: Mapping[str, int],
    schema: Mapping[str, Any] | None,
    room: int | None = None,
) -> str | None:
    """The grammar of a turn that is bound from its start; None where the dialect cannot bind it.

    `control` are the control tokens of the model's vocabulary, by their text; `schema` is the expressed schema of the
    output format, where there is one. `room` are the tokens that the turn may take, in which a forced call or the
    object has to end.
    """
    forced = prompt.choice.mode == "required"
    lark = Lark(control, room if forced else None, parallel=prompt.parallel_tool_calls)
    answers: list[str] = []
    if schema is not None and not forced:
        answers.append(dialect.framed(lark, lark.rule("object", lark.json(ended(schema, room)))))
    if forced or callable_tools(prompt):
        calls = dialect.calls(prompt, lark)
        if calls is not None:
            answers.append(calls)
    if not answers:
        return None
    answer = lark.rule("answer", Lark.any_of(answers))
    return lark.text(f"{_thought(lark, dialect, thinking)}{answer}")


def call_grammar(prompt: Prompt, dialect: Dialect, opening: str, control: Mapping[str, int]) -> str | None:
    """The grammar of calls behind their opening; None where the dialect has none."""
    lark = Lark(control)
    calls = dialect.calls(prompt, lark, opened=opening)
    return None if calls is None else lark.text(calls)


def _thought(lark: Lark, dialect: Dialect, thinking: Thinking) -> str:
    """The body of thinking and the space after it, with which a turn may or must begin."""
    budget = thinking.budget
    if thinking.state == CLOSED or (thinking.state == OPTIONAL and budget == 0):
        return ""
    own = dialect.thought(lark, budget)
    if own is not None:
        return f"{own} " if thinking.state == OPEN else f"({own})? "
    opening, closing = thinking.markers
    if budget == 0:
        text = lark.rule("thought", lark.marked(closing))
    elif lark.has_token(closing):
        text = lark.rule("thought", f"{lark.bounded('thinking', _ANYTHING, budget)} {lark.marked(closing)}")
    elif budget is not None:
        # A limit of tokens would end the text without its marker, so one of characters stands for it.
        text = lark.rule(f"thought[suffix={Lark.literal(closing)}]", f"/(?s:.{{0,{min(budget, _MOST_CHARACTERS)}}})/")
        text = text.partition("[")[0]
    else:
        text = lark.rule(f"thought[suffix={Lark.literal(closing)}]", _ANYTHING).partition("[")[0]
    space = f"({lark.rule('space', _SPACE)})?"
    if thinking.state == OPEN:
        return f"{text} {space} "
    return f"({lark.marked(opening)} {text} {space})? "
