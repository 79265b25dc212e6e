"""Blocks of what comes in records: rows of CSV under their header, lines of JSON, and the members of JSON documents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final

from antiphon.corpus.blocks import Block, by_lines, by_words, tokens
from antiphon.corpus.chunk_text import text_blocks

__all__ = ["csv_blocks", "json_blocks", "json_line_blocks", "sheet_blocks"]

_LINES: Final = (by_lines, by_words)
_MOST_LINES: Final = 200
_MOST_CHARACTERS: Final = 64_000
"""A record with more in it is none: a quotation mark was not closed."""

_BIG: Final = 200
"""Tokens of a value in JSON beyond which what is in it is told by itself, under its name."""

_DEEPEST: Final = 8
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_COMMA: Final = re.compile(r"[ \t\n\r]*,?[ \t\n\r]*")
_COLON: Final = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")


def csv_blocks(lines: Iterable[str]) -> Iterator[Block]:
    """The rows of a file of comma- or tab-separated values; the first one is said again in every chunk."""
    header = ""
    for text, first, last in _records(lines):
        yield Block(
            text,
            "rows",
            unit="line",
            first=first,
            last=last,
            header=header,
            continued=bool(header),
            splitters=_LINES,
        )
        header = header or text


def sheet_blocks(title: str, rows: Iterable[tuple[int, str]]) -> Iterator[Block]:
    """The rows of a sheet, each with its number and as a line of CSV; the first one is its header."""
    yield Block(f"## {title}\n", "heading", 2, title, "row")
    header = ""
    for number, text in rows:
        yield Block(
            text,
            "rows",
            unit="row",
            first=number,
            last=number,
            header=header,
            continued=bool(header),
            splitters=_LINES,
        )
        header = header or text


def json_line_blocks(lines: Iterable[str]) -> Iterator[Block]:
    """The records of a file with one in each line."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield Block(line, "record", unit="line", first=number, last=number, splitters=_LINES)


def json_blocks(text: str) -> Iterator[Block]:
    """The elements and members of a JSON document; big ones by what is in them, under the names that lead there.

    What is no JSON is plain text.
    """
    begin = _after(_SPACE, text, 0)
    try:
        _, end = _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):
        end = -1
    if end < 0 or text[end:].strip():
        yield from text_blocks(text.splitlines(keepends=True))
        return
    yield from _Walk(text).value(begin, end, len(text), 1)


_DECODER: Final = json.JSONDecoder(strict=False)


class _Walk:
    """Goes through a document that is JSON, and knows in which line it is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line = 1
        self._at = 0

    def value(self, begin: int, end: int, upto: int, level: int, depth: int = 0) -> Iterator[Block]:
        """A value from `begin` to `end`; its last block goes on to `upto`, so that no closing bracket is left alone.

        `level` is that of the headings in it.
        """
        opener = self._text[begin]
        if depth > _DEEPEST or opener not in "[{" or self._small(begin, end):
            yield self._block(begin, upto)
            return
        at = _after(_SPACE, self._text, begin + 1)
        told = begin
        parted = False
        while self._text[at] not in "]}":
            name, valued = self._name(at) if opener == "{" else ("", at)
            _, ended = _DECODER.raw_decode(self._text, valued)
            following = _after(_COMMA, self._text, ended)
            last = self._text[following] in "]}"
            if self._text[valued] not in "[{" or self._small(valued, ended):
                rest = upto if last else following
                if parted:
                    yield self._block(told, told)._replace(kind="heading", level=level)
                parted = False
                yield self._block(told, rest)
            else:
                if told < at:
                    yield self._block(told, at)
                # What follows does not stand under the name of what came before.
                heading = self._block(at, valued)
                yield heading._replace(kind="heading", level=level, title=name)
                rest = upto if last else following
                yield from self.value(valued, ended, rest, level + 1, depth + 1)
                parted = True
            if last:
                return
            told = at = following
        yield self._block(told, upto)

    def _name(self, at: int) -> tuple[str, int]:
        """The name of a member, and where its value begins."""
        name, at = _DECODER.raw_decode(self._text, at)
        return " ".join(str(name).split()), _after(_COLON, self._text, at)

    def _small(self, begin: int, end: int) -> bool:
        return end - begin <= _BIG or (end - begin <= _BIG * 16 and tokens(self._text[begin:end]) <= _BIG)

    def _block(self, begin: int, end: int) -> Block:
        text = self._text[begin:end]
        self._line += self._text.count("\n", self._at, begin)
        self._at = begin
        last = self._line + text.rstrip().count("\n")
        return Block(text, "record", unit="line", first=self._line, last=last, splitters=_LINES)


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _records(lines: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    held: list[str] = []
    size = quotes = number = first = 0
    for number, line in enumerate(lines, 1):
        if not held:
            if not line.strip():
                continue
            first = number
        held.append(line)
        size += len(line)
        quotes += line.count('"')
        if quotes % 2 and len(held) < _MOST_LINES and size < _MOST_CHARACTERS:
            continue
        yield "".join(held), first, number
        held, size, quotes = [], 0, 0
    if held:
        yield "".join(held), first, number
