"""An incremental parser of an answer that may hold tool calls. Pure.

Each family has markers, behind which its calls stand. Where nothing forces a model into them it also writes a call bare
on a line of its own, or fenced like code; what can be read as a call of a declared tool is one. Everything else stays
text, byte for byte but for the markers, and the result is the same however the text is cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from antiphon.machine.deltas import TextDelta
from antiphon.prompt.dialects.apart import ApartReader
from antiphon.prompt.dialects.pieces import CallReader, OpenEnded, Piece, joined
from antiphon.prompt.dialects.scanner import CallScanner

__all__ = ["CallParser", "Form", "FormParser", "json_call"]

_FENCE: Final = "```"
_PARTIAL_ON_LINE = re.compile(r"\n[ \t]*`{1,2}\Z")
_NEXT_CALL = re.compile(r"[;,]\s{0,64}")

_MOST_REREAD: Final = 2**18
"""Characters read twice after which only the markers count, so that no answer costs more than linear time."""

_TEXT, _BLOCK, _CALL, _LIST_OPEN, _LIST, _FENCE_OPEN, _FENCE_BODY, _FENCE_CLOSE = range(8)


class Form(Struct, frozen=True):
    """How a family marks its calls. No marker begins another.

    `opens` are the markers behind which calls stand, `others` are its other markers, which are dropped wherever they
    stand. `call` gives a reader for what begins with a character behind a marker, `bare` for what does so without one;
    None where no call begins so. `starts` are the characters with which a bare call begins a line: `[` begins a list
    of them. `before` are the characters that may stand between a marker and its call, `between` those around calls
    that follow each other. `fences` are the names of code blocks that may hold calls.
    """

    opens: Sequence[str]
    others: Sequence[str]
    call: Callable[[str], CallReader | None]
    bare: Callable[[str], CallReader | None]
    starts: str = "{"
    before: str = " \t\r\n["
    between: str = " \t\r\n[],}"
    fences: Sequence[str] = ("json", "tool_call", "tool_code", "tool")


def json_call(tools: Mapping[str, bool]) -> Callable[[str], CallReader | None]:
    """What reads calls that are JSON objects."""
    return lambda first: CallScanner(tools) if first == "{" else None


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


class _Markers:
    """Finds markers, and what may become one."""

    def __init__(self, markers: Sequence[str], starts: str) -> None:
        anyone = "|".join(re.escape(marker) for marker in markers)
        self._match = re.compile(anyone).match
        self.search = re.compile(anyone).search
        """The first marker."""
        self.search_calls = re.compile(rf"{anyone}|\n[ \t]*(?:[{re.escape(starts)}]|{_FENCE})").search
        """The first marker, or the first line that may be a call."""
        self._firsts = frozenset(marker[0] for marker in markers)
        self._longest = max(len(marker) for marker in markers)
        self._beginnings = frozenset(marker[:size] for marker in markers for size in range(1, len(marker)))

    def at(self, text: str, place: int = 0) -> str:
        """The marker at a place, or nothing."""
        match = self._match(text, place) if text[place : place + 1] in self._firsts else None
        return match.group() if match else ""

    def begins(self, text: str, place: int = 0) -> bool:
        """Whether the text from this place on is the beginning of a marker."""
        return len(text) - place < self._longest and text[place:] in self._beginnings

    def partial(self, text: str) -> int:
        """The length of the longest end of the text that begins a marker."""
        for size in range(min(len(text), self._longest - 1), 0, -1):
            if text[-size:] in self._beginnings:
                return size
        return 0

    def skip(self, text: str, chars: str) -> int:
        """The place behind the leading characters out of `chars`, before what is or may become a marker."""
        place = 0
        while place < len(text) and text[place] in chars:
            if text[place] in self._firsts and (self.at(text, place) or self.begins(text, place)):
                break
            place += 1
        return place


class FormParser:
    """One answer. `tools` maps each declared name to whether it is a custom tool.

    Whitespace around calls is dropped, so that a turn of calls alone has no text. What stands behind a marker and is
    no call is text without the marker.
    """

    def __init__(self, tools: Mapping[str, bool], form: Form) -> None:
        self._tools = tools
        self._form = form
        self._markers = _Markers([*form.opens, *form.others], form.starts)
        self._state = _TEXT
        self._held: str = ""
        self._gap = _Gap(own_line=True)
        self._fresh = True
        self._block = False
        self._listed = False
        self._fenced = False
        self._block_had_call = False
        self._reread = 0
        self._reader: CallReader = CallScanner(tools)
        self._undecided: list[str] = []
        self._head = ""
        self.calls = 0
        """Calls that are complete."""

    @property
    def in_text(self) -> bool:
        """Whether the answer is in text now, not in a call or what may become one."""
        return self._state == _TEXT

    @property
    def in_call(self) -> bool:
        """Whether a call has begun and is not complete."""
        return self._state == _CALL and self._reader.started

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
            self._in_call,
            self._list_open,
            self._in_list,
            self._fence_open,
            self._fence_body,
            self._fence_close,
        )
        while steps[self._state](pieces):
            pass

    def finish(self) -> list[Piece]:
        """What was held back, at the end of the answer. A call that was cut before its name is no text."""
        pieces: list[Piece] = []
        while self._undecided_at_end():
            self._give_back(pieces)
            self._run(pieces)
        if self._state == _TEXT:
            self._say(self._gap.text() + self._held, pieces)
        elif self._state == _CALL and isinstance(self._reader, OpenEnded):
            pieces += self._reader.finish(self._held)
        self._held = ""
        self._undecided = []
        self._gap = _Gap(own_line=False)
        return joined(pieces)

    def _undecided_at_end(self) -> bool:
        if self._state == _CALL:
            return not (self._block or self._reader.started)
        return self._state in (_LIST_OPEN, _FENCE_OPEN, _FENCE_BODY)

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
        marker = self._markers.at(visible)
        if marker:
            return self._at_marker(marker)
        if self._markers.begins(visible):
            return False
        lenient = self._reread < _MOST_REREAD
        if lenient and self._gap.own_line:
            if visible[0] in self._form.starts or visible.startswith(_FENCE):
                return self._maybe_call()
            if _FENCE.startswith(visible):
                return False
        if lenient and self._fresh and self.calls and visible[0] in ";,":
            end = self._behind_separator(visible)
            if end == len(visible) or self._markers.begins(visible, end):
                return False
            if self._maybe_next(end):
                return True
        match = (self._markers.search_calls if lenient else self._markers.search)(visible)
        if match is None:
            limit = len(visible) - self._markers.partial(visible)
            partial = _PARTIAL_ON_LINE.search(visible)
            limit = min(limit, partial.start()) if partial else limit
        else:
            limit = match.start()
        text = visible[:limit].rstrip()
        self._say(self._gap.text() + text, pieces)
        self._gap = _Gap(own_line=False)
        self._held = visible[len(text) :]
        return True

    @staticmethod
    def _behind_separator(text: str) -> int:
        match = _NEXT_CALL.match(text)
        return match.end() if match else 0

    def _at_marker(self, marker: str) -> bool:
        self._held = self._held[len(marker) :]
        if marker in self._form.opens:
            self._state = _BLOCK
            self._block = True
            self._block_had_call = False
        else:
            # Any other marker is dropped, and the text goes on around it; a bare call may begin behind it.
            self._gap.own_line = True
        return True

    def _maybe_call(self) -> bool:
        """What begins this line may be a bare call, a list of them, or a block of code that holds some."""
        self._block = self._listed = False
        self._fenced = self._held.startswith(_FENCE)
        if self._fenced:
            self._head = _FENCE
            self._undecided = self._gap.parts
            self._gap = _Gap(own_line=False)
            self._state = _FENCE_OPEN
        else:
            self._undecided = []
            self._bare_call()
        return True

    def _bare_call(self) -> None:
        first = self._held[0]
        self._head = first
        reader = self._form.bare(first)
        if reader is not None:
            self._expect(reader)
            return
        self._undecided += [*self._gap.parts, first]
        self._held = self._held[1:]
        self._gap = _Gap(own_line=False)
        self._state = _LIST_OPEN

    def _maybe_next(self, end: int) -> bool:
        """Whether what stands behind a bare call and a separator may be another one."""
        first = self._held[end]
        reader = self._form.bare(first) if first in self._form.starts else None
        if reader is None or self._markers.at(self._held, end):
            return False
        self._block = self._listed = self._fenced = False
        self._head = self._held[0]
        self._gap.add(self._held[:end])
        self._held = self._held[end:]
        self._undecided = []
        self._expect(reader)
        return True

    def _in_block(self, pieces: list[Piece]) -> bool:
        place = self._markers.skip(self._held, self._form.between if self._block_had_call else self._form.before)
        self._gap.add(self._held[:place])
        rest = self._held = self._held[place:]
        marker = self._markers.at(rest)
        if marker:
            self._held = rest[len(marker) :]
            if marker not in self._form.opens:
                if not (self._block_had_call or self._gap.blank):
                    self._say(self._gap.text(), pieces)
                    self._gap = _Gap(own_line=False)
                self._leave_block()
            return True
        if not rest or self._markers.begins(rest):
            return False
        reader = self._form.call(rest[0])
        if reader is not None:
            self._head = rest[0]
            if self._block_had_call:
                self._gap = _Gap(own_line=False)
            self._expect(reader)
            return True
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

    def _expect(self, reader: CallReader) -> None:
        self._undecided += self._gap.parts
        self._gap = _Gap(own_line=False)
        self._reader = reader
        self._state = _CALL

    def _in_call(self, pieces: list[Piece]) -> bool:
        read = self._reader.feed(self._held)
        if not self._reader.started:
            self._undecided.append(self._held[:read])
        self._held = self._held[read:]
        pieces += self._reader.take()
        if not self._reader.ended:
            return False
        if self._reader.failed:
            return self._give_back(pieces)
        self.calls += 1
        self._undecided = []
        self._gap = _Gap(own_line=True)
        self._fresh = True
        if self._block:
            self._block_had_call = True
            self._state = _BLOCK
        elif self._listed:
            self._state = _LIST
        else:
            self._state = _FENCE_CLOSE if self._fenced else _TEXT
        return True

    def _list_open(self, pieces: list[Piece]) -> bool:
        rest = self._held.lstrip()
        self._undecided.append(self._held[: len(self._held) - len(rest)])
        self._held = rest
        if not rest:
            return False
        reader = self._form.bare(rest[0])
        if reader is None:
            return self._give_back(pieces)
        self._listed = True
        self._expect(reader)
        return True

    def _in_list(self, pieces: list[Piece]) -> bool:
        rest = self._held.lstrip(" \t\r\n,;")
        self._gap.add(self._held[: len(self._held) - len(rest)])
        self._held = rest
        if not rest:
            return False
        reader = self._form.bare(rest[0])
        if reader is not None:
            self._head = rest[0]
            self._expect(reader)
            return True
        self._held = rest.removeprefix("]")
        self._gap = _Gap(own_line=True)
        self._listed = False
        self._state = _FENCE_CLOSE if self._fenced else _TEXT
        return True

    def _fence_open(self, pieces: list[Piece]) -> bool:
        rest = self._held[len(_FENCE) :]
        name = re.match(r"[A-Za-z_]*", rest)
        language = name.group() if name else ""
        if language == rest and any(known.startswith(language) for known in self._form.fences):
            return False
        if language and language not in self._form.fences:
            return self._give_back(pieces)
        self._undecided.append(_FENCE + language)
        self._held = rest[len(language) :]
        self._state = _FENCE_BODY
        return True

    def _fence_body(self, pieces: list[Piece]) -> bool:
        rest = self._held.lstrip()
        self._undecided.append(self._held[: len(self._held) - len(rest)])
        self._held = rest
        if not rest or self._markers.begins(rest):
            return False
        if rest[0] not in self._form.starts or self._markers.at(rest):
            return self._give_back(pieces)
        self._bare_call()
        self._head = _FENCE
        return True

    def _fence_close(self, pieces: list[Piece]) -> bool:
        rest = self._held = self._held.lstrip(" \t\r\n,;")
        if not rest or self._markers.begins(rest) or (rest != _FENCE and _FENCE.startswith(rest)):
            return False
        if rest[0] in self._form.starts and not self._markers.at(rest):
            self._bare_call()
            return True
        self._held = rest.removeprefix(_FENCE)
        self._state = _TEXT
        return True

    def _give_back(self, pieces: list[Piece]) -> bool:
        """What looked like a call is text; only its first characters are sure, the rest is read again."""
        read = "".join(self._undecided)
        text = read + self._held
        self._undecided = []
        end = text.index(self._head) + len(self._head)
        self._reread += max(0, len(read) - end)
        self._say(text[:end], pieces)
        self._gap = _Gap(own_line=self._fresh)
        self._held = text[end:]
        self._state = _TEXT
        return True


class CallParser(FormParser):
    """One answer whose calls are JSON objects between two markers.

    The inputs of the tools in `apart` may stand between the object and the closing marker.
    """

    def __init__(
        self, tools: Mapping[str, bool], open_marker: str, close_marker: str, apart: Collection[str] = ()
    ) -> None:
        bare = json_call(tools)

        def call(first: str) -> CallReader | None:
            return ApartReader(tools, apart, close_marker) if first == "{" else None

        form = Form(opens=(open_marker,), others=(close_marker,), call=call if apart else bare, bare=bare)
        super().__init__(tools, form)
