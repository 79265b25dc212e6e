"""An incremental reader of the JSON arguments of a call: strings leave in pieces while they are written. Pure.

It is for calls whose item is made of what the arguments hold, not of their text. Other JSON values leave when they are
complete; of a container only its values are told.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import Struct

__all__ = ["ArgumentReader", "MalformedError", "Path", "Piece", "StringStart", "Value"]

Path = tuple[str | int, ...]
"""Where a value stands: keys of objects and places in arrays, from the outside in."""


class StringStart(Struct, frozen=True):
    """A string begins."""

    path: Path


class Piece(Struct, frozen=True):
    """More of the string begun last, without its escapes."""

    path: Path
    text: str


class Value(Struct, frozen=True):
    """A number, a truth value or null, complete."""

    path: Path
    value: Any


class MalformedError(ValueError):
    """The text is no JSON object."""


_RUN: Final = re.compile(r'[^"\\]+')
_SPACE: Final = " \t\r\n"
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_MOST_DEPTH: Final = 128
_MOST_SCALAR: Final = 64

_VALUE, _FIRST, _KEY, _COLON, _AFTER, _STRING, _SCALAR, _END = range(8)


class ArgumentReader:
    """Reads one object; what it yields does not depend on how the text is cut, but for the cuts of pieces."""

    def __init__(self) -> None:
        self._state = _VALUE
        self._path: list[str | int] = []
        self._objects: list[bool] = []
        self._key = False
        self._text: list[str] = []
        self._escape: str | None = None
        self._high = ""
        self._found: list[StringStart | Piece | Value] = []

    @property
    def ended(self) -> bool:
        """Whether the object is complete."""
        return self._state == _END

    @property
    def in_string(self) -> bool:
        """Whether the string begun last has not ended."""
        return self._state == _STRING and not self._key

    def feed(self, text: str) -> list[StringStart | Piece | Value]:
        """What can be told with this text.

        Raises:
            MalformedError: it is no JSON object.
        """
        place = 0
        while place < len(text):
            place = self._in_string(text, place) if self._state == _STRING else self._step(text, place)
        if self._state == _STRING:
            self._send()
        found, self._found = self._found, []
        return found

    def _in_string(self, text: str, place: int) -> int:
        if self._escape is not None:
            self._unescape(text[place])
            return place + 1
        run = _RUN.match(text, place)
        if run is not None:
            self._add(run.group())
            return run.end()
        if text[place] == "\\":
            self._escape = ""
        else:
            self._end_string()
        return place + 1

    def _unescape(self, char: str) -> None:
        seen = f"{self._escape}{char}"
        if seen[0] != "u":
            if seen not in _ESCAPES:
                raise MalformedError("an unknown escape")
            self._escape = None
            self._add(_ESCAPES[seen])
            return
        self._escape = seen
        if len(seen) < 5:
            return
        self._escape = None
        if not all(digit in "0123456789abcdefABCDEF" for digit in seen[1:]):
            raise MalformedError("an unknown escape")
        unit = int(seen[1:], 16)
        if 0xDC00 <= unit < 0xE000 and self._high:
            high, self._high = ord(self._high), ""
            self._text.append(chr(0x10000 + ((high - 0xD800) << 10) + unit - 0xDC00))
        elif 0xD800 <= unit < 0xDC00:
            self._add("")
            self._high = chr(unit)
        else:
            self._add("�" if 0xDC00 <= unit < 0xE000 else chr(unit))

    def _add(self, text: str) -> None:
        if self._high:
            # A half that no other half follows.
            self._high = ""
            self._text.append("�")
        self._text.append(text)

    def _send(self) -> None:
        text = "".join(self._text)
        if text and not self._key:
            self._found.append(Piece(tuple(self._path), text))
            self._text.clear()

    def _end_string(self) -> None:
        self._add("")
        self._send()
        if self._key:
            self._path[-1] = "".join(self._text)
            self._key = False
            self._state = _COLON
        else:
            self._state = _AFTER
        self._text.clear()

    def _step(self, text: str, place: int) -> int:
        char = text[place]
        if self._state == _SCALAR:
            if char not in _SPACE and char not in ",]}":
                self._text.append(char)
                if len(self._text) > _MOST_SCALAR:
                    raise MalformedError("a value that is none")
                return place + 1
            self._end_scalar()
            return place
        if char in _SPACE:
            return place + 1
        if self._state in (_VALUE, _FIRST):
            self._begin_value(char)
        elif self._state == _KEY:
            self._begin_key(char)
        elif self._state == _COLON and char == ":":
            self._state = _VALUE
        elif self._state == _AFTER:
            self._after(char)
        else:
            raise MalformedError(f"an unexpected {char!r}")
        return place + 1

    def _begin_value(self, char: str) -> None:
        if char == "]" and self._state == _FIRST:
            self._close()
        elif not self._objects and char != "{":
            raise MalformedError("no object")
        elif char in "{[":
            if len(self._objects) == _MOST_DEPTH:
                raise MalformedError("nested too deeply")
            self._objects.append(char == "{")
            self._path.append("" if char == "{" else 0)
            self._state = _KEY if char == "{" else _FIRST
        elif char == '"':
            self._found.append(StringStart(tuple(self._path)))
            self._state = _STRING
        else:
            self._text.append(char)
            self._state = _SCALAR

    def _begin_key(self, char: str) -> None:
        if char == '"':
            self._key = True
            self._state = _STRING
        elif char == "}":
            self._close()
        else:
            raise MalformedError("a key is expected")

    def _end_scalar(self) -> None:
        try:
            value: Any = msgspec.json.decode("".join(self._text))
        except msgspec.DecodeError:
            raise MalformedError("a value that is none") from None
        self._text.clear()
        self._found.append(Value(tuple(self._path), value))
        self._state = _AFTER

    def _after(self, char: str) -> None:
        in_object = self._objects[-1]
        if char == ",":
            if in_object:
                self._state = _KEY
            else:
                self._path[-1] = int(self._path[-1]) + 1
                self._state = _VALUE
        elif char == ("}" if in_object else "]"):
            self._close()
        else:
            raise MalformedError(f"an unexpected {char!r}")

    def _close(self) -> None:
        self._objects.pop()
        self._path.pop()
        self._state = _AFTER if self._objects else _END
