"""What documents are made of before they are cut into chunks: blocks, and how long a text is in tokens.

Tokens are estimated, so that chunks are the same whatever model is served: a run of up to six ASCII letters or three
digits is one, and so is any other character but white space; and a text has at least one for sixteen characters. MiniLM
makes as many word pieces of source code, rows and Russian, a tenth fewer of English, and half as many again of German.

Only the standard library is imported here: the process that reads documents cuts them, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

__all__ = [
    "CHARACTERS_A_TOKEN",
    "MOST_BLOCK",
    "Block",
    "Splitter",
    "by_lines",
    "by_sentences",
    "by_words",
    "clean",
    "split",
    "tail",
    "tokens",
]

CHARACTERS_A_TOKEN: Final = 16
"""A token stands for so many characters at most: white space alone is not free."""

MOST_BLOCK: Final = 100_000
"""Characters of a block after which it is given on in parts, so that a file without structure takes no more memory."""

_TOKEN: Final = re.compile(r"[A-Za-z]{1,6}|[0-9]{1,3}|[^\sA-Za-z0-9]")
_QUOTES: Final = "[\"'\u201d\u2019\xbb)\\]]*"
_SENTENCE: Final = re.compile(rf"[.!?\u2026]{_QUOTES}\s+|[\u3002\uff01\uff1f]{_QUOTES}\s*|\n[^\S\n]*\n\s*")
_LINE: Final = re.compile(r"\n+")
_WORD: Final = re.compile(r"\S+\s*")
_UNSEEN: Final = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")

Splitter = Callable[[str], Iterable[str]]
"""Cuts a text into parts that are the text again when they are put together."""


class Block(NamedTuple):
    """A part of a document that is kept together where it can be; blocks put together are the document's text.

    `level` is that of a heading, from 1, and 0 of anything else; `title` is the heading's own text, or what a big block
    is called in the path of headings of its later parts. `first` and `last` say where it is, in what `unit` counts:
    line, page, slide or row; nothing is known of it where the unit is empty. `header` is said again before each later
    part of it, and before the block itself where it is `continued`; `close` ends each part but the last one.
    """

    text: str
    kind: str
    level: int = 0
    title: str = ""
    unit: str = ""
    first: int = 0
    last: int = 0
    header: str = ""
    close: str = ""
    continued: bool = False
    splitters: Sequence[Splitter] = ()


def tokens(text: str) -> int:
    """How many tokens a text has, as estimated (see above)."""
    return max(len(_TOKEN.findall(text)), -(-len(text) // CHARACTERS_A_TOKEN))


def clean(text: str) -> str:
    """A text without what no text holds, and no store keeps: control characters and halves of characters."""
    return _UNSEEN.sub(" ", text)


def by_sentences(text: str) -> Iterator[str]:
    """Sentences, and what stands between blank lines."""
    return _ended(text, _SENTENCE)


def by_lines(text: str) -> Iterator[str]:
    """Lines, each with the blank ones after it."""
    return _ended(text, _LINE)


def by_words(text: str) -> Iterator[str]:
    """Words, each with the white space after it; what stands before the first one goes with it."""
    begun = 0
    for found in _WORD.finditer(text):
        yield text[begun : found.end()]
        begun = found.end()
    if begun < len(text):
        yield text[begun:]


def split(text: str, most: int, splitters: Sequence[Splitter]) -> Iterator[str]:
    """Parts of at most so many tokens, cut by the first splitter whose parts are small enough, and at last anywhere."""
    if tokens(text) <= most:
        yield text
    elif splitters:
        for part in splitters[0](text):
            yield from split(part, most, splitters[1:])
    else:
        yield from _anywhere(text, most)


def tail(text: str, most: int, *, whole_lines: bool) -> str:
    """The longest end of a text that has at most so many tokens and begins with a word, or with a line."""
    begin = max(0, len(text) - most * CHARACTERS_A_TOKEN)
    starts = [found.start() for found in _TOKEN.finditer(text, begin)]
    if begin == 0 and len(starts) <= most:
        return text
    if len(starts) > most:
        begin = starts[len(starts) - most]
    if whole_lines:
        if begin and text[begin - 1] != "\n":
            begin = text.find("\n", begin) + 1 or len(text)
        return text[begin:]
    if begin and not text[begin - 1].isspace():
        while begin < len(text) and not text[begin].isspace():
            begin += 1
    while begin < len(text) and text[begin].isspace():
        begin += 1
    return text[begin:]


def _ended(text: str, ends: re.Pattern[str]) -> Iterator[str]:
    begun = 0
    for found in ends.finditer(text):
        yield text[begun : found.end()]
        begun = found.end()
    if begun < len(text):
        yield text[begun:]


def _anywhere(text: str, most: int) -> Iterator[str]:
    """Cuts between tokens; a word of another kind of writing, or of a file without spaces, is cut as well."""
    begun = count = 0
    for found in _TOKEN.finditer(text):
        room = found.end() - begun <= most * CHARACTERS_A_TOKEN
        if count == most or not room:
            if found.start() > begun:
                yield from _slices(text[begun : found.start()], most * CHARACTERS_A_TOKEN)
            begun, count = found.start(), 0
        count += 1
    if begun < len(text):
        yield from _slices(text[begun:], most * CHARACTERS_A_TOKEN)


def _slices(text: str, size: int) -> Iterator[str]:
    for begun in range(0, len(text), size):
        yield text[begun : begun + size]
