"""Ingestion into the vector stores in PostgreSQL, and what is found in them.

Chunks are ranked by BM25. PostgreSQL's own ranks do not know how rare a word is, so how many chunks of a vector store
hold each word is kept in a table, and the few rows that hold the rarest words asked for are ranked by a statement.
"""

from __future__ import annotations

import math
import re
import secrets
import unicodedata
from collections.abc import Collection, Sequence
from typing import Any

from antiphon.store.corpora import ChunkVector, Ingestion, NewChunk, Place, StoredChunk, TextHit
from antiphon.store.corpus_rows import storable_text, store_file
from antiphon.store.postgres_core import storable
from antiphon.store.postgres_corpora import PostgresCorpora
from antiphon.store.postgres_database import Connection, execute, fetch
from antiphon.store.rows import Scope
from antiphon.store.text_index import clean_words, leading

__all__ = ["PostgresChunks"]

_CHUNKS_A_STEP = 200
_FILES_A_READ = 500
_FENCE_BITS = 20
_MOST_RANKED = 4_000
_MOST_EXACT = 200
_ENOUGH = 4
_LONGEST_TEXT = 200_000
"""Characters of a chunk whose words are indexed; PostgreSQL takes a megabyte of words."""

_NO_WORD = re.compile(r"[\W_]+")


def _plain(text: str) -> str:
    """Only the words of a text, without accents: what FTS5 makes of it in the other stores."""
    text = text[:_LONGEST_TEXT]
    if not text.isascii():
        parts = unicodedata.normalize("NFKD", storable_text(text))
        text = "".join(sign for sign in parts if not unicodedata.combining(sign))
    return _NO_WORD.sub(" ", text)


class PostgresChunks(PostgresCorpora):
    """Keeps the chunks of vector stores, with an index of their words."""

    _seen: frozenset[str] = frozenset()

    # Ingestion

    async def claim_ingestion(self, owner: str, owners: Collection[str]) -> Ingestion | None:
        """Claim the oldest file that is pending, or in progress with none of these owners; None where none waits.

        Owners that entered after the last `beat` are left alone: whoever asks cannot know them yet.

        Raises:
            UnavailableError: it cannot be written now.
        """
        claim = secrets.token_hex(16)

        async def job(connection: Connection, _: bool) -> Ingestion | None:
            async with connection.transaction():
                rows = await fetch(connection, "claim_of", claim=claim)
                if not rows:
                    free = await fetch(
                        connection, "find_ingestion", owners=list(owners), seen=list(self._seen), now=self._clock()
                    )
                    if not free:
                        return None
                    number, chunks = free[0]
                    if chunks:
                        number = await self._renew_file(connection, number, "pending")
                    await execute(connection, "claim_ingestion", n=number, owner=owner, claim=claim)
                    rows = await fetch(connection, "claim_of", claim=claim)
                number, tenant, fence, attempts = rows[0]
                file = store_file((await fetch(connection, "store_file_by_number", n=number))[0])
            return Ingestion(Scope(tenant), file, (number << _FENCE_BITS) + fence, attempts)

        claimed = await self._run(job)
        if claimed is not None and claimed.attempts > 1:
            await self._remove_lost()
        return claimed

    async def add_chunks(self, ingestion: Ingestion, chunks: Sequence[NewChunk]) -> bool:
        """Add chunks to a claimed file; False where the claim is not good any more.

        Raises:
            UnavailableError: it cannot be written now.
        """
        for first in range(0, len(chunks), _CHUNKS_A_STEP):
            some = chunks[first : first + _CHUNKS_A_STEP]

            async def job(connection: Connection, _: bool, some: Sequence[NewChunk] = some) -> bool:
                async with connection.transaction():
                    return await self._add_some(connection, ingestion, some)

            if not await self._run(job):
                return False
        return True

    async def finish_ingestion(self, ingestion: Ingestion, error: tuple[str, str] | None) -> bool:
        """End a claim: the file is completed, or failed with that code and message; False as above.

        Raises:
            UnavailableError: it cannot be written now.
        """
        seen = False

        async def job(connection: Connection, again: bool) -> bool:
            nonlocal seen
            async with connection.transaction():
                claim = await self._claim(connection, ingestion)
                if claim is None:
                    return again and seen
                number = ingestion.fence >> _FENCE_BITS
                if error is None:
                    await execute(connection, "complete_store_file", n=number)
                    await execute(connection, "count_texts", file=number, store=claim[0])
                    await execute(connection, "count_terms", file=number, store=claim[0])
                else:
                    number = await self._renew_file(connection, number, "failed") if claim[1] else number
                    code, message = (part.replace("\0", "\ufffd") for part in error)
                    await execute(connection, "fail_store_file", n=number, code=code, message=message)
                # Told before the commit: where its answer is lost, another attempt finds no claim.
                seen = True
            return True

        finished = await self._run(job)
        if error is not None:
            await self._remove_lost()
        return finished

    async def release_ingestion(self, ingestion: Ingestion) -> None:
        """Give a claim back: the server stops, and another claim begins anew.

        Raises:
            UnavailableError: it cannot be written now.
        """

        async def job(connection: Connection, _: bool) -> None:
            async with connection.transaction():
                if await self._claim(connection, ingestion) is not None:
                    await execute(connection, "free_store_file", n=ingestion.fence >> _FENCE_BITS)

        await self._run(job)

    async def _claim(self, connection: Connection, ingestion: Ingestion) -> Sequence[Any] | None:
        """The vector store of a claim that is good, and the chunks of the file; that is locked."""
        number, fence = ingestion.fence >> _FENCE_BITS, ingestion.fence & ((1 << _FENCE_BITS) - 1)
        rows = await fetch(connection, "ingestion_claim", n=number, fence=fence)
        return rows[0] if rows else None

    async def _add_some(self, connection: Connection, ingestion: Ingestion, chunks: Sequence[NewChunk]) -> bool:
        claim = await self._claim(connection, ingestion)
        if claim is None:
            return False
        number = ingestion.fence >> _FENCE_BITS
        kept = {chunk.index: (_text(chunk.heading), _text(chunk.text), chunk) for chunk in chunks}
        rows = await fetch(
            connection,
            "insert_corpus_chunks",
            file=number,
            places=list(kept),
            headings=[heading for heading, _, _ in kept.values()],
            texts=[text for _, text, _ in kept.values()],
            details=[chunk.detail for _, _, chunk in kept.values()],
        )
        new = [kept[row[0]] for row in rows]
        vectors = [chunk for _, _, chunk in new if chunk.vector]
        await execute(
            connection,
            "insert_corpus_vectors",
            file=number,
            places=[chunk.index for chunk in vectors],
            vectors=[chunk.vector for chunk in vectors],
        )
        worded = [(chunk.index, _plain(f"{heading} {text}")) for heading, text, chunk in new if heading or text]
        await execute(
            connection,
            "insert_corpus_words",
            file=number,
            mark=f"#{claim[0]}",
            places=[place for place, _ in worded],
            texts=[words for _, words in worded],
        )
        size = sum(
            len(heading.encode()) + len(text.encode()) + len(chunk.detail) + len(chunk.vector)
            for heading, text, chunk in new
        )
        await execute(connection, "count_corpus_chunks", n=number, added=len(new), size=size)
        return True

    # Search

    async def search_text(
        self, scope: Scope, vector_store_id: str, words: Sequence[str], most: int, files: Collection[str] | None = None
    ) -> Sequence[TextHit]:
        """The best chunks that hold some of these words; of these files where given."""
        asked = _plain(" ".join(clean_words(words)))
        if not storable(vector_store_id) or most <= 0 or not asked.strip():
            return []
        key = self._of_corpus(scope, vector_store_id)
        held = None if files is None else [name for name in files if storable(name)]

        async def job(connection: Connection, _: bool) -> Sequence[Sequence[Any]]:
            found = await fetch(connection, "searched_store", **key)
            if not found or not found[0][1]:
                return []
            store, texts, length = found[0]
            stems = await fetch(connection, "stems", store=store, words=asked)
            counts: dict[str, int] = {row[0]: row[1] for row in stems}
            lead = leading(counts, most, _MOST_RANKED)
            if not lead:
                return []
            return await fetch(
                connection,
                "rank_chunks",
                sought=f"'#{store}' & ({' | '.join(_quoted(stem) for stem in lead)})",
                stems=list(counts),
                queries=[_quoted(stem) for stem in counts],
                ranked=max(_ENOUGH * most, _MOST_EXACT),
                weights=[max(math.log((texts - count + 0.5) / (count + 0.5)), 1e-6) for count in counts.values()],
                average=max(length / texts, 1.0),
                files=held,
                most=most,
            )

        return [TextHit(*row) for row in await self._run(job)]

    async def chunk_vectors(
        self, scope: Scope, vector_store_id: str, after: Place | None, most: int, files: Collection[str] | None = None
    ) -> Sequence[ChunkVector]:
        """The vectors of chunks that have one, in the order of their places."""
        rows = await self._places("corpus_vectors", scope, vector_store_id, after, most, files)
        return [ChunkVector(*row) for row in rows]

    async def find_chunks(self, scope: Scope, vector_store_id: str, places: Sequence[Place]) -> Sequence[StoredChunk]:
        """The chunks at these places; those that are not there are left out."""
        wanted = [place for place in dict.fromkeys(places) if storable(place[0]) and 0 <= place[1] < 1 << 31]
        if not storable(vector_store_id) or not wanted:
            return []
        rows = await self._fetch(
            "chunks_at",
            **self._of_corpus(scope, vector_store_id),
            files=[file_id for file_id, _ in wanted],
            places=[index for _, index in wanted],
        )
        return [StoredChunk(*row) for row in rows]

    async def list_chunks(
        self, scope: Scope, vector_store_id: str, after: Place | None, most: int, files: Collection[str] | None = None
    ) -> Sequence[StoredChunk]:
        """Chunks in the order of their places, those beyond a place; of these files where given."""
        rows = await self._places("corpus_chunks", scope, vector_store_id, after, most, files)
        return [StoredChunk(*row) for row in rows]

    async def _places(
        self,
        query: str,
        scope: Scope,
        vector_store_id: str,
        after: Place | None,
        most: int,
        files: Collection[str] | None,
    ) -> list[Any]:
        """Rows of chunks with their file's id before them, in the order of their places, those beyond one."""
        if not storable(vector_store_id, after[0] if after else ""):
            return []
        held = None if files is None else [name for name in files if storable(name)]
        found: list[Any] = []
        low, key = after[0] if after else "", self._of_corpus(scope, vector_store_id)
        while len(found) < most:
            rows = await self._fetch("found_files", **key, files=held, low=low, most=_FILES_A_READ)
            if rows:
                beyond = after[1] if after is not None and after[0] == rows[0][1] else -1
                names = [row[1] for row in rows]
                bound = min(max(beyond, -1), (1 << 31) - 1)
                numbers = [row[0] for row in rows]
                some = await self._fetch(query, numbers=numbers, after=bound, most=most - len(found))
                found += [(names[number - 1], *row) for number, *row in some]
            if len(rows) < _FILES_A_READ:
                break
            # The next file's id is beyond this one's by at least this.
            low = rows[-1][1] + "\x01"
        return found


def _text(text: str) -> str:
    """Text as PostgreSQL can hold it."""
    return storable_text(text).replace("\0", "\ufffd")


def _quoted(stem: str) -> str:
    return "'" + stem.replace("\\", "\\\\").replace("'", "''") + "'"
