"""Vectors of documents and of questions, whatever model makes them.

A text that is longer than the model reads at once is read in pieces, and its vector is the mean of theirs. `EMBEDDED`
says how a chunk is read: under the headings that it stands below.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from antiphon.corpus.numbers import numpy
from antiphon.errors import EngineError, InvalidRequestError

__all__ = ["PiecedEmbedder", "TextEmbedder", "embedded_text", "mean_vector", "pieces", "unit_vectors"]

_AT_ONCE: Final = 32
"""Pieces that a model is asked for at once: a question that comes in between waits no longer than for these."""

_MOST_PIECES: Final = 16
_LEAST_PIECE: Final = 64
_OVERFLOW: Final = "context_length_exceeded"


class TextEmbedder(ABC):
    """What makes vectors of texts."""

    name: str
    """The model: vectors of one model cannot be compared with those of another."""

    @abstractmethod
    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """A vector for each text, of length 1 and as little-endian 32-bit floats.

        Raises:
            EngineUnavailableError: the model cannot be had now; the message says why.
            EngineError: it failed.
        """

    @abstractmethod
    async def close(self) -> None:
        """Free what belongs to it."""


def embedded_text(heading: str, text: str) -> str:
    """How a chunk is read by a model: after the path of headings that it stands under."""
    return f"{heading}\n{text}" if heading else text


class PiecedEmbedder(TextEmbedder):
    """One over a model that reads texts of a bounded length."""

    @abstractmethod
    def letters(self) -> int:
        """Characters of a piece that the model usually reads as a whole."""

    @abstractmethod
    async def ask(self, texts: Sequence[str]) -> Sequence[bytes]:
        """The vectors of at most `_AT_ONCE` pieces.

        Raises:
            InvalidRequestError: `context_length_exceeded`, one of them is longer than the model reads.
            EngineUnavailableError: the model cannot be had now.
            EngineError: it failed.
        """

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """See `TextEmbedder.embed`."""
        most = self.letters()
        cut = [pieces(text, most)[:_MOST_PIECES] for text in texts]
        flat = [piece for each in cut for piece in each]
        vectors: list[bytes] = []
        for start in range(0, len(flat), _AT_ONCE):
            vectors.extend(await self._asked(flat[start : start + _AT_ONCE]))
        found: list[bytes] = []
        at = 0
        for each in cut:
            found.append(mean_vector(vectors[at : at + len(each)]))
            at += len(each)
        return found

    async def _asked(self, batch: Sequence[str]) -> Sequence[bytes]:
        """The vectors of pieces; of one that is too long in tokens, that of its halves."""
        try:
            return await self.ask(batch)
        except InvalidRequestError as error:
            if error.code != _OVERFLOW:
                raise EngineError("The embedding model refused a text.") from None
        if len(batch) > 1:
            middle = len(batch) // 2
            return [*await self._asked(batch[:middle]), *await self._asked(batch[middle:])]
        text = batch[0]
        if len(text) <= _LEAST_PIECE:
            raise EngineError("The embedding model reads too little.")
        middle = len(text) // 2
        return [mean_vector(await self._asked([text[:middle], text[middle:]]))]


def pieces(text: str, most: int) -> list[str]:
    """A text in pieces of about the same length, of at most so many characters, cut between words where that can be."""
    text = text.strip() or "."
    count = -(-len(text) // most)
    if count == 1:
        return [text]
    found: list[str] = []
    rest = text
    while len(rest) > most:
        # Equal parts: a short last one would count as much as the others.
        size = min(most, -(-len(rest) // max(1, count - len(found))))
        cut = rest.rfind(" ", size // 2, size + 1)
        cut = size if cut < 0 else cut
        found.append(rest[:cut])
        rest = rest[cut:].lstrip()
    return [*found, rest] if rest else found


def mean_vector(vectors: Sequence[bytes]) -> bytes:
    """The mean of some vectors, of length 1."""
    if len(vectors) == 1:
        return vectors[0]
    np = numpy()
    try:
        together = np.frombuffer(b"".join(vectors), "<f4").reshape(len(vectors), -1)
    except ValueError:
        raise EngineError("The embedding model makes vectors of several lengths.") from None
    return unit_vectors(together.mean(axis=0, dtype="<f8").reshape(1, -1))[0]


def unit_vectors(rows: Any) -> list[bytes]:
    """The rows of an array, made of length 1; a row of nothing but zeros stays one."""
    np = numpy()
    values = np.asarray(rows, "<f8")
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    scaled = (values / np.where(lengths > 0, lengths, 1)).astype("<f4")
    return [row.tobytes() for row in scaled]
