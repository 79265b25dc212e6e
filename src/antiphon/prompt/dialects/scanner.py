"""An incremental scanner of one JSON object that may be a tool call. Pure.

It reads `{"name": …, "arguments": {…}}` a piece at a time. As soon as the name is known to be a declared tool and its
arguments begin, the call has begun and its arguments leave as they come; until then the object can still turn out to
be no call, and then the scanner has failed and the caller keeps the text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, cast

import msgspec

from antiphon.machine.deltas import ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects.arguments import ArgumentsReader, custom_input
from antiphon.prompt.dialects.literals import LiteralReader

__all__ = ["CallScanner"]

_SPACE: Final = " \t\r\n"
_QUOTES: Final = "\"'"
_NAMES: Final = ("name",)
_ARGUMENTS: Final = ("arguments", "parameters")
_KNOWN: Final = frozenset({*_NAMES, *_ARGUMENTS, "type", "id", "function"})

_OPEN, _KEY, _COLON, _VALUE, _COMMA = range(5)


class CallScanner:
    """One object. `tools` maps each declared name to whether it is a custom tool.

    Of a tool in `apart` an object without arguments begins a call only: its input stands apart from it.
    """

    def __init__(self, tools: Mapping[str, bool], apart: Collection[str] = ()) -> None:
        self._tools = tools
        self._apart = apart
        self._phase = _OPEN
        self._reader: LiteralReader | ArgumentsReader | None = None
        self._taken: list[str] = []
        self._key = ""
        self._name: str | None = None
        self._arguments: str | None = None
        self._deltas: list[ToolCallStart | ToolCallDelta] = []
        self.started = False
        """Whether the call has begun; from then on the object cannot fail."""
        self.failed = False
        """Whether the object is no call."""
        self.ended = False
        """Whether the object is complete, or failed."""
        self.begun_only = False
        """Whether the input of the call is still to come."""

    def feed(self, text: str) -> int:
        """Read on; the result is how many characters were the object's. The rest comes after it."""
        place = 0
        while place < len(text) and not self.ended:
            if self._reader is not None:
                place = self._reader.feed(text, place)
                self._read_on(self._reader)
            elif text[place] in _SPACE:
                place += 1
            else:
                place = self._between(text, place)
        return place

    def take(self) -> list[ToolCallStart | ToolCallDelta]:
        """The deltas since the last call."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def _between(self, text: str, place: int) -> int:
        char = text[place]
        if self._phase == _VALUE:
            self._reader = self._value_reader()
            return place
        if self._phase == _KEY and char in _QUOTES:
            self._reader = LiteralReader()
            return place
        if self._phase == _OPEN and char == "{":
            self._phase = _KEY
        elif self._phase == _COLON and char == ":":
            self._phase = _VALUE
        elif self._phase == _COMMA and char == ",":
            self._phase = _KEY
        elif self._phase in (_KEY, _COMMA) and char == "}":
            self._end_object()
        else:
            self._break()
            return place
        return place + 1

    def _value_reader(self) -> LiteralReader | ArgumentsReader:
        if self._key in _ARGUMENTS and self._name is not None and not self.started:
            return ArgumentsReader(custom=self._tools[self._name])
        return LiteralReader()

    def _read_on(self, reader: LiteralReader | ArgumentsReader) -> None:
        text = reader.take()
        if isinstance(reader, ArgumentsReader):
            if reader.begun and not self.started:
                self._start()
            self._send(text)
        else:
            self._taken.append(text)
        if not reader.ended:
            return
        self._reader = None
        if reader.broken:
            self._break()
        elif self._phase == _KEY:
            self._end_key()
        else:
            self._phase = _COMMA
            if isinstance(reader, LiteralReader):
                self._end_value("".join(self._taken))
        self._taken.clear()

    def _end_key(self) -> None:
        self._key = _string("".join(self._taken)) or ""
        self._phase = _COLON
        if self._key not in _KNOWN and not self.started:
            self._break()

    def _end_value(self, value: str) -> None:
        if self.started:
            return
        if self._key in _NAMES:
            self._name = _string(value)
            if self._name not in self._tools:
                self._break()
        elif self._key in _ARGUMENTS:
            self._arguments = value
        elif self._key == "function":
            self._function(value)

    def _function(self, value: str) -> None:
        # Some models write the whole of chat completions' form: {"type": "function", "function": {"name": …}}.
        try:
            body: Any = msgspec.json.decode(value)
        except msgspec.DecodeError:  # a number beyond all bounds
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
        if self._arguments is None and self._name in self._apart:
            self._start()
            self.begun_only = True
            return
        arguments = self._arguments or "{}"
        if arguments.startswith('"'):
            arguments = _string(arguments) or "{}"
        elif not arguments.startswith("{"):
            arguments = "{}"
        self._start()
        self._send(custom_input(arguments) if self._tools[self._name] else arguments)

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
    return msgspec.json.decode(value, type=str) if value.startswith('"') else None
