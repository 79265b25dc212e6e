"""Blocks of plain text, and of pages and slides that are text: paragraphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from antiphon.corpus.blocks import MOST_BLOCK, Block, by_lines, by_sentences, by_words

__all__ = ["page_blocks", "text_blocks"]

_TEXT = (by_sentences, by_lines, by_words)


def text_blocks(lines: Iterable[str], unit: str = "line") -> Iterator[Block]:
    """The paragraphs of a text, which blank lines part."""
    held: list[str] = []
    size = 0
    first = number = 0
    blank = False
    for number, line in enumerate(lines, 1):
        empty = not line.strip()
        if held and ((blank and not empty) or size > MOST_BLOCK):
            yield _paragraph(held, unit, first)
            held, size = [], 0
        if not held:
            if empty:
                continue
            first = number
        held.append(line)
        size += len(line)
        blank = empty
    if held:
        yield _paragraph(held, unit, first)


def page_blocks(text: str, unit: str, number: int, kind: str = "text") -> Iterator[Block]:
    """The paragraphs of a page or a slide, of which its number is all that is known of where it is."""
    for block in text_blocks(text.splitlines(keepends=True), ""):
        yield block._replace(kind=kind, unit=unit, first=number, last=number)


def _paragraph(held: list[str], unit: str, first: int) -> Block:
    text = "".join(held)
    last = first + text.rstrip().count("\n")
    return Block(text, "text", unit=unit, first=first, last=last, splitters=_TEXT)
