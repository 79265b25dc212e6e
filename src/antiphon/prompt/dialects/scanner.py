"""An incremental scanner of one JSON object that may be a tool call. Pure.

It reads `{"name": …, "arguments": {…}}` a piece at a time. As soon as the name is known to be a declared tool and its
arguments begin, the call has begun and its arguments leave as they come; until then the object can still turn out to
be no call, and then the scanner has failed and the caller keeps the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from antiphon.machine.deltas import ToolCallDelta, ToolCallStart

__all__ = ["CallScanner"]

_STRING_BODY = re.compile(r'[^"\\]*')
_SPACE: Final = " \t\r\n"
_VALUE_STARTS: Final = frozenset('"{[-0123456789tfnTFN')
_SCALAR: Final = frozenset("+-.0123456789abcdefghijklmnopqrstuvwxyzE")
_INSIDE: Final = _VALUE_STARTS | _SCALAR | frozenset("}],: \t\r\n")
_NAMES: Final = ("name",)
_ARGUMENTS: Final = ("arguments", "parameters")
_KNOWN: Final = frozenset({*_NAMES, *_ARGUMENTS, "type", "id", "function"})

_KEY, _COLON, _VALUE, _COMMA = range(4)


class CallScanner:
    """One object. `tools` maps each declared name to whether it is a custom tool."""

    def __init__(self, tools: Mapping[str, bool]) -> None:
        self._tools = tools
        self._phase = _KEY
        self._key = ""
        self._value: list[str] = []
        self._depth = -1  # of the value being read; -1 before the object's own brace
        self._in_string = False
        self._escaped = False
        self._name: str | None = None
        self._arguments: str | None = None
        self._streaming = False
        self._deltas: list[ToolCallStart | ToolCallDelta] = []
        self.started = False
        """Whether the call has begun; from then on the object cannot fail."""
        self.failed = False
        """Whether the object is no call."""
        self.ended = False
        """Whether the object is complete, or failed."""

    def feed(self, text: str) -> int:
        """Read on; the result is how many characters were the object's. The rest comes after it."""
        place = 0
        while place < len(text) and not self.ended:
            place = self._read_string(text, place) if self._in_string else self._read(text, place)
        if self._streaming:
            self._send("".join(self._value))
            self._value.clear()
        return place

    def take(self) -> list[ToolCallStart | ToolCallDelta]:
        """The deltas since the last call."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def _read_string(self, text: str, place: int) -> int:
        if self._escaped:
            self._escaped = False
            self._value.append(text[place])
            return place + 1
        body = _STRING_BODY.match(text, place)
        end = body.end() if body else place
        if end == len(text):
            self._value.append(text[place:])
            return end
        self._value.append(text[place : end + 1])
        if text[end] == "\\":
            self._escaped = True
        else:
            self._in_string = False
            if self._phase == _KEY:
                self._end_key()
            elif self._depth == 0:
                self._end_value()
        return end + 1

    def _read(self, text: str, place: int) -> int:
        char = text[place]
        if self._phase == _VALUE:
            return self._read_value(char, place)
        if char in _SPACE:
            return place + 1
        if self._depth < 0 and char == "{":
            self._depth = 0
        elif self._phase == _KEY and char == '"':
            self._in_string = True
            self._value = ['"']
        elif self._phase == _COLON and char == ":":
            self._phase = _VALUE
            self._value = []
        elif self._phase == _COMMA and char == ",":
            self._phase = _KEY
        elif char == "}" and self._phase in (_KEY, _COMMA):
            self._end_object()
        else:
            self._break()
            return place
        return place + 1

    def _read_value(self, char: str, place: int) -> int:
        if self._depth == 0:
            if char in _SPACE and not self._value:
                return place + 1
            if char in ",}" or char in _SPACE:
                if not self._value:
                    self._break()
                else:
                    self._end_value()
                return place
            if char not in (_SCALAR if self._value else _VALUE_STARTS):
                self._break()
                return place
            self._begin_value(char)
        elif char not in _INSIDE:
            self._break()
            return place
        self._value.append(char)
        if char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            if self._depth == 0:
                self._end_value()
            elif self._depth < 0:
                self._break()
        return place + 1

    def _begin_value(self, char: str) -> None:
        if (
            char == "{"
            and self._key in _ARGUMENTS
            and self._name is not None
            and not self.started
            and not self._tools[self._name]
        ):
            self._start()
            self._streaming = True

    def _end_key(self) -> None:
        self._key = _string("".join(self._value)) or ""
        self._phase = _COLON
        if self._key not in _KNOWN and not self.started:
            self._break()

    def _end_value(self) -> None:
        value = "".join(self._value)
        self._phase = _COMMA
        if self._streaming:
            self._send(value)
            self._value = []
            self._streaming = False
        elif self._key in _NAMES and not self.started:
            self._name = _string(value)
            if self._name not in self._tools:
                self._break()
        elif self._key in _ARGUMENTS and not self.started:
            self._arguments = value
        elif self._key == "function" and not self.started:
            self._function(value)

    def _function(self, value: str) -> None:
        # Some models write the whole of chat completions' form: {"type": "function", "function": {"name": …}}.
        try:
            body: Any = msgspec.json.decode(value)
        except msgspec.DecodeError:
            self._break()
            return
        name = body if isinstance(body, str) else None
        if isinstance(body, dict):
            inner = cast("dict[str, Any]", body)
            name = inner.get("name")
            for key in _ARGUMENTS:
                if key in inner:
                    self._arguments = msgspec.json.encode(inner[key]).decode()
        if not isinstance(name, str) or name not in self._tools:
            self._break()
        else:
            self._name = name

    def _end_object(self) -> None:
        self.ended = True
        if self.started:
            return
        if self._name is None:
            self.failed = True
            return
        arguments = self._arguments or "{}"
        if arguments.startswith('"'):
            arguments = _string(arguments) or arguments
        elif arguments == "null":
            arguments = "{}"
        self._start()
        self._send(_custom_input(arguments) if self._tools[self._name] else arguments)

    def _start(self) -> None:
        assert self._name is not None  # noqa: S101 - callers have checked
        self.started = True
        self._deltas.append(ToolCallStart(name=self._name, custom=self._tools[self._name]))

    def _send(self, text: str) -> None:
        if text:
            self._deltas.append(ToolCallDelta(text))

    def _break(self) -> None:
        self.ended = True
        self.failed = not self.started


def _string(value: str) -> str | None:
    try:
        decoded: Any = msgspec.json.decode(value)
    except msgspec.DecodeError:
        return None
    return decoded if isinstance(decoded, str) else None


def _custom_input(arguments: str) -> str:
    try:
        body: Any = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
    if isinstance(body, dict):
        inner = cast("dict[str, Any]", body)
        if isinstance(inner.get("input"), str):
            return inner["input"]
    return arguments
