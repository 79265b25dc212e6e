"""Cuts documents into chunks by their structure: pure, in one pass, with no more in memory than a chunk and a block.

A chunk is filled with blocks in their order. Where a section ends, so does a chunk, unless it is small: then sections
of the same parents share one. A block that fits into no chunk is cut at what it has: sentences, lines, words. What is
said again at the beginning of a chunk, a table's header and the overlap, is counted in `repeated`, and what was put at
its end in `added`: without them, chunks and the headings that went into their paths are the document again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from antiphon.corpus.blocks import CHARACTERS_A_TOKEN, Block, by_sentences, by_words, split, tail, tokens

__all__ = ["AUTO", "Chunk", "Chunking", "chunking_of", "pack"]

MIN_SIZE: Final = 100
MAX_SIZE: Final = 4_096
DEFAULT_SIZE: Final = 800
DEFAULT_OVERLAP: Final = 400
"""What OpenAI allows and takes for a static strategy (responses-api 1.3)."""

PATH_CHARACTERS: Final = 300
TITLE_CHARACTERS: Final = 120
_WHOLE_LINES: Final = ("code", "table", "rows", "list")
_BLANK_LINES: Final = re.compile(r"\A(?:[^\S\n]*\n)+")
_Path = tuple[tuple[int, str], ...]
_BELOW_ALL: Final = 99
_BETWEEN: Final = " > "


class Chunking(NamedTuple):
    """How long chunks are at most, and how much of one is said again in the next, in tokens as they are estimated."""

    size: int
    overlap: int


AUTO: Final = Chunking(250, 0)
"""What is taken where nobody says otherwise.

A chunk and the path of its headings fit into the 256 to 512 tokens that small embedding models such as MiniLM read, so
that all of it is found. Nothing is said twice: a chunk begins where a section, a paragraph or a sentence does, and a
passage that stands in two chunks would take two places among the results.
"""


class Chunk(NamedTuple):
    """A chunk: its text, the path of headings over it, and what is known of where it is (`detail`)."""

    text: str
    heading: str
    detail: dict[str, Any]
    repeated: int = 0
    added: int = 0


def chunking_of(strategy: Mapping[str, Any] | None) -> Chunking:
    """The chunking that a `chunking_strategy` of the API asks for, which need not have been checked.

    Raises:
        ValueError: it is none; the message says what is allowed.
    """
    if strategy is None or strategy.get("type") in (None, "auto"):
        return AUTO
    static: Mapping[str, Any] | None = strategy.get("static")
    if strategy.get("type") != "static" or not isinstance(static, dict):
        raise ValueError("'type' must be auto, or static with an object 'static'.")
    size: Any = static.get("max_chunk_size_tokens", DEFAULT_SIZE)
    overlap: Any = static.get("chunk_overlap_tokens", min(DEFAULT_OVERLAP, size // 2 if type(size) is int else 0))
    if type(size) is not int or not MIN_SIZE <= size <= MAX_SIZE:
        raise ValueError(f"'max_chunk_size_tokens' must be a whole number from {MIN_SIZE} to {MAX_SIZE}.")
    if type(overlap) is not int or not 0 <= overlap <= size // 2:
        raise ValueError("'chunk_overlap_tokens' must be a whole number of at most half of 'max_chunk_size_tokens'.")
    return Chunking(size, overlap)


def pack(blocks: Iterable[Block], chunking: Chunking) -> Iterator[Chunk]:
    """The chunks of a document that these blocks make up."""
    packer = _Packer(chunking)
    for block in blocks:
        yield from packer.take(block)
    yield from packer.end()


class _Piece(NamedTuple):
    """A block, or a part of one, in a chunk; `header` goes before it where it begins one."""

    text: str
    tokens: int
    block: Block
    path: _Path
    header: str = ""
    close: str = ""
    first: int = 0
    last: int = 0


class _Packer:
    """The chunk that is being filled, and the headings in force."""

    def __init__(self, chunking: Chunking) -> None:
        self._size, self._overlap = chunking
        self._stack: _Path = ()
        self._pieces: list[_Piece] = []
        self._begin()

    def take(self, block: Block) -> Iterator[Chunk]:
        """The chunks that are full with this block."""
        size = tokens(block.text)
        if block.level:
            yield from self._heading(block, size)
            return
        whole = _Piece(block.text, size, block, self._stack, "", "", block.first, block.last)
        if block.continued:
            whole = whole._replace(header=self._repeatable(block.header))
        if self._fits(whole):
            yield from self._add(whole)
            return
        yield from self._cut_before_heading()
        if self._fits(whole):
            yield from self._add(whole)
            return
        lead = self._count if self._headings_only() else 0
        if lead > self._size // 4:
            yield from self._flush()
            lead = 0
        if size <= self._size - max(self._overlap, lead) - tokens(whole.header):
            yield from self._add(whole)
            return
        for index, piece in enumerate(self._parts(block, whole.header, max(self._overlap, lead))):
            if not index and self._count >= self._size // 2:
                yield from self._flush(piece)
            yield from self._add(piece)

    def end(self) -> Iterator[Chunk]:
        """The last chunk."""
        yield from self._flush()

    def _begin(self, prefix: str = "", back: int = 0) -> None:
        self._prefix = prefix
        self._header = 0
        self._back = back
        self._count = tokens(prefix)

    def _heading(self, block: Block, size: int) -> Iterator[Chunk]:
        parents = tuple(entry for entry in self._stack if entry[0] < block.level)
        path = (*parents, (block.level, block.title[:TITLE_CHARACTERS].strip()))
        if self._pieces:
            base = self._pieces[0].path
            over = parents[: len(base)] == base
            if not over or (self._count >= self._size // 2 and not self._headings_only()):
                yield from self._flush()
        if size > self._size // 4 or len(block.title) > TITLE_CHARACTERS:
            # Too long for a path: it is told as text, and what comes stands under the beginning of it.
            self._stack = parents
            yield from self.take(block._replace(level=0))
            self._stack = path
            return
        piece = _Piece(block.text, size, block, parents, "", "", block.first, block.last)
        if not self._fits(piece):
            yield from self._cut_before_heading()
        if not self._fits(piece):
            yield from self._flush()
        self._pieces.append(piece)
        self._count += size
        self._stack = path

    def _repeatable(self, header: str) -> str:
        most = self._size // 4
        # One that is long is not counted with each row again: it has at least so many tokens.
        return header if len(header) <= most * CHARACTERS_A_TOKEN and tokens(header) <= most else ""

    def _fits(self, piece: _Piece) -> bool:
        header = tokens(piece.header) if not self._pieces else 0
        return self._count + header + piece.tokens + tokens(piece.close) <= self._size

    def _headings_only(self) -> bool:
        return bool(self._pieces) and all(piece.block.level for piece in self._pieces)

    def _add(self, piece: _Piece) -> Iterator[Chunk]:
        if self._pieces and not self._fits(piece):
            yield from self._flush(piece)
        if not self._pieces and piece.header:
            # Before the overlap, of which it is no part.
            self._prefix = piece.header + self._prefix
            self._header = len(piece.header)
            self._count += tokens(piece.header)
        self._pieces.append(piece)
        self._count += piece.tokens

    def _parts(self, block: Block, header: str, beside: int) -> Iterator[_Piece]:
        """Parts of a block that fit into a chunk with what stands before them in it."""
        again = header or self._repeatable(block.header)
        close = block.close if again else ""
        most = self._size - beside - tokens(again) - tokens(close)
        path = (*self._stack, (_BELOW_ALL, block.title)) if block.title else self._stack
        parts = list(split(block.text, most, block.splitters or (by_sentences, by_words)))
        line = block.first
        for index, text in enumerate(parts):
            first = line
            if block.unit == "line":
                line += text.count("\n")
            piece = _Piece(text, tokens(text), block, path if index else self._stack)
            yield piece._replace(
                header=again if index or block.continued else "",
                close=close if index + 1 < len(parts) else "",
                first=first,
                last=first + text.rstrip().count("\n") if block.unit == "line" else block.last,
            )

    def _cut_before_heading(self) -> Iterator[Chunk]:
        """End the chunk before the last heading in it, where a section has begun that does not fit beside others."""
        for index in range(len(self._pieces) - 1, 0, -1):
            if self._pieces[index].block.level and not self._pieces[index - 1].block.level:
                kept = self._pieces[index:]
                self._pieces = self._pieces[:index]
                yield from self._flush()
                self._pieces = kept
                self._count = sum(piece.tokens for piece in kept)
                return

    def _flush(self, following: _Piece | None = None) -> Iterator[Chunk]:
        """End the chunk; the next one begins with the end of this one where it goes on with the same section."""
        pieces, self._pieces = self._pieces, []
        if not pieces:
            return
        chunk = self._chunk(pieces)
        again = self._again(pieces, following) if following is not None and self._overlap else ""
        self._begin(again, again.count("\n"))
        if chunk is not None:
            yield chunk

    def _again(self, pieces: list[_Piece], following: _Piece) -> str:
        """What of these pieces is said again before the one that follows: of its own block where it has a header."""
        found: list[str] = []
        for piece in reversed(pieces):
            same = piece.block is following.block or (piece.header or piece.block.header) == following.header
            if piece.block.level or (following.header and not same):
                break
            found.append(piece.text)
        else:
            found.append(self._prefix[self._header :])
        found.reverse()
        text = "".join(found)
        if following.header and text.startswith(following.header):
            text = text[len(following.header) :]
        return tail(text, self._overlap, whole_lines=pieces[-1].block.kind in _WHOLE_LINES)

    def _chunk(self, pieces: list[_Piece]) -> Chunk | None:
        path = list(pieces[0].path)
        room = PATH_CHARACTERS
        while len(pieces) > 1 and (level := pieces[0].block.level):
            title = pieces[0].block.title
            room -= len(title) + len(_BETWEEN)
            if room < 0 or any(0 < piece.block.level <= level for piece in pieces[1:]):
                break
            path.append((level, title))
            pieces = pieces[1:]
        text = "".join(piece.text for piece in pieces)
        if not text.strip():
            return None
        text = self._prefix + text
        if not self._prefix:
            text = _BLANK_LINES.sub("", text)
        text = text.rstrip()
        close = pieces[-1].close
        added = f"\n{close}" if close else ""
        return Chunk(text + added, _shown(path), self._detail(pieces), len(self._prefix), len(added))

    def _detail(self, pieces: list[_Piece]) -> dict[str, Any]:
        begun = next((piece for piece in pieces if not piece.block.level), pieces[0])
        detail: dict[str, Any] = {"type": begun.block.kind}
        unit = pieces[0].block.unit
        if unit:
            back = self._back if unit == "line" else 0
            detail[unit] = pieces[0].first - back
            detail[f"last_{unit}"] = max(pieces[-1].last, pieces[0].first)
        return detail


def _shown(path: Iterable[tuple[int, str]]) -> str:
    """A path of headings, which loses its beginning where it is too long."""
    text = _BETWEEN.join(title for _, title in path if title)
    return text if len(text) <= PATH_CHARACTERS else "…" + text[1 - PATH_CHARACTERS :]
