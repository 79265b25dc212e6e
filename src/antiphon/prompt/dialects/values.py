"""Values that a model writes between tags, turned into JSON text while they are generated. Pure.

A string is escaped on the fly and leaves as it comes, and so do objects and arrays. What can only be told at its end,
a number or something that may be a string or not, leaves at its end.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from antiphon.machine.reasoning import partial_suffix
from antiphon.prompt.dialects.kinds import Arguments, Kind, type_of
from antiphon.prompt.dialects.literals import LiteralReader
from antiphon.protocol.json import encode

__all__ = ["INPUT", "ValueReader", "escaped", "json_word"]

INPUT: Final = "input"
"""The parameter that holds the text of a custom tool."""

_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}
_TYPES: Final = {"true": "boolean", "false": "boolean", "null": "null"}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NULL: Final = "null"


def escaped(text: str) -> str:
    """The text as it stands inside a JSON string; parts of a text can be escaped one by one."""
    return encode(text).decode()[1:-1]


def json_word(word: str) -> tuple[str, str]:
    """A number or a constant as JSON writes it, also where it is one of Python's, and its type; else nothing.

    A number may be too large for any machine.
    """
    word = _PYTHON.get(word, word)
    kind = "number" if _NUMBER.fullmatch(word) else _TYPES.get(word, "")
    return (word, kind) if kind else ("", "")


class ValueReader:
    """One value, up to the tag `close`; quotes and brackets count where the schema wants JSON.

    `trims` says that one line break at each end is the form's and not the value's. `arguments` is None for the input of
    a custom tool, which leaves as it is.
    """

    def __init__(self, close: str, *, trims: bool, name: str, arguments: Arguments | None) -> None:
        self._close = close
        self._trims = trims
        self._kind = Kind.STRING if arguments is None else arguments.kind(name)
        self._types = frozenset[str]() if arguments is None else arguments.types(name)
        self._raw = arguments is None
        self._out: list[str] = []
        self._kept: list[str] = []
        self._mended: list[str] = []
        self._fresh = trims
        self._quoted = self._raw
        self._blank = True
        self._literal: LiteralReader | None = None
        self._littered = False
        self.ended = False
        """Whether the closing tag has been read."""

    def feed(self, text: str, place: int) -> int:
        """Read on from a place in the text; the result is the place behind what need not be shown again."""
        if self._fresh and place < len(text):
            self._fresh = False
            place += text[place] == "\n"
        if self._kind in (Kind.JSON, Kind.ANY):
            place = self._json(text, place)
            if self._literal is not None and not self._literal.ended:
                return place
        end = text.find(self._close, place)
        if end >= 0:
            body = text[place:end]
            self._take(body.removesuffix("\n") if self._trims else body)
            self._end()
            return end + len(self._close)
        held = max(partial_suffix(text, self._close), partial_suffix(text, "\n" + self._close) if self._trims else 0)
        limit = max(place, len(text) - held)
        self._take(text[place:limit])
        return limit

    def take(self) -> str:
        """The JSON text that came since the last call."""
        text = "".join(self._out)
        self._out.clear()
        return text

    def _json(self, text: str, place: int) -> int:
        """What begins like JSON is read as such, so that a tag in one of its strings closes nothing."""
        if self._blank:
            while place < len(text) and text[place].isspace():
                self._kept.append(text[place])
                place += 1
            if place == len(text):
                return place
            self._blank = False
            if text[place] in ('{["' if self._kind is Kind.ANY else "{["):
                self._literal = LiteralReader()
        if self._literal is None or self._literal.ended:
            return place
        start, place = place, self._literal.feed(text, place)
        self._kept.append(text[start:place])
        (self._out if self._kind is Kind.JSON else self._mended).append(self._literal.take())
        return place

    def _take(self, text: str) -> None:
        if not text:
            return
        if self._kind is Kind.STRING:
            self._say(text)
        elif self._kind is not Kind.NULLABLE:
            self._kept.append(text)
            self._littered = self._littered or not text.isspace()
        elif self._quoted:
            self._say(text)
        else:
            self._kept.append(text)
            start = "".join(self._kept)
            if not _NULL.startswith(start):
                self._say(start)

    def _say(self, text: str) -> None:
        if not self._quoted:
            self._quoted = True
            self._out.append('"')
        self._out.append(text if self._raw else escaped(text))

    def _end(self) -> None:
        self.ended = True
        if self._raw:
            return
        text = "".join(self._kept)
        if self._kind is Kind.STRING or (self._kind is Kind.NULLABLE and text != _NULL):
            self._say("" if self._quoted else text)
            self._out.append('"')
        elif self._kind is Kind.NULLABLE:
            self._out.append(_NULL)
        elif self._kind is Kind.ANY or self._literal is None:
            self._out.append(self._settled(text))

    def _settled(self, text: str) -> str:
        """JSON of a fitting type as it is written, and Python's names of constants as JSON's; else a string."""
        whole = self._literal is not None and not self._literal.broken and not self._littered
        word, kind = json_word(text.strip())
        if not kind:
            word = "".join(self._mended) if whole else text.strip()
            try:
                kind = type_of(msgspec.json.decode(word))
            except (msgspec.DecodeError, RecursionError):
                return encode(text).decode()
        return word if self._kind is Kind.JSON or kind in self._types else encode(text).decode()
