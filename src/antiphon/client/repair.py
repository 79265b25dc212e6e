"""JSON as models write it, read as it was meant: fences, words around it, loose quotes, a missing end (D14)."""

from __future__ import annotations

import re
from typing import Any, cast

from antiphon.client.loose import loads, well_formed

__all__ = ["repair"]

MAX_DEPTH = 128
MAX_STARTS = 20
"""How many brackets of a text are tried as the beginning of its JSON."""

_LOOK_AHEAD = 64
_FENCE = re.compile(r"```[ \t]*(?:json)?[ \t]*\r?\n(.*?)(?:\r?\n[ \t]*```|\Z)", re.DOTALL | re.IGNORECASE)
_START = re.compile(r"[{\[]")
_SKIPPED = re.compile(r"(?:[\s\ufeff]|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_SEPARATORS = re.compile(r"(?:[\s,\ufeff]|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_NAME = re.compile(r"[^\W\d][\w$-]*")
_WORD = re.compile(r"[-+\w.]+")
_AFTER_STRING = re.compile(r"[ \t\r]*(?:[,:}\]/\n]|\Z)")
_QUOTES = {'"': '"', "'": "'", "“": "”"}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None, "undefined": None}


def repair(text: str) -> Any:
    """The object that the text holds, or the list where it holds no object.

    Raises:
        ValueError: it holds neither.
    """
    fenced = _FENCE.search(text)
    for source in (fenced.group(1), text) if fenced else (text,):
        found: list[Any] = []
        for number, start in enumerate(_START.finditer(source)):
            if number == MAX_STARTS:
                break
            try:
                value = _Reader(source, start.start()).value(0)
            except ValueError:
                continue
            if isinstance(value, dict):
                return cast("Any", value)
            found.append(value)
        if found:
            return found[0]
    raise ValueError("The text holds no JSON.")


class _CutOffError(Exception):
    """The text ends where a value is to begin."""


class _Reader:
    def __init__(self, text: str, place: int) -> None:
        self._text = text
        self._place = place

    def value(self, depth: int) -> Any:
        """The value at the place.

        Raises:
            ValueError: there is none.
            _CutOffError: the text ends before it.
        """
        if depth > MAX_DEPTH:
            raise ValueError("The JSON is nested too deeply.")
        self._skip(_SKIPPED)
        character = self._peek()
        if character == "{":
            return self._object(depth)
        if character == "[":
            return self._array(depth)
        if character in _QUOTES:
            return self._string(_QUOTES[character])
        return self._word()

    def _peek(self) -> str:
        return self._text[self._place : self._place + 1]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._place)
        if match:
            self._place = match.end()

    def _object(self, depth: int) -> dict[str, Any]:
        self._place += 1
        found: dict[str, Any] = {}
        while True:
            self._skip(_SEPARATORS)
            character = self._peek()
            if character in ("}", ""):
                self._place += 1
                return found
            key = self._string(_QUOTES[character]) if character in _QUOTES else self._name()
            self._skip(_SKIPPED)
            if self._peek() == "":
                return found
            if self._peek() != ":":
                raise ValueError("A key has no value.")
            self._place += 1
            try:
                found[key] = self.value(depth + 1)
            except _CutOffError:
                return found

    def _array(self, depth: int) -> list[Any]:
        self._place += 1
        found: list[Any] = []
        while True:
            self._skip(_SEPARATORS)
            if self._peek() in ("]", ""):
                self._place += 1
                return found
            try:
                found.append(self.value(depth + 1))
            except _CutOffError:
                return found

    def _name(self) -> str:
        match = _NAME.match(self._text, self._place)
        if match is None:
            raise ValueError("A key is to begin here.")
        self._place = match.end()
        return match.group()

    def _string(self, end: str) -> str:
        self._place += 1
        pieces: list[str] = []
        while (character := self._peek()) != "":
            self._place += 1
            if character == "\\":
                pieces.append(self._escape())
            elif character == end and _AFTER_STRING.match(self._text, self._place, self._place + _LOOK_AHEAD):
                break
            else:
                pieces.append(character)
        return well_formed("".join(pieces))

    def _escape(self) -> str:
        character = self._peek()
        self._place += 1
        if character == "u":
            digits = self._text[self._place : self._place + 4]
            if re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                self._place += 4
                return chr(int(digits, 16))
        return _ESCAPES.get(character, character)

    def _word(self) -> Any:
        match = _WORD.match(self._text, self._place)
        if match is None:
            if self._peek() == "":
                raise _CutOffError
            raise ValueError("A value is to begin here.")
        word = match.group()
        self._place = match.end()
        if word.lower() in _LITERALS:
            return _LITERALS[word.lower()]
        try:
            value = loads(word.removeprefix("+"))
        except ValueError:
            if match.end() == len(self._text):
                raise _CutOffError from None
            raise
        return value
