"""Calls whose arguments stand between tags, one pair for each: how such a call is read, a piece at a time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from antiphon.machine.deltas import ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects.arguments import ArgumentsReader
from antiphon.prompt.dialects.kinds import Arguments
from antiphon.prompt.dialects.values import INPUT, ValueReader
from antiphon.protocol.json import encode

__all__ = ["TaggedScanner", "Tags"]

_SPACE: Final = " \t\r\n"
_BEHIND_NAME: Final = " \t\r\n<{"
_LONGEST_KEY: Final = 1024
"""Characters after which what began like the name of a parameter is none."""


class Tags(Struct, frozen=True):
    """The tags of one family.

    A call stands in a block between `open_block` and `close_block`. It is its name between `open_call` and
    `close_name`, its parameters, and `close_call`; a family that has no `open_call` ends the name with a line break or
    the next tag. A parameter is its name between `open_key` and `close_key`, and its value up to `close_value`, behind
    `open_value` where there is one. `trims` says that tags and values stand on lines of their own, whose breaks are not
    the values'; without it a line break may stand behind a tag.
    """

    open_block: str
    close_block: str
    open_key: str
    close_key: str
    close_value: str
    open_value: str = ""
    open_call: str = ""
    close_name: str = ""
    close_call: str = ""
    trims: bool = False


class TaggedScanner:
    """One call within its block. `tools` maps each declared name to its arguments, None for a custom tool.

    As soon as the name is known to be declared, the call has begun; what cannot be part of it is dropped from then on.
    """

    def __init__(self, tags: Tags, tools: Mapping[str, Arguments | None]) -> None:
        self._tags = tags
        self._tools = tools
        self._step = self._call if tags.open_call else self._name
        self._arguments: Arguments | None = None
        self._custom = False
        self._keys: set[str] = set()
        self._value: ValueReader | None = None
        self._muted = False
        self._body: ArgumentsReader | None = None
        self._deltas: list[ToolCallStart | ToolCallDelta] = []
        self.started = False
        """Whether the call has begun; from then on it cannot fail."""
        self.failed = False
        """Whether it is no call."""
        self.ended = False
        """Whether the call is complete, or failed."""

    def feed(self, text: str) -> int:
        """Read on; the result is how many characters need not be shown again. The rest comes after them."""
        place = 0
        while not self.ended:
            # A step that can tell nothing yet stays where it is.
            step, place_before = self._step, place
            place = step(text, place)
            if place == place_before and self._step == step:
                break
        return place

    def take(self) -> list[ToolCallStart | ToolCallDelta]:
        """The deltas since the last call."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def _call(self, text: str, place: int) -> int:
        if text.startswith(self._tags.open_call, place):
            self._step = self._name
            return place + len(self._tags.open_call)
        if not self._tags.open_call.startswith(text[place:]):
            self._fail()
        return place

    def _name(self, text: str, place: int) -> int:
        rest = text[place:]
        waiting = False
        for name in self._tools:
            if rest.startswith(name):
                end = self._name_end(rest, len(name))
                if end is not None and end >= 0:
                    self._start(name)
                    return place + end
                waiting = waiting or end is None
            elif name.startswith(rest):
                waiting = True
        if not waiting:
            self._fail()
        return place

    def _name_end(self, rest: str, place: int) -> int | None:
        """Where the body begins if the name ends at this place; -1 where not, None where more text must tell."""
        if self._tags.close_name:
            if rest.startswith(self._tags.close_name, place):
                return place + len(self._tags.close_name)
            return None if self._tags.close_name.startswith(rest[place:]) else -1
        if place == len(rest):
            return None
        return place if rest[place] in _BEHIND_NAME else -1

    def _between(self, text: str, place: int) -> int:
        tags = self._tags
        place = _past_space(text, place)
        rest = text[place : place + _LONGEST_KEY]
        if not rest:
            return place
        if rest.startswith(tags.open_key):
            self._step = self._key
            return place + len(tags.open_key)
        if tags.close_call and rest.startswith(tags.close_call):
            self._end()
            return place + len(tags.close_call)
        ends = [tag for tag in (tags.close_block, tags.open_block, tags.open_call) if tag]
        if any(rest.startswith(tag) for tag in ends):
            self._end()
            return place
        if rest[0] == "{" and not self._keys:
            self._body = ArgumentsReader(custom=self._custom)
            self._step = self._object
            return place
        if any(tag.startswith(rest) for tag in (*ends, tags.open_key, tags.close_call)):
            return place
        return place + 1

    def _key(self, text: str, place: int) -> int:
        end = text.find(self._tags.close_key, place, place + _LONGEST_KEY)
        if end < 0:
            if len(text) - place < _LONGEST_KEY:
                return place
            self._step = self._between
            return place
        name = text[place:end]
        self._step = self._before_value if self._tags.open_value else self._in_value
        self._muted = name in self._keys or (self._custom and name != INPUT)
        if not self._muted and not self._custom:
            self._send(f"{',' if self._keys else ''}{encode(name).decode()}:")
        self._keys.add(name)
        self._value = ValueReader(self._tags.close_value, trims=self._tags.trims, name=name, arguments=self._arguments)
        return end + len(self._tags.close_key)

    def _before_value(self, text: str, place: int) -> int:
        place = _past_space(text, place)
        if text.startswith(self._tags.open_value, place):
            self._step = self._in_value
            return place + len(self._tags.open_value)
        if not self._tags.open_value.startswith(text[place:]):
            # A key without a value.
            self._send_value("null" if not self._custom else "")
            self._step = self._between
        return place

    def _in_value(self, text: str, place: int) -> int:
        assert self._value is not None  # noqa: S101 - set with the key
        place = self._value.feed(text, place)
        self._send_value(self._value.take())
        if self._value.ended:
            self._step = self._between
        return place

    def _object(self, text: str, place: int) -> int:
        """Some models write the arguments as one object between the tags of the call."""
        assert self._body is not None  # noqa: S101 - set before this step
        place = self._body.feed(text, place)
        self._send(self._body.take())
        if self._body.ended:
            self._step = self._behind_object
        return place

    def _behind_object(self, text: str, place: int) -> int:
        tags = self._tags
        place = _past_space(text, place)
        if tags.close_call and not text.startswith(tags.close_call, place):
            self.ended = not tags.close_call.startswith(text[place:])
            return place
        place += len(tags.close_call)
        self.ended = True
        return place

    def _start(self, name: str) -> None:
        self._arguments = self._tools[name]
        self._custom = self._arguments is None
        self.started = True
        self._deltas.append(ToolCallStart(name=name, custom=self._custom))
        self._step = self._opening

    def _opening(self, text: str, place: int) -> int:
        """The object begins when it is known whether it is written as one."""
        place = _past_space(text, place)
        if place == len(text):
            return place
        if text[place] != "{" and not self._custom:
            self._send("{")
        self._step = self._between
        return place

    def _end(self) -> None:
        if not self._custom:
            self._send("}")
        self.ended = True

    def _fail(self) -> None:
        self.ended = self.failed = True

    def _send_value(self, text: str) -> None:
        if not self._muted:
            self._send(text)

    def _send(self, text: str) -> None:
        if text:
            self._deltas.append(ToolCallDelta(text))


def _past_space(text: str, place: int) -> int:
    while place < len(text) and text[place] in _SPACE:
        place += 1
    return place
