"""An incremental parser of an answer that may hold tool calls as JSON objects. Pure.

A call stands between two markers. Where nothing forces a model into them it also writes the object bare on a line of
its own, or fenced like code; such an object is a call when it names a declared tool. Everything else stays text, byte
for byte, and the result is the same however the text is cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from antiphon.machine.deltas import TextDelta, ToolCallDelta, ToolCallStart
from antiphon.machine.reasoning import partial_suffix
from antiphon.prompt.dialects.scanner import CallScanner

__all__ = ["CallParser", "Piece"]

Piece = TextDelta | ToolCallStart | ToolCallDelta
"""What a parser yields."""

_FENCE: Final = "```"
_FENCE_NAMES: Final = ("json", "tool_call", "tool_code", "tool")
_OBJECT_ON_LINE = r"\n[ \t]*(\{|```)"
_PARTIAL_ON_LINE = re.compile(r"\n[ \t]*`{1,2}\Z")
_PARTIAL_AT_START = re.compile(r"(?:\A|\n)[ \t]*`{1,2}\Z")

_MOST_REREAD: Final = 2**18
"""Characters read twice after which only the markers count, so that no answer costs more than linear time."""

_TEXT, _BLOCK, _OBJECT, _FENCE_OPEN, _FENCE_CLOSE = range(5)


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
        self._at_start = re.compile(rf"{markers}|(?:\A|\n)[ \t]*(\{{|```)")
        self._state = _TEXT
        self._held: str = ""
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
        return _joined(pieces)

    def _run(self, pieces: list[Piece]) -> None:
        steps = (self._text, self._in_block, self._object, self._fence_open, self._fence_close)
        while steps[self._state](pieces):
            pass

    def finish(self) -> list[Piece]:
        """What was held back, at the end of the answer. A call that was cut before its name is no text."""
        pieces: list[Piece] = []
        while self._state in (_OBJECT, _FENCE_OPEN) and not self._block and not self._scanner.started:
            self._give_back("{" if self._state == _OBJECT else _FENCE, pieces)
            self._run(pieces)
        if self._state == _TEXT:
            self._say(self._held, pieces)
        self._held = ""
        self._undecided.clear()
        return _joined(pieces)

    def _say(self, text: str, pieces: list[Piece]) -> None:
        if self._fresh and self.calls:
            text = text.lstrip()
        if text:
            pieces.append(TextDelta(text))
            self._fresh = False

    def _text(self, pieces: list[Piece]) -> bool:
        pattern = self._at_start if self._fresh else self._anywhere
        match = (pattern if self._reread < _MOST_REREAD else self._markers).search(self._held)
        if match is None:
            limit = len(self._held) - max(partial_suffix(self._held, m) for m in (self._open, self._close))
            partial = (_PARTIAL_AT_START if self._fresh else _PARTIAL_ON_LINE).search(self._held)
            limit = min(limit, partial.start()) if partial else limit
            # Whitespace waits for what follows it: before a call it is dropped.
            limit = len(self._held[:limit].rstrip())
            self._say(self._held[:limit], pieces)
            self._held = self._held[limit:]
            return False
        start = len(self._held[: match.start()].rstrip())
        self._say(self._held[:start], pieces)
        if match.group() in (self._open, self._close):
            return self._marker(match, start, pieces)
        self._undecided = [self._held[start : match.start(1)]]
        self._held = self._held[match.start(1) :]
        self._block = False
        self._fenced = match.group(1) == _FENCE
        if self._fenced:
            self._state = _FENCE_OPEN
        else:
            self._expect_object()
        return True

    def _marker(self, match: re.Match[str], start: int, pieces: list[Piece]) -> bool:
        gap = self._held[start : match.start()]
        self._held = self._held[match.end() :]
        if match.group() == self._open:
            self._state = _BLOCK
            self._block = True
            self._block_had_call = False
            self._undecided = [gap]
        else:
            # A closing marker alone is dropped, and the text goes on around it.
            self._held = gap + self._held
        return True

    def _in_block(self, pieces: list[Piece]) -> bool:
        filler = " \t\r\n[],}" if self._block_had_call else " \t\r\n["
        rest = self._held.lstrip(filler)
        if rest.startswith("{"):
            self._undecided.append(self._held[: len(self._held) - len(rest)])
            self._held = rest
            self._expect_object()
            return True
        if rest.startswith(self._open):
            self._held = rest[len(self._open) :]
            return True
        if rest.startswith(self._close):
            inner = "".join(self._undecided) + self._held[: len(self._held) - len(rest)]
            self._held = rest[len(self._close) :]
            self._leave_block("" if self._block_had_call else inner, pieces)
            return True
        if self._open.startswith(rest) or self._close.startswith(rest):
            return False
        inner = "" if self._block_had_call else "".join(self._undecided)
        self._held = rest if self._block_had_call else self._held
        self._leave_block(inner, pieces)
        return True

    def _leave_block(self, text: str, pieces: list[Piece]) -> None:
        self._undecided.clear()
        self._state = _TEXT
        if text.strip():
            self._say(text, pieces)
        else:
            self._held = text + self._held
        self._fresh = self._fresh or self._block_had_call

    def _expect_object(self) -> None:
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
        self._undecided.clear()
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
        after = rest[len(language) :].lstrip()
        if (language and language not in _FENCE_NAMES) or (after and not after.startswith("{")):
            return self._give_back(_FENCE, pieces)
        if not after:
            return False
        self._undecided.append(self._held[: len(self._held) - len(after)])
        self._held = after
        self._expect_object()
        return True

    def _fence_close(self, pieces: list[Piece]) -> bool:
        rest = self._held.lstrip(" \t\r\n,")
        if rest.startswith("{"):
            self._held = rest
            self._undecided.clear()
            self._expect_object()
            return True
        if _FENCE.startswith(rest):
            if rest != _FENCE:
                return False
            rest = ""
        elif rest.startswith(_FENCE):
            rest = rest[len(_FENCE) :]
        self._held = rest
        self._state = _TEXT
        return True

    def _give_back(self, head: str, pieces: list[Piece]) -> bool:
        """What looked like a call is text; only its first characters are sure, the rest is read again."""
        read = "".join(self._undecided)
        text = read + self._held
        self._undecided.clear()
        end = text.index(head) + len(head)
        self._reread += max(0, len(read) - end)
        self._say(text[:end], pieces)
        self._held = text[end:]
        self._state = _TEXT
        return True


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if isinstance(piece, TextDelta) and isinstance(last, TextDelta):
            joined[-1] = TextDelta(last.text + piece.text)
        elif isinstance(piece, ToolCallDelta) and isinstance(last, ToolCallDelta):
            joined[-1] = ToolCallDelta(last.text + piece.text)
        else:
            joined.append(piece)
    return joined
