"""Grammars in llguidance's Lark form, put together rule by rule. Pure: nothing here knows the library.

A rule is named once; what is added twice under one name must be the same. Texts are quoted as JSON strings, which is
how llguidance wants literals; a special token may be written as its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from antiphon.prompt.room import LITTLE_ROOM, most_calls, narrowed
from antiphon.protocol.json import encode

__all__ = ["HEADER", "Lark"]

HEADER = "%llguidance {}\n"
"""What marks a grammar as llguidance's for llama.cpp."""

_SPELLED_HEADER = '%llguidance {"no_forcing": true}\n'
"""The same for a grammar in which a text looks like a control token.

llguidance would take the token where only that text can follow, and then not accept it.
"""

_SPACING = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}
"""Where a JSON value has a space, and nowhere more than one: else a model may write spaces for ever.

The separators are no expressions: the llguidance within llama.cpp takes them as they stand.
"""


_UNQUOTED = re.compile(r"\\.|[/\n\r]", re.DOTALL)
_QUOTED = {"/": "\\/", "\n": "\\n", "\r": "\\r", "\\\n": "\\n"}


class Lark:
    """The rules of one grammar; `text` is the whole of it, from the rule `start`.

    `control` are the control tokens of the model's vocabulary, by their text. A quoted text never matches one of them,
    so that a marker would have to be spelled out letter by letter; `marked` writes the tokens themselves.

    `room` are the tokens in which calls have to come to an end, None where nothing has to; one call may take the same
    share of them as each other, or all of them where `parallel` is false.
    """

    def __init__(
        self, control: Mapping[str, int] | None = None, room: int | None = None, *, parallel: bool = True
    ) -> None:
        self._room = None if room is None or room >= LITTLE_ROOM else room
        self._share = room // most_calls(room, room) if self._room and room and parallel else self._room
        self._rules: dict[str, str] = {}
        self._control = dict(control or {})
        texts = sorted(self._control, key=len, reverse=True)
        self._tokens = re.compile("|".join(re.escape(text) for text in texts)) if texts else None

    @staticmethod
    def literal(text: str) -> str:
        """The exact text."""
        return encode(text).decode()

    def has_token(self, text: str) -> bool:
        """Whether this text is a control token."""
        return text in self._control

    def marked(self, text: str) -> str:
        """The exact text as a body for a rule, with what are control tokens in it as tokens. It must not be empty."""
        if self._tokens is None:
            return self.literal(text)
        parts: list[str] = []
        place = 0
        for found in self._tokens.finditer(text):
            if found.start() > place:
                parts.append(self.literal(text[place : found.start()]))
            parts.append(f"<[{self._control[found.group()]}]>")
            place = found.end()
        if place < len(text):
            parts.append(self.literal(text[place:]))
        return " ".join(parts)

    @staticmethod
    def any_of(alternatives: Iterable[str]) -> str:
        """One of these, in brackets; there must be at least one."""
        return "(" + " | ".join(alternatives) + ")"

    @staticmethod
    def repeated(body: str, least: int, most: int | None) -> str:
        """The body so many times, any number where `most` is None; empty where it is never."""
        if most is not None and most <= 0:
            return ""
        return f"({body}){{{max(0, least)},{'' if most is None else most}}}"

    def bounded(self, name: str, body: str, tokens: int | None) -> str:
        """The body, as a rule by this name where it may take so many tokens at most."""
        return body if tokens is None else self.rule(f"{name}[max_tokens={tokens}]", body).partition("[")[0]

    def most_calls(self, most: int) -> int:
        """How many calls there is room for, up to `most`."""
        return most_calls(self._room, most)

    def json(self, schema: Mapping[str, Any]) -> str:
        """A JSON value of an expressed schema. Definitions may stand within it too, each for what stands beside it."""
        defs: dict[str, Any] = {}
        body = _with_definitions_outside(narrowed(schema, self._share), {}, defs)
        if defs:
            body["$defs"] = defs
        return f"%json {encode({**body, **_SPACING}).decode()}"

    @staticmethod
    def nested(definition: str) -> str:
        """A grammar within this one, with names of its own. It must have been checked by itself."""
        return f"%lark {{\n{definition}\n}}"

    @staticmethod
    def regex(expression: str) -> str:
        """A text that matches a regular expression as a whole."""
        return "/" + _UNQUOTED.sub(lambda found: _QUOTED.get(found.group(), found.group()), expression) + "/"

    def rule(self, name: str, body: str) -> str:
        """Add a rule; its name, to be used in others.

        Raises:
            ValueError: there is another rule by that name.
        """
        if self._rules.setdefault(name, body) != body:
            raise ValueError(f"the rule '{name}' is there already")
        return name

    def text(self, start: str) -> str:
        """The grammar that begins with this body."""
        rules = [f"{name}: {body}" for name, body in self._rules.items()]
        text = "\n".join([f"start: {start}", *rules]) + "\n"
        spelled = self._tokens is not None and self._tokens.search(text)
        return (_SPELLED_HEADER if spelled else HEADER) + text


def _with_definitions_outside(node: Any, names: Mapping[str, str], defs: dict[str, Any]) -> Any:
    """The node with its references, whose definitions are added to `defs` under names of their own."""
    if isinstance(node, list):
        return [_with_definitions_outside(part, names, defs) for part in cast("list[Any]", node)]
    if not isinstance(node, Mapping):
        return node
    members = cast("Mapping[str, Any]", node)
    own = members.get("$defs")
    if isinstance(own, dict):
        own = cast("dict[str, Any]", own)
        names = {**names, **{name: f"{name}-{len(defs) + place}" for place, name in enumerate(own)}}
        defs.update((names[name], True) for name in own)
        defs.update((names[name], _with_definitions_outside(part, names, defs)) for name, part in own.items())
    made: dict[str, Any] = {}
    for key, value in members.items():
        if key == "$ref" and isinstance(value, str):
            name = value.removeprefix("#/$defs/")
            made[key] = f"#/$defs/{names.get(name, name)}"
        elif key in ("properties", "patternProperties"):
            # The names in it may be those of keywords.
            parts = cast("Mapping[str, Any]", value)
            made[key] = {name: _with_definitions_outside(part, names, defs) for name, part in parts.items()}
        elif key in ("enum", "const"):
            made[key] = value
        elif key != "$defs":
            made[key] = _with_definitions_outside(value, names, defs)
    return made
