"""An incremental parser of an answer that may hold tool calls as JSON objects. Pure.

A call stands between two markers. Where nothing forces a model into them it also writes the object bare on a line of
its own, or fenced like code; such an object is a call when it names a declared tool. Everything else stays text, byte
for byte, and the result is the same however the text is cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from antiphon.machine.deltas import TextDelta
from antiphon.machine.reasoning import partial_suffix
from antiphon.prompt.dialects.pieces import Piece, joined
from antiphon.prompt.dialects.scanner import CallScanner

__all__ = ["CallParser"]

_FENCE: Final = "```"
_FENCE_NAMES: Final = ("json", "tool_call", "tool_code", "tool")
_OBJECT_ON_LINE = r"\n[ \t]*(?:\{|```)"
_PARTIAL_ON_LINE = re.compile(r"\n[ \t]*`{1,2}\Z")

_MOST_REREAD: Final = 2**18
"""Characters read twice after which only the markers count, so that no answer costs more than linear time."""

_TEXT, _BLOCK, _OBJECT, _FENCE_OPEN, _FENCE_BODY, _FENCE_CLOSE = range(6)


class _Gap:
    """What was read before something that is not known yet, mostly whitespace; no character is looked at twice."""

    def __init__(self, own_line: bool) -> None:
        self.parts: list[str] = []
        self.own_line = own_line
        """Whether what follows is on a line of its own."""
        self.blank = True
        """Whether there is nothing but whitespace."""

    def add(self, text: str) -> None:
        if not text:
            return
        self.parts.append(text)
        newline = text.rfind("\n")
        self.own_line = (newline >= 0 or self.own_line) and not text[newline + 1 :].strip(" \t")
        self.blank = self.blank and text.isspace()

    def text(self) -> str:
        return "".join(self.parts)


class CallParser:
    """One answer. `tools` maps each declared name to whether it is a custom tool.

    Whitespace around calls is dropped, so that a turn of calls alone has no text. What stands between the markers and
    is no call is text without the markers.
    """

    def __init__(self, tools: Mapping[str, bool], open_marker: str, close_marker: str) -> None:
        self._tools = tools
        self._open = open_marker
        self._close = close_marker
        markers = f"{re.escape(open_marker)}|{re.escape(close_marker)}"
        self._markers = re.compile(markers)
        self._anywhere = re.compile(f"{markers}|{_OBJECT_ON_LINE}")
        self._state = _TEXT
        self._held: str = ""
        self._gap = _Gap(own_line=True)
        self._fresh = True
        self._block = False
        self._fenced = False
        self._block_had_call = False
        self._reread = 0
        self._scanner = CallScanner(tools)
        self._undecided: list[str] = []
        self.calls = 0
        """Calls that are complete."""

    @property
    def in_text(self) -> bool:
        """Whether the answer is in text now, not in a call or what may become one."""
        return self._state == _TEXT

    def feed(self, text: str) -> list[Piece]:
        """The pieces that can be told apart with this text."""
        if not self._tools:
            return [TextDelta(text)] if text else []
        self._held += text
        pieces: list[Piece] = []
        self._run(pieces)
        return joined(pieces)

    def _run(self, pieces: list[Piece]) -> None:
        steps = (
            self._text,
            self._in_block,
            self._object,
            self._fence_open,
            self._fence_body,
            self._fence_close,
        )
        while steps[self._state](pieces):
            pass

    def finish(self) -> list[Piece]:
        """What was held back, at the end of the answer. A call that was cut before its name is no text."""
        pieces: list[Piece] = []
        while self._state in (_OBJECT, _FENCE_OPEN, _FENCE_BODY) and not self._block and not self._scanner.started:
            self._give_back("{" if self._state == _OBJECT else _FENCE, pieces)
            self._run(pieces)
        if self._state == _TEXT:
            self._say(self._gap.text() + self._held, pieces)
        self._held = ""
        self._undecided = []
        self._gap = _Gap(own_line=False)
        return joined(pieces)

    def _say(self, text: str, pieces: list[Piece]) -> None:
        if self._fresh and self.calls:
            text = text.lstrip()
        if text:
            pieces.append(TextDelta(text))
            self._fresh = False

    def _text(self, pieces: list[Piece]) -> bool:
        # Whitespace waits for what follows it: before a call it is dropped.
        visible = self._held.lstrip()
        self._gap.add(self._held[: len(self._held) - len(visible)])
        self._held = visible
        if not visible:
            return False
        if visible.startswith((self._open, self._close)):
            return self._marker()
        objects = self._reread < _MOST_REREAD
        if objects and self._gap.own_line and visible.startswith(("{", _FENCE)):
            return self._maybe_call()
        if self._begins_marker(visible) or (objects and self._gap.own_line and _FENCE.startswith(visible)):
            return False
        match = (self._anywhere if objects else self._markers).search(visible)
        if match is None:
            limit = len(visible) - max(partial_suffix(visible, m) for m in (self._open, self._close))
            partial = _PARTIAL_ON_LINE.search(visible)
            limit = min(limit, partial.start()) if partial else limit
        else:
            limit = match.start()
        text = visible[:limit].rstrip()
        self._say(self._gap.text() + text, pieces)
        self._gap = _Gap(own_line=False)
        self._held = visible[len(text) :]
        return True

    def _begins_marker(self, text: str) -> bool:
        return self._open.startswith(text) or self._close.startswith(text)

    def _marker(self) -> bool:
        if self._held.startswith(self._open):
            self._held = self._held[len(self._open) :]
            self._state = _BLOCK
            self._block = True
            self._block_had_call = False
        else:
            # A closing marker alone is dropped, and the text goes on around it.
            self._held = self._held[len(self._close) :]
        return True

    def _maybe_call(self) -> bool:
        self._block = False
        self._fenced = self._held.startswith(_FENCE)
        if self._fenced:
            self._undecided = self._gap.parts
            self._gap = _Gap(own_line=False)
            self._state = _FENCE_OPEN
        else:
            self._expect_object()
        return True

    def _in_block(self, pieces: list[Piece]) -> bool:
        rest = self._held.lstrip(" \t\r\n[],}" if self._block_had_call else " \t\r\n[")
        self._gap.add(self._held[: len(self._held) - len(rest)])
        self._held = rest
        if rest.startswith("{"):
            self._expect_object()
            return True
        if rest.startswith(self._open):
            self._held = rest[len(self._open) :]
            return True
        if rest.startswith(self._close):
            self._held = rest[len(self._close) :]
            if not (self._block_had_call or self._gap.blank):
                self._say(self._gap.text(), pieces)
                self._gap = _Gap(own_line=False)
            self._leave_block()
            return True
        if self._begins_marker(rest):
            return False
        if not (self._block_had_call or self._gap.blank):
            # What opened a list of calls opens text instead.
            self._held = self._gap.text() + rest
            self._gap = _Gap(own_line=self._fresh)
        self._leave_block()
        return True

    def _leave_block(self) -> None:
        self._state = _TEXT
        if self._block_had_call:
            self._fresh = True
            self._gap = _Gap(own_line=True)

    def _expect_object(self) -> None:
        self._undecided += self._gap.parts
        self._gap = _Gap(own_line=False)
        self._scanner = CallScanner(self._tools)
        self._state = _OBJECT

    def _object(self, pieces: list[Piece]) -> bool:
        read = self._scanner.feed(self._held)
        if not self._scanner.started:
            self._undecided.append(self._held[:read])
        self._held = self._held[read:]
        pieces += self._scanner.take()
        if not self._scanner.ended:
            return False
        if self._scanner.failed:
            return self._give_back("{", pieces)
        self.calls += 1
        self._undecided = []
        self._gap = _Gap(own_line=True)
        self._fresh = True
        if self._block:
            self._block_had_call = True
            self._state = _BLOCK
        else:
            self._state = _FENCE_CLOSE if self._fenced else _TEXT
        return True

    def _fence_open(self, pieces: list[Piece]) -> bool:
        rest = self._held[len(_FENCE) :]
        name = re.match(r"[A-Za-z_]*", rest)
        language = name.group() if name else ""
        if language == rest and any(known.startswith(language) for known in _FENCE_NAMES):
            return False
        if language and language not in _FENCE_NAMES:
            return self._give_back(_FENCE, pieces)
        self._undecided.append(_FENCE + language)
        self._held = rest[len(language) :]
        self._state = _FENCE_BODY
        return True

    def _fence_body(self, pieces: list[Piece]) -> bool:
        rest = self._held.lstrip()
        self._undecided.append(self._held[: len(self._held) - len(rest)])
        self._held = rest
        if not rest:
            return False
        if not rest.startswith("{"):
            return self._give_back(_FENCE, pieces)
        self._expect_object()
        return True

    def _fence_close(self, pieces: list[Piece]) -> bool:
        rest = self._held = self._held.lstrip(" \t\r\n,")
        if rest.startswith("{"):
            self._expect_object()
            return True
        if rest != _FENCE and _FENCE.startswith(rest):
            return False
        self._held = rest.removeprefix(_FENCE)
        self._state = _TEXT
        return True

    def _give_back(self, head: str, pieces: list[Piece]) -> bool:
        """What looked like a call is text; only its first characters are sure, the rest is read again."""
        read = "".join(self._undecided)
        text = read + self._held
        self._undecided = []
        end = text.index(head) + len(head)
        self._reread += max(0, len(read) - end)
        self._say(text[:end], pieces)
        self._gap = _Gap(own_line=self._fresh)
        self._held = text[end:]
        self._state = _TEXT
        return True
