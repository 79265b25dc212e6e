"""Calls in Python's form, `NAME(KEY=VALUE, …)`, read a piece at a time; their arguments come out as JSON. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from antiphon.machine.deltas import ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects.arguments import InputReader
from antiphon.prompt.dialects.base import callable_tools, tool_parameters
from antiphon.prompt.dialects.literals import LiteralReader
from antiphon.prompt.dialects.named_calls import begins_name
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.json import encode

__all__ = ["PythonCall", "parameter_names"]

_SPACE: Final = " \t\r\n"
_PREFIXES: Final = ("functions.", "default_api.", "tools.")
_SUFFIXES: Final = (".call",)
"""What some models put around the name of a tool."""

_WORD = re.compile(r"""[^\s=,()\[\]{}'"*]+""")
_PLAIN_WORD = re.compile(r"[-+.0-9].*|[Tt]rue|[Ff]alse|None|null")
"""A word that is a value without a name; any other may be prose."""

_UNPACK: Final = "**"
_MOST_BESIDE_NAME: Final = 128
_LONGEST_KEY: Final = 1024
"""Characters after which what began like the name of a parameter is none."""

_NAME, _NEXT, _WORDED, _BEHIND_WORD, _ASSIGNED, _VALUE, _AFTER, _STARS, _UNPACKED = range(9)


def parameter_names(prompt: Prompt) -> dict[str, Sequence[str]]:
    """The names of the parameters of each tool that may be called now, in their order.

    Raises:
        InvalidRequestError: the parameters are too large (M12), or are not an object.
    """
    allowed = callable_tools(prompt)
    return {
        tool.name: [parameter.name for parameter in tool_parameters(tool)]
        for tool in prompt.tools
        if tool.name in allowed
    }


class PythonCall:
    """One call. `tools` maps each declared name to whether it is a custom tool, `parameters` to its parameters, by
    which arguments without a name are named.

    The call has begun when its first argument or its end is there: a name and a bracket alone may be prose.
    """

    def __init__(self, tools: Mapping[str, bool], parameters: Mapping[str, Sequence[str]]) -> None:
        self._tools = tools
        self._parameters = parameters
        self._names = [
            prefix + name + suffix for name in tools for prefix in ("", *_PREFIXES) for suffix in ("", *_SUFFIXES)
        ]
        self._longest = max(map(len, tools), default=0) + _MOST_BESIDE_NAME
        self._step = _NAME
        self._text = ""
        self._name = ""
        self._word = ""
        self._keys: set[str] = set()
        self._unnamed = 0
        self._reader = LiteralReader(python=True)
        self._muted = False
        self._unpacked = 0
        self._input: InputReader | None = None
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
            if self._step == _NAME:
                place = self._in_name(text, place)
            elif self._step == _WORDED:
                place = self._in_word(text, place)
            elif self._step in (_VALUE, _UNPACKED):
                place = self._in_value(text, place)
            elif text[place] in _SPACE:
                place += 1
            else:
                place = self._between(text, place)
        return place

    def take(self) -> list[ToolCallStart | ToolCallDelta]:
        """The deltas since the last call."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def finish(self, text: str) -> list[ToolCallStart | ToolCallDelta]:
        """What was held back at the end of the answer, of a raw string that has no end of its own."""
        if self._step == _VALUE and not self.ended:
            self._send_value(self._reader.finish())
        return self.take()

    def _in_name(self, text: str, place: int) -> int:
        end = text.find("(", place)
        before = len(self._text)
        self._text += text[place : end if end >= 0 else len(text)]
        if len(self._text) > self._longest or not begins_name(self._text, self._names):
            self._break()
        elif end >= 0:
            name = self._declared(self._text.strip())
            if name is None:
                self._break()
            else:
                self._name = name
                self._step = _NEXT
                return end + 1
        return place + len(self._text) - before

    def _declared(self, text: str) -> str | None:
        for name in self._tools:
            if text == name or (text.endswith(name) and text.removesuffix(name) in _PREFIXES):
                return name
        for suffix in _SUFFIXES:
            if text.endswith(suffix):
                return self._declared(text.removesuffix(suffix))
        return None

    def _between(self, text: str, place: int) -> int:
        char = text[place]
        if self._step == _BEHIND_WORD:
            return self._behind_word(char, place)
        if char == ")" and self._step in (_NEXT, _AFTER):
            self._end()
            return place + 1
        if char == "," and self._step == _AFTER:
            self._step = _NEXT
            return place + 1
        if char == "*" and self._step in (_NEXT, _STARS):
            self._step = _STARS if self._step == _NEXT else _ASSIGNED
            self._word = "*" if self._step == _STARS else _UNPACK
            return place + 1
        if self._step == _ASSIGNED:
            return self._begin_value(char, place)
        if self._step != _NEXT:
            self._break()
            return place
        if _WORD.match(char):
            self._word = ""
            self._step = _WORDED
            return place
        return self._begin_unnamed(char, place)

    def _in_word(self, text: str, place: int) -> int:
        match = _WORD.match(text, place)
        end = match.end() if match else place
        self._word += text[place:end]
        if len(self._word) > _LONGEST_KEY:
            self._break()
        elif end < len(text):
            self._step = _BEHIND_WORD
        return end

    def _behind_word(self, char: str, place: int) -> int:
        if char == "=":
            self._step = _ASSIGNED
            return place + 1
        word = self._word
        if char not in ",)" or not _PLAIN_WORD.fullmatch(word):
            self._break()
            return place
        if not self._begin_named(self._next_unnamed()):
            return place
        self._reader.feed(word)
        self._reader.feed(char)
        self._step = _VALUE
        self._end_value()
        return place

    def _begin_unnamed(self, char: str, place: int) -> int:
        if char not in "\"'[{(" or not self._begin_named(self._next_unnamed()):
            self._break()
        return place

    def _next_unnamed(self) -> str | None:
        names = self._parameters[self._name]
        self._unnamed += 1
        return names[self._unnamed - 1] if self._unnamed <= len(names) else None

    def _begin_named(self, key: str | None) -> bool:
        """Whether an argument of this name can begin."""
        if key is None:
            self._break()
            return False
        self._start()
        self._muted = key in self._keys
        if not self._muted:
            self._send(f"{', ' if self._keys else ''}{encode(key).decode()}: ")
        self._keys.add(key)
        self._reader = LiteralReader(python=True)
        self._step = _VALUE
        return True

    def _begin_value(self, char: str, place: int) -> int:
        if self._word != _UNPACK:
            self._begin_named(self._word)
        elif char == "{" and not self._keys:
            self._start(opened=False)
            self._muted = False
            self._reader = LiteralReader(python=True)
            self._unpacked = 0
            self._step = _UNPACKED
        else:
            self._break()
        return place

    def _in_value(self, text: str, place: int) -> int:
        place = self._reader.feed(text, place)
        if self._reader.ended:
            self._end_value()
        else:
            text = self._reader.take()
            self._unpacked += len(text)
            self._send_value(text)
        return place

    def _end_value(self) -> None:
        text = self._reader.take()
        if self._step == _UNPACKED and not self._reader.broken:
            # More arguments may follow, and then the brace is no end.
            text = text.removesuffix("}")
            if self._unpacked + len(text) > len("{"):
                self._keys.add(_UNPACK)
        self._send_value(text)
        if self._reader.broken:
            self._break()
        self._step = _AFTER

    def _start(self, *, opened: bool = True) -> None:
        if self.started:
            return
        self.started = True
        custom = self._tools[self._name]
        self._input = InputReader() if custom else None
        self._deltas.append(ToolCallStart(name=self._name, custom=custom))
        if opened:
            self._send("{")

    def _end(self) -> None:
        self._start()
        self._send("}")
        if self._input is not None and self._keys:
            rest = self._input.end()
            self._deltas += [ToolCallDelta(rest)] if rest else []
        self.ended = True

    def _break(self) -> None:
        self.ended = True
        self.failed = not self.started

    def _send_value(self, text: str) -> None:
        if not self._muted:
            self._send(text)

    def _send(self, text: str) -> None:
        if self._input is not None:
            text = self._input.feed(text)
        if text:
            self._deltas.append(ToolCallDelta(text))
