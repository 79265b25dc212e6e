"""Grammars in llguidance's Lark form, put together rule by rule. Pure: nothing here knows the library.

A rule is named once; what is added twice under one name must be the same. Texts are quoted as JSON strings, which is
how llguidance wants literals; a special token may be written as its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from antiphon.protocol.json import encode

__all__ = ["HEADER", "Lark"]

HEADER = "%llguidance {}\n"
"""What marks a grammar as llguidance's for llama.cpp."""

_TIGHT = {"x-guidance": {"whitespace_flexible": False}}
"""Without it a model may write spaces for ever between the tokens of a JSON value."""


class Lark:
    """The rules of one grammar; `text` is the whole of it, from the rule `start`.

    `control` are the control tokens of the model's vocabulary, by their text. A quoted text never matches one of them,
    so that a marker would have to be spelled out letter by letter; `marked` writes the tokens themselves.
    """

    def __init__(self, control: Mapping[str, int] | None = None) -> None:
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

    def json(self, schema: Mapping[str, Any]) -> str:
        """A JSON value of a schema, without needless whitespace."""
        return f"%json {encode({**schema, **_TIGHT}).decode()}"

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
        return HEADER + "\n".join([f"start: {start}", *rules]) + "\n"
