"""Calls that are a header with the tool's name and the arguments in JSON behind it, read a piece at a time. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from antiphon.machine.deltas import ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects.arguments import ArgumentsReader
from antiphon.prompt.dialects.raw_input import RawInput

__all__ = ["Arguments", "Header", "NamedCall", "begins_name"]

_MOST_BESIDE_NAME: Final = 128
"""Characters of a header beside the name, after which it is none."""

_OBJECT: Final = "{"
_BLANK = re.compile(r"\s*")


def begins_name(text: str, names: Iterable[str], behind: re.Pattern[str] = _BLANK) -> bool:
    """Whether a text is, or may become, one of these names; `behind` is what may stand behind a name."""
    text = text.lstrip()
    return any(
        name.startswith(text) or (text.startswith(name) and behind.fullmatch(text, len(name)) is not None)
        for name in names
    )


class Header(Struct, frozen=True):
    """What stands before the arguments.

    `marks` part the header, and behind one of `ends` the arguments begin; without one they begin with their brace. A
    call that is over before any, at one of `stops`, has none. `name` finds the name of the tool among its parts, and
    None where it is none; `may_be` says whether the parts, of which the last one may go on, can still become one.
    The input of a tool in `raw` stands as it is, behind one of `ends` or of `raw_ends`, up to one of `stops`.
    """

    name: Callable[[Sequence[str]], str | None]
    may_be: Callable[[Sequence[str]], bool]
    marks: Sequence[str] = ()
    ends: Sequence[str] = ()
    stops: Sequence[str] = ()
    raw: Collection[str] = ()
    raw_ends: Collection[str] = ()


class Arguments(Protocol):
    """A reader of the arguments of one call, as `ArgumentsReader` is for JSON."""

    ended: bool
    """Whether the arguments are complete, or broken."""

    @property
    def begun(self) -> bool:
        """Whether something that can be arguments has begun."""
        ...

    def feed(self, text: str, place: int = 0) -> int:
        """Read on from a place in the text; the result is the place behind what need not be shown again."""
        ...

    def take(self) -> str:
        """The text for deltas that came since the last call."""
        ...


class NamedCall:
    """One call. `tools` maps each declared name to whether it is a custom tool.

    `arguments` makes the reader of the arguments; it is told whether they are those of a custom tool.
    """

    def __init__(
        self,
        tools: Mapping[str, bool],
        header: Header,
        arguments: Callable[[bool], Arguments] = lambda custom: ArgumentsReader(custom=custom),
    ) -> None:
        self._tools = tools
        self._header = header
        self._new_arguments = arguments
        marks = [*header.marks, *header.ends, *header.stops]
        self._mark = re.compile("|".join([*map(re.escape, marks), re.escape(_OBJECT)]))
        self._beginnings = frozenset(mark[:size] for mark in marks for size in range(1, len(mark)))
        self._longest_mark = max((len(mark) for mark in marks), default=1)
        self._most = max(map(len, tools), default=0) + _MOST_BESIDE_NAME
        self._parts: list[str] = []
        self._part = ""
        self._name = ""
        self._arguments: Arguments | None = None
        self._deltas: list[ToolCallStart | ToolCallDelta] = []
        self.started = False
        """Whether the call has begun; from then on it cannot fail."""
        self.failed = False
        """Whether it is no call."""
        self.ended = False
        """Whether the call is complete, or failed."""

    def feed(self, text: str) -> int:
        """Read on; the result is how many characters were the call's. The rest comes after it."""
        place = 0
        while place < len(text) and not self.ended:
            before, reader = place, self._arguments
            place = self._in_header(text, place) if reader is None else self._in_arguments(text, place)
            if place == before and reader is self._arguments:
                break
        return place

    def take(self) -> list[ToolCallStart | ToolCallDelta]:
        """The deltas since the last call."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def finish(self, text: str) -> list[ToolCallStart | ToolCallDelta]:
        """What was held back, at the end of the answer; `text` is what would have been shown again."""
        if isinstance(self._arguments, RawInput) and not self.ended:
            self._start()
            self._send(text)
        return self.take()

    def _in_header(self, text: str, place: int) -> int:
        before = len(self._part)
        self._part += text[place : place + self._most + self._longest_mark - before]
        match = self._mark.search(self._part)
        if match is None:
            settled = self._part[: len(self._part) - self._partial()]
            if len(settled) > self._most or not self._header.may_be([*self._parts, settled]):
                self._fail()
            return place + len(self._part) - before
        self._parts.append(self._part[: match.start()])
        self._part = ""
        mark = match.group()
        if len(self._parts[-1]) > self._most or not self._header.may_be(self._parts):
            self._fail()
        elif mark not in self._header.marks or self._is_raw(mark):
            self._begin(mark)
        return place + (match.start() if mark == _OBJECT else match.end()) - before

    def _is_raw(self, mark: str) -> bool:
        return mark in self._header.raw_ends and self._header.name(self._parts) in self._header.raw

    def _partial(self) -> int:
        for size in range(min(len(self._part), self._longest_mark - 1), 0, -1):
            if self._part[-size:] in self._beginnings:
                return size
        return 0

    def _begin(self, mark: str) -> None:
        name = self._header.name(self._parts)
        if name is None or name not in self._tools:
            self._fail()
            return
        self._name = name
        if name in self._header.raw and mark != _OBJECT:
            self._arguments = RawInput(self._header.stops)
        else:
            self._arguments = self._new_arguments(self._tools[name])
        if mark in self._header.stops:
            self._start()
            self._without_arguments()

    def _in_arguments(self, text: str, place: int) -> int:
        assert self._arguments is not None  # noqa: S101 - feed has looked
        place = self._arguments.feed(text, place)
        if self._arguments.begun:
            self._start()
            self._send(self._arguments.take())
            self.ended = self._arguments.ended
        elif self._arguments.ended:
            if any(text[place] == stop[0] for stop in self._header.stops):
                self._start()
                self._without_arguments()
            else:
                self._fail()
        return place

    def _start(self) -> None:
        if not self.started:
            self.started = True
            self._deltas.append(ToolCallStart(name=self._name, custom=self._tools[self._name]))

    def _without_arguments(self) -> None:
        self.ended = True
        if not self._tools[self._name]:
            self._send("{}")

    def _send(self, text: str) -> None:
        if text:
            self._deltas.append(ToolCallDelta(text))

    def _fail(self) -> None:
        self.ended = self.failed = True
