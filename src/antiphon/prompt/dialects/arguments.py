"""The arguments of one call, read as JSON while they are generated. Pure.

Arguments of a function leave as JSON text. Those of a custom tool hold its text as `input` (`base.CUSTOM_INPUT`), and
that text leaves alone, its escapes undone.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

import msgspec

from antiphon.prompt.dialects.literals import LiteralReader

__all__ = ["ArgumentsReader", "InputReader", "custom_input"]

_STARTS: Final = frozenset('{"n')
_FIRST_KEY = re.compile(r'\s*\{\s*"((?:[^"\\]|\\.)*)"\s*:\s*(\S)')
_LONGEST_START: Final = 256
_BODY = re.compile(r'[^"\\]+')
_HIGH_SURROGATES: Final = frozenset({"d8", "d9", "da", "db"})


class InputReader:
    """The text of a custom tool out of its arguments, which are sound JSON, a piece at a time.

    Where the first key is another one, the text leaves only at the end.
    """

    def __init__(self) -> None:
        self._kept = ""
        self._rest: list[str] = []
        self._whole = False
        self._flowing = False
        self._ended = False
        self._escape = ""

    def feed(self, text: str) -> str:
        """More of the tool's text."""
        if self._ended or not text:
            return ""
        if self._flowing:
            return self._decoded(text)
        if self._whole:
            self._rest.append(text)
            return ""
        self._kept += text
        match = _FIRST_KEY.match(self._kept)
        if match is not None and match.group(1) == "input" and match.group(2) == '"':
            self._flowing = True
            return self._decoded(self._kept[match.end() :])
        if match is not None or len(self._kept) > _LONGEST_START:
            self._whole = True
        return ""

    def end(self) -> str:
        """What is left of the tool's text, when the arguments are complete."""
        if self._flowing or self._ended:
            return ""
        self._ended = True
        return custom_input(self._kept + "".join(self._rest))

    def _decoded(self, text: str) -> str:
        out: list[str] = []
        place = 0
        while place < len(text) and not self._ended:
            if self._escape:
                self._escape += text[place]
                place += 1
                if self._escape_is_whole():
                    out.append(msgspec.json.decode(f'"{self._escape}"', type=str))
                    self._escape = ""
                continue
            body = _BODY.match(text, place)
            if body is not None:
                out.append(body.group())
                place = body.end()
                continue
            self._ended = text[place] == '"'
            self._escape = "" if self._ended else "\\"
            place += 1
        return "".join(out)

    def _escape_is_whole(self) -> bool:
        """Whether the escape is complete; half a character comes with its other half."""
        if self._escape[1] != "u":
            return True
        half = self._escape[2:4].lower() in _HIGH_SURROGATES
        return len(self._escape) == (12 if half else 6)


class ArgumentsReader:
    """The arguments of one call: a JSON object, or what some models write instead, its text as a string, or null."""

    def __init__(self, *, custom: bool) -> None:
        self._custom = custom
        self._reader = LiteralReader()
        self._input = InputReader()
        self._kind = ""
        self._kept: list[str] = []
        self._out: list[str] = []
        self.ended = False
        """Whether the arguments are complete, or broken."""
        self.broken = False
        """Whether they are no arguments; what was taken stands."""

    @property
    def begun(self) -> bool:
        """Whether something that can be arguments has begun."""
        return bool(self._kind)

    def feed(self, text: str, place: int = 0) -> int:
        """Read on from a place in the text; the result is the place behind what is the arguments'."""
        if not self._kind:
            while place < len(text) and text[place].isspace():
                place += 1
            if place == len(text):
                return place
            if text[place] not in _STARTS:
                self.ended = self.broken = True
                return place
            self._kind = text[place]
        place = self._reader.feed(text, place)
        self._send(self._reader.take())
        if self._reader.ended:
            self._end()
        return place

    def take(self) -> str:
        """The text for deltas that came since the last call."""
        text = "".join(self._out)
        self._out.clear()
        return text

    def _send(self, text: str) -> None:
        if self._kind != "{":
            self._kept.append(text)
        else:
            self._out.append(self._input.feed(text) if self._custom else text)

    def _end(self) -> None:
        self.ended = True
        self.broken = self._reader.broken
        if self._kind == "{":
            if self._custom and not self.broken:
                self._out.append(self._input.end())
        elif not self.broken:
            value: str | None = msgspec.json.decode("".join(self._kept), type=str | None)
            text = value if value and value.strip() else "{}"
            self._out.append(custom_input(text) if self._custom else text)


def custom_input(arguments: str) -> str:
    """The text of a custom tool in arguments that hold it as `input`; other arguments are the text themselves."""
    try:
        body: Any = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
    if isinstance(body, dict):
        inner = cast("dict[str, Any]", body)
        if isinstance(inner.get("input"), str):
            return inner["input"]
    return arguments
