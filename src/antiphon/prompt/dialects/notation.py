"""Gemma's notation of arguments, turned into JSON text while it is generated. Pure.

An object is `{key:value,…}`, its keys bare. A string stands between two marks, so that nothing in it is escaped;
numbers and constants stand as in JSON. Strings in JSON's quotes, and bare words, are understood too.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from antiphon.machine.reasoning import partial_suffix
from antiphon.prompt.dialects.literals import LiteralReader
from antiphon.prompt.dialects.values import INPUT, escaped, json_word
from antiphon.protocol.depth import MAX_DEPTH
from antiphon.protocol.json import encode

__all__ = ["NotationReader"]

_SPACE: Final = " \t\r\n"
_CLOSERS: Final = {"{": "}", "[": "]"}
_KEY_END = re.compile(r"[:}]")
_WORD_END = re.compile(r"[,}\]]")

_VALUE, _KEY, _KEY_TEXT, _KEY_LITERAL, _COLON, _STRING, _LITERAL, _WORD, _AFTER = range(9)


class NotationReader:
    """The arguments of one call. `quote` is the mark around strings.

    Of a custom tool's arguments the text under `input` leaves, and nothing else.
    """

    def __init__(self, quote: str, *, custom: bool) -> None:
        self._quote = quote
        self._custom = custom
        self._state = _VALUE
        self._closers: list[str] = []
        self._counts: list[int] = []
        self._kept: list[str] = []
        self._literal = LiteralReader()
        self._names: list[str] = []
        self._out: list[str] = []
        self.begun = False
        """Whether the first brace has been read."""
        self.ended = False
        """Whether the arguments are complete, or are none."""
        self.broken = False
        """Whether they are no arguments; what was taken stands."""

    def feed(self, text: str, place: int = 0) -> int:
        """Read on from a place in the text; the result is the place behind what need not be shown again."""
        steps = (
            self._value,
            self._key,
            self._key_text,
            self._key_literal,
            self._colon,
            self._string,
            self._in_literal,
            self._word,
            self._after,
        )
        while place < len(text) and not self.ended:
            before, state = place, self._state
            place = steps[state](text, place)
            if (place, self._state) == (before, state):
                break
        return place

    def take(self) -> str:
        """The text for deltas that came since the last call."""
        text = "".join(self._out)
        self._out.clear()
        return text

    def _value(self, text: str, place: int) -> int:
        place = _past_space(text, place)
        if place == len(text):
            return place
        char = text[place]
        if not self.begun and char != "{":
            self.ended = self.broken = True
            return place
        if char in "{[":
            return self._open(char, place)
        if self._closers and char == self._closers[-1]:
            return self._close(place)
        if text.startswith(self._quote, place):
            self._begin_value()
            self._emit('"')
            self._state = _STRING
            return place + len(self._quote)
        if self._quote.startswith(text[place:]):
            return place
        if char == ",":
            return place + 1
        self._begin_value()
        self._kept.clear()
        if char == '"':
            self._literal = LiteralReader()
            self._state = _LITERAL
        else:
            self._state = _WORD
        return place

    def _open(self, char: str, place: int) -> int:
        if len(self._closers) == MAX_DEPTH:
            self.ended = self.broken = True
            return place
        self._begin_value()
        self.begun = True
        self._emit(char)
        self._closers.append(_CLOSERS[char])
        self._counts.append(0)
        self._state = _KEY if char == "{" else _VALUE
        return place + 1

    def _close(self, place: int) -> int:
        self._emit(self._closers.pop())
        self._counts.pop()
        self._state = _AFTER
        self.ended = not self._closers
        return place + 1

    def _begin_value(self) -> None:
        """A comma between the elements of an array; in an object it comes with the key."""
        if self._closers and self._closers[-1] == "]":
            self._count()

    def _count(self) -> None:
        if self._counts[-1]:
            self._emit(",")
        self._counts[-1] += 1

    def _key(self, text: str, place: int) -> int:
        while place < len(text) and text[place] in " \t\r\n,":
            place += 1
        if place == len(text):
            return place
        if text[place] == "}":
            return self._close(place)
        self._kept.clear()
        self._literal = LiteralReader()
        self._state = _KEY_LITERAL if text[place] == '"' else _KEY_TEXT
        return place

    def _key_text(self, text: str, place: int) -> int:
        found = _KEY_END.search(text, place)
        end = found.start() if found else len(text)
        self._kept.append(text[place:end])
        if found is None:
            return end
        if found.group() == "}":
            # What has no value is no key.
            return self._close(end)
        self._named("".join(self._kept).replace(self._quote, "").strip())
        return end

    def _key_literal(self, text: str, place: int) -> int:
        place = self._literal.feed(text, place)
        self._kept.append(self._literal.take())
        if self._literal.ended:
            self._named(str(msgspec.json.decode("".join(self._kept))))
        return place

    def _named(self, name: str) -> None:
        self._count()
        self._emit(encode(name).decode() + ":")
        self._names[len(self._closers) - 1 :] = [name]
        self._state = _COLON

    def _colon(self, text: str, place: int) -> int:
        place = _past_space(text, place)
        if place < len(text):
            self._state = _VALUE
            place += text[place] == ":"
        return place

    def _string(self, text: str, place: int) -> int:
        end = text.find(self._quote, place)
        limit = end if end >= 0 else max(place, len(text) - partial_suffix(text, self._quote))
        self._say(text[place:limit])
        if end < 0:
            return limit
        self._emit('"')
        self._state = _AFTER
        return end + len(self._quote)

    def _in_literal(self, text: str, place: int) -> int:
        place = self._literal.feed(text, place)
        self._kept.append(self._literal.take())
        if self._literal.ended:
            value = "".join(self._kept)
            self._kept.clear()
            if self._at_input():
                self._out.append(str(msgspec.json.decode(value)))
            self._emit(value)
            self._state = _AFTER
        return place

    def _word(self, text: str, place: int) -> int:
        found = _WORD_END.search(text, place)
        end = found.start() if found else len(text)
        self._kept.append(text[place:end])
        if found is not None:
            word = "".join(self._kept).strip()
            self._kept.clear()
            if self._at_input():
                self._out.append(word)
            self._emit(json_word(word)[0] or encode(word).decode())
            self._state = _AFTER
        return end

    def _after(self, text: str, place: int) -> int:
        place = _past_space(text, place)
        if place == len(text):
            return place
        if text[place] == self._closers[-1]:
            return self._close(place)
        if text[place] == ",":
            self._state = _KEY if self._closers[-1] == "}" else _VALUE
        # Anything else has no place here.
        return place + 1

    def _at_input(self) -> bool:
        return self._custom and self._names == [INPUT] and len(self._closers) == 1

    def _say(self, text: str) -> None:
        if self._at_input():
            self._out.append(text)
        self._emit(escaped(text))

    def _emit(self, text: str) -> None:
        if text and not self._custom:
            self._out.append(text)


def _past_space(text: str, place: int) -> int:
    while place < len(text) and text[place] in _SPACE:
        place += 1
    return place
