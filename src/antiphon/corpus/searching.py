"""One search: words and vectors, several questions and several vector stores, ranked together and, if set, reranked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from antiphon.corpus.embedding import TextEmbedder, embedded_text
from antiphon.corpus.library import Found, FoundChunk, Ranking, chunk_id
from antiphon.corpus.ranking import best_for_any, fused, told_apart
from antiphon.corpus.reranking import Reranker
from antiphon.corpus.shelf import Shelf
from antiphon.corpus.vectors import VectorSearch
from antiphon.corpus.words import share, words
from antiphon.errors import EngineError, EngineUnavailableError
from antiphon.store.base import Scope
from antiphon.store.corpora import CorpusStore

__all__ = ["OnFault", "Search", "Searching"]

OVERFETCH: Final = 5
"""How many times as many chunks as are wanted each ranking gives (hosted-search 3.3)."""

_LEAST_DEPTH: Final = 50
_MOST_LEFT_OUT: Final = 1_000
_LOOKED_AT: Final = 5
_QUESTION_SECONDS: Final = 10.0
"""How long a search waits for the vectors of its questions: a model may have to be loaded first, or be fetched."""

_MOST_LETTERS: Final = 8_192

NO_VECTORS: Final = "Only words were searched for"
_NOTES: Final = {
    "none": f"{NO_VECTORS}: this server makes no vectors of documents.",
    "late": f"{NO_VECTORS}: the embedding model is being loaded. Search again in a moment.",
    "fault": f"{NO_VECTORS}: the embedding model cannot be asked now.",
    "other": f"{NO_VECTORS}: the documents have no vectors of the embedding model that is set. Add them again.",
}

_MISSING: Final = (
    "Of the chunks, {} were searched by words only: they have no vectors of the model that is set. Add their files "
    "again."
)

OnFault = Callable[[str, Exception], None]
"""Is told what was done without, and why."""

T = TypeVar("T")
U = TypeVar("U")

Place = tuple[int, str, int]
"""The number of a vector store among those that are searched, a file and a chunk."""


class Search(Struct, frozen=True):
    """What is asked for. `files` are, for each vector store, the files that are looked into; None for all."""

    shelves: Sequence[Shelf]
    files: Sequence[Collection[str] | None]
    questions: Sequence[str]
    most: int
    ranking: Ranking
    without: frozenset[str]

    @property
    def depth(self) -> int:
        """How many chunks each ranking is to give."""
        return max(OVERFETCH * self.most, _LEAST_DEPTH) + min(len(self.without), _MOST_LEFT_OUT)

    def places(self) -> Sequence[tuple[int, Shelf, Collection[str] | None]]:
        """The vector stores in which anything can be found, with their number and the files that are looked into."""
        pairs = zip(self.shelves, self.files, strict=True)
        return [
            (at, shelf, files) for at, (shelf, files) in enumerate(pairs) if shelf.files and (files is None or files)
        ]


class Searching:
    """Searches over one store; `embedder` and `reranker` where there are such."""

    def __init__(
        self,
        store: CorpusStore,
        vectors: VectorSearch,
        embedder: TextEmbedder | None,
        reranker: Reranker | None,
        on_fault: OnFault | None = None,
    ) -> None:
        self._store = store
        self._on_fault = on_fault
        self._vectors = vectors
        self._embedder = embedder
        self._reranker = reranker

    async def run(self, scope: Scope, search: Search) -> Found:
        """The best chunks, with what was not done."""
        if not search.places():
            return Found([])
        text_weight, vector_weight = search.ranking.text_weight, search.ranking.vector_weight
        none: list[list[Place]] = [[] for _ in search.questions]
        if text_weight > 0:
            (near, notes), named = await _both(self._near(scope, search), self._named(scope, search))
        else:
            near, notes = await self._near(scope, search)
            named = await self._named(scope, search) if near is None else none
        if self._store.text_fault and (text_weight > 0 or near is None):
            notes.append(self._store.text_fault)
        telling = await self._telling(scope, search, named) if near is not None else [1.0 for _ in named]
        scores = [
            fused([(text_weight * much if near is not None else 1.0, by_word), (vector_weight, by_vector)])
            for by_word, by_vector, much in zip(named, near or none, telling, strict=True)
        ]
        ranked = [
            (place, score)
            for place, score in best_for_any(scores)
            if chunk_id(place[1], place[2]) not in search.without
        ]
        reranker = self._reranker if search.ranking.rerank else None
        wanted = search.most if reranker is None else max(search.most, reranker.most)
        chunks = await self._read(scope, search, ranked, wanted)
        if reranker is not None and chunks:
            chunks, note = await self._reranked(reranker, search, chunks)
            notes += note
        kept = [chunk for chunk in chunks[: search.most] if (chunk.score or 0.0) >= search.ranking.threshold]
        return Found(kept, " ".join(notes))

    async def _near(self, scope: Scope, search: Search) -> tuple[list[list[Place]] | None, list[str]]:
        """For each question the chunks that are near it, best first; None and a note where that cannot be said."""
        if search.ranking.vector_weight <= 0 < search.ranking.text_weight:
            return None, []
        if self._embedder is None:
            return None, [_NOTES["none"]]
        try:
            async with asyncio.timeout(_QUESTION_SECONDS):
                vectors = await self._embedder.embed([each[:_MOST_LETTERS] for each in search.questions])
        except TimeoutError:
            return None, [_NOTES["late"]]
        except (EngineUnavailableError, EngineError) as error:
            # Why is not for the caller: it may name files and addresses of the server.
            self._tell("documents are searched by words only: the embedding model cannot be asked", error)
            return None, [_NOTES["fault"]]
        found: list[list[tuple[float, Place]]] = [[] for _ in vectors]
        missing = 0
        for at, shelf, files in search.places():
            nearest = await self._vectors.search(scope, shelf, vectors, search.depth, files)
            missing += nearest.missing
            for near, hits in zip(found, nearest.hits, strict=True):
                near += [(hit.score, (at, hit.file_id, hit.index)) for hit in hits]
        if not any(found):
            return None, [_NOTES["other"]]
        notes = [_MISSING.format(missing)] if missing else []
        return [_ranked(each, search.depth) for each in found], notes

    async def _named(self, scope: Scope, search: Search) -> list[list[Place]]:
        """For each question the chunks that hold its words, best first."""
        found: list[list[Place]] = []
        for question in search.questions:
            asked = words(question)
            hits: list[tuple[float, Place]] = []
            for at, shelf, files in search.places() if asked else ():
                few = None if files is None else list(files)
                some = await self._store.search_text(scope, shelf.store.id, asked, search.depth, few)
                hits += [(hit.score, (at, hit.file_id, hit.index)) for hit in some]
            found.append(_ranked(hits, search.depth))
        return found

    async def _telling(self, scope: Scope, search: Search, named: Sequence[Sequence[Place]]) -> list[float]:
        """For each question how much its words say: the greatest part of them that one of the first chunks holds.

        Of a question in other words than those of its answer, some word stands in some chunk all the same, and the
        first of these must not count like the chunk that is nearest by meaning.
        """
        found: list[float] = []
        for question, places in zip(search.questions, named, strict=True):
            chunks = await self._chunks(scope, search, places[:_LOOKED_AT])
            asked = words(question)
            held = [share(asked, embedded_text(chunk.heading, chunk.text)) for chunk in chunks.values()]
            found.append(max(held, default=0.0))
        return found

    async def _read(
        self, scope: Scope, search: Search, ranked: Sequence[tuple[Place, float]], wanted: int
    ) -> list[FoundChunk]:
        """The first chunks of a ranking, of which no two have the same text."""
        chunks: list[FoundChunk] = []
        texts: set[str] = set()
        start = 0
        while len(chunks) < wanted and start < len(ranked):
            some = ranked[start : start + 2 * wanted]
            start += len(some)
            there = await self._chunks(scope, search, [place for place, _ in some])
            for place, score in some:
                chunk = there.get(place)
                text = None if chunk is None else told_apart(chunk.text)
                if chunk is None or text is None or text in texts:
                    continue
                texts.add(text)
                chunks.append(replace(chunk, score=round(score, 4)))
        return chunks[:wanted]

    async def _chunks(self, scope: Scope, search: Search, places: Sequence[Place]) -> Mapping[Place, FoundChunk]:
        found: dict[Place, FoundChunk] = {}
        for at, shelf, _ in search.places():
            own = [(file_id, index) for number, file_id, index in places if number == at]
            for stored in await self._store.find_chunks(scope, shelf.store.id, own) if own else ():
                chunk = shelf.found(stored)
                if chunk is not None:
                    found[at, stored.file_id, stored.index] = chunk
        return found

    async def _reranked(
        self, reranker: Reranker, search: Search, chunks: list[FoundChunk]
    ) -> tuple[list[FoundChunk], list[str]]:
        """Chunks in the order of the reranker, by the question that each answers best; as they were where it fails.

        What is more than it is given comes behind.
        """
        first, rest = chunks[: reranker.most], chunks[reranker.most :]
        texts = [embedded_text(chunk.heading, chunk.text)[:_MOST_LETTERS] for chunk in first]
        best = [0.0] * len(first)
        try:
            for question in search.questions:
                scores = await reranker.scores(question[:_MOST_LETTERS], texts)
                best = [max(pair) for pair in zip(best, scores, strict=True)]
        except (EngineUnavailableError, EngineError) as error:
            self._tell("results of searches are not reranked: the reranker cannot be asked", error)
            return chunks, ["The results are not reranked: the reranker cannot be asked now."]
        order = sorted(range(len(first)), key=lambda at: (-best[at], at))
        least = min(best)
        behind = [replace(chunk, score=round(min(chunk.score or 0.0, least), 4)) for chunk in rest]
        return [*(replace(first[at], score=round(best[at], 4)) for at in order), *behind], []

    def _tell(self, message: str, error: Exception) -> None:
        if self._on_fault is not None:
            self._on_fault(message, error)


async def _both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """The results of two calls that go on at the same time; a fault of one ends the other."""
    other = asyncio.create_task(second)
    try:
        return await first, await other
    except BaseException:
        other.cancel()
        await asyncio.wait({other})
        raise


def _ranked(hits: Sequence[tuple[float, Place]], most: int) -> list[Place]:
    return [place for _, place in sorted(hits, key=lambda hit: (-hit[0], hit[1]))[:most]]
