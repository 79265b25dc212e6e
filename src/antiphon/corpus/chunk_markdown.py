"""Blocks of Markdown: headings, paragraphs, and fenced code, tables and lists that are kept together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from antiphon.corpus.blocks import MOST_BLOCK, Block, by_lines, by_sentences, by_words

__all__ = ["markdown_blocks"]

_ATX: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\n?\Z")
_SETEXT: Final = re.compile(r" {0,3}(=+|-+)[ \t]*\n?\Z")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_TABLE: Final = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*(?:\|[ \t]*)?\n?\Z")
_ITEM: Final = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(?:[ \t]|\n)")
_LONGEST_HEADING: Final = 2_000
_LONGEST_FENCE: Final = 10
_PROSE: Final = (by_sentences, by_lines, by_words)
_LINES: Final = (by_lines, by_sentences, by_words)


class _Open:
    """The block that lines are added to."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self.first = 0
        self.begin()

    def begin(self, kind: str = "text", header: str = "", close: str = "") -> None:
        """Nothing is held of a block of this kind; one that has a closing line closes."""
        self.kind, self.header, self.close = kind, header, close
        self.lines: list[str] = []
        self.size = 0
        self.blank = self.closed = self.continued = False

    def add(self, line: str, number: int) -> None:
        if not self.lines:
            self.first = number
        self.lines.append(line)
        self.size += len(line)
        self.blank = not line.strip()

    def ended(self) -> Iterator[Block]:
        """The block, if there is one; another may be begun."""
        if self.lines:
            text = "".join(self.lines)
            yield Block(
                text,
                self.kind,
                unit=self._unit,
                first=self.first,
                last=self.first + text.rstrip().count("\n"),
                header=self.header,
                close=self.close,
                continued=self.continued,
                splitters=_PROSE if self.kind == "text" else _LINES,
            )
        self.begin()

    def parted(self) -> Iterator[Block]:
        """A block that has become too long ends, and goes on in another of its kind."""
        kind, header, close = self.kind, self.header, self.close
        yield from self.ended()
        self.begin(kind, header, close)
        self.continued = bool(header)


def markdown_blocks(lines: Iterable[str], unit: str = "line") -> Iterator[Block]:
    """The blocks of Markdown; a `unit` other than line is for text that was made of something else."""
    held = _Open(unit)
    fence = ""
    for number, line in enumerate(lines, 1):
        if held.size > MOST_BLOCK and not held.closed:
            yield from held.parted()
        if fence:
            held.add(line, number)
            if _closes(line.strip(), fence):
                fence = ""
                held.closed = held.kind == "code"
            continue
        if held.closed and not line.strip():
            # Blank lines go with what they come after.
            held.add(line, number)
            continue
        if held.closed:
            yield from held.ended()
        if (found := _FENCE.match(line)) and "`" not in line[found.end() :]:
            if held.kind != "list" or held.blank:
                yield from held.ended()
            fence = found[1]
            if held.kind != "list":
                short = len(fence) <= _LONGEST_FENCE and len(line) <= _LONGEST_HEADING
                held.begin("code", *((line, fence) if short else ()))
            held.add(line, number)
            continue
        yield from _plain(held, line, number, unit)
    yield from held.ended()


def _closes(line: str, fence: str) -> bool:
    return len(line) >= len(fence) and not line.strip(fence[0])


def _plain(held: _Open, line: str, number: int, unit: str) -> Iterator[Block]:
    """A line outside of fenced code."""
    empty = not line.strip()
    if empty:
        if held.lines:
            held.add(line, number)
        return
    short = len(line) <= _LONGEST_HEADING
    if short and (found := _ATX.match(line)):
        yield from held.ended()
        yield Block(line, "heading", len(found[1]), (found[2] or "").strip(), unit, number, number)
        return
    title = held.lines[0] if len(held.lines) == 1 and held.kind == "text" and not held.blank else ""
    if short and 0 < len(title) <= _LONGEST_HEADING and (found := _SETEXT.match(line)):
        level = 1 if found[1][0] == "=" else 2
        yield Block(title + line, "heading", level, title.strip(), unit, held.first, number)
        held.begin()
        return
    if short and held.kind == "text" and held.lines and "|" in held.lines[-1] and "|" in line and _TABLE.match(line):
        head = held.lines.pop()
        begun = number - 1
        yield from held.ended()
        held.begin("table", head + line)
        held.add(head, begun)
        held.add(line, number)
        return
    if held.kind == "table" and (held.blank or "|" not in line):
        yield from held.ended()
    if held.kind == "list":
        if held.blank and not line[0].isspace() and not _ITEM.match(line):
            yield from held.ended()
    elif _ITEM.match(line) and (held.blank or not held.lines):
        yield from held.ended()
        held.begin("list")
    elif held.blank:
        yield from held.ended()
    held.add(line, number)
