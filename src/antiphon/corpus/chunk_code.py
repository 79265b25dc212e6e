"""Blocks of source code in whatever language: what stands at the left margin after a blank line, with all below it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from antiphon.corpus.blocks import MOST_BLOCK, Block, by_lines, by_words

__all__ = ["by_indent", "code_blocks"]

_CLOSERS: Final = (
    ")",
    "}",
    "]",
    "end",
    "else",
    "elif",
    "elsif",
    "except",
    "finally",
    "catch",
    "rescue",
    "#endif",
    "*/",
)
_WORD: Final = (
    "abstract|actor|async|class|closed|contract|data|def|default|defmodule|defp|enum|export|extension|extern|final|fn|"
    "fun|func|function|impl|inline|instance|interface|internal|lambda|macro|method|mod|module|namespace|object|open|"
    "override|package|partial|pragma|private|procedure|proc|protected|protocol|pub|public|record|sealed|static|struct|"
    "sub|template|trait|type|typedef|union|unsafe|virtual"
)
_DEFINITION: Final = re.compile(rf"\s*(?:{_WORD}|CREATE|create|ALTER|alter)\b(?!\s*[=:.,)])")
_TITLE: Final = 100
_SEARCHED: Final = 40
"""Lines of a block in which its definition is looked for: comments and decorators stand before it."""


def code_blocks(lines: Iterable[str], unit: str = "line") -> Iterator[Block]:
    """The top-level parts of a source file; a part that is too big is cut at its own parts, as far as need be."""
    held: list[str] = []
    size = first = 0
    blank = True
    for number, line in enumerate(lines, 1):
        empty = not line.strip()
        begins = blank and not empty and not line[0].isspace() and not line.startswith(_CLOSERS)
        if held and (begins or size > MOST_BLOCK):
            yield _part(held, unit, first)
            held, size = [], 0
        blank = empty
        if not held:
            if empty:
                continue
            first = number
        held.append(line)
        size += len(line)
    if held:
        yield _part(held, unit, first)


def by_indent(text: str) -> Iterator[str]:
    """Cut a part at those of its inner parts, parted by blank lines, that stand furthest to the left."""
    lines = text.splitlines(keepends=True)
    found: list[tuple[int, int]] = []
    blank = False
    for index, line in enumerate(lines):
        stripped = line.lstrip()
        if stripped and blank and not stripped.startswith(_CLOSERS):
            found.append((index, len(line) - len(stripped)))
        blank = not stripped
    least = min((indent for _, indent in found), default=0)
    begun = 0
    for index, indent in found:
        if indent == least:
            yield "".join(lines[begun:index])
            begun = index
    yield "".join(lines[begun:])


_CODE: Final = (by_indent, by_indent, by_indent, by_lines, by_words)


def _part(held: list[str], unit: str, first: int) -> Block:
    text = "".join(held)
    last = first + text.rstrip().count("\n")
    return Block(text, "code", title=_title(held), unit=unit, first=first, last=last, splitters=_CODE)


def _title(lines: list[str]) -> str:
    for line in lines[:_SEARCHED]:
        if len(line) < MOST_BLOCK and _DEFINITION.match(line):
            return line.strip().rstrip("{:").rstrip()[:_TITLE]
    return ""
