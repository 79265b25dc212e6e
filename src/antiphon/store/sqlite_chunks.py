"""Ingestion into the vector stores of the SQLite store, and what is found in them.

Text searches run on a thread and a connection of their own: SQLite lets go of the interpreter's lock while it ranks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import threading
from collections.abc import Collection, Sequence
from typing import Any

from antiphon.errors import APIError, ConfigurationError
from antiphon.store.corpora import ChunkVector, Ingestion, NewChunk, Place, StoredChunk, TextHit
from antiphon.store.corpus_rows import storable_text, store_file
from antiphon.store.queries import QUERIES
from antiphon.store.rows import Scope
from antiphon.store.sqlite_corpora import SQLiteCorpora
from antiphon.store.sqlite_corpus_removal import INDEX_BITS, words_table
from antiphon.store.sqlite_file import connect
from antiphon.store.sqlite_writer import clean_error
from antiphon.store.text_index import NO_TEXT_SEARCH, clean_words, has_full_text, match_of

__all__ = ["SQLiteChunks"]

_log = logging.getLogger(__name__)

_CHUNKS_A_STEP = 64
"""Chunks that come in with one transaction, which a write may have to wait for."""

_ADD = "INSERT INTO {0} (rowid, heading, text) VALUES (?, ?, ?)"
_COUNT = "SELECT count(*) FROM {0} WHERE {0} MATCH ?"
_RANK = """
SELECT rowid, -bm25({0}) * :scale FROM {0} WHERE {0} MATCH :match AND rowid >> 24 NOT IN (
  SELECT n FROM store_files WHERE store = :store AND status <> 'completed' AND chunks > 0
) ORDER BY 2 DESC, 1 LIMIT :most
"""
_RANK_OF_FILES = """
SELECT rowid, -bm25({0}) * :scale FROM {0} WHERE {0} MATCH :match AND rowid >> 24 IN (
  SELECT n FROM store_files WHERE store = :store AND status = 'completed'
    AND file_id IN (SELECT value FROM json_each(:files))
) ORDER BY 2 DESC, 1 LIMIT :most
"""
_FILES_A_READ = 500
_FENCE_BITS = 20
_INDEX_MASK = (1 << INDEX_BITS) - 1


class SQLiteChunks(SQLiteCorpora):
    """Keeps the chunks of vector stores in the store's file, with an index of their words."""

    _searcher: sqlite3.Connection | None = None
    _searching: threading.Lock

    async def open(self) -> None:
        """Open the file.

        Raises:
            ConfigurationError: it cannot be used, or has an index of words that this Python's SQLite cannot read.
        """
        await super().open()
        self._searching = threading.Lock()
        self.text_fault = "" if has_full_text() else NO_TEXT_SEARCH
        if self.text_fault and self._read("any_index", {})[0][0]:
            await self.close()
            raise ConfigurationError(f"The store {self.path} cannot be used. {NO_TEXT_SEARCH}")
        if self.text_fault and not self._beside:
            _log.warning("%s", NO_TEXT_SEARCH)

    async def close(self) -> None:
        """Finish what is under way and close the file."""
        if self._searcher is not None:
            await asyncio.to_thread(self._close_searcher)
        await super().close()

    # Ingestion

    async def claim_ingestion(self, owner: str, owners: Collection[str]) -> Ingestion | None:
        """Claim the oldest file that is pending, or in progress with none of these owners; None where none waits.

        Raises:
            UnavailableError: it cannot be written now.
        """
        key: dict[str, object] = {"owners": json.dumps(list(owners)), "now": self._clock()}
        if not self._read("find_ingestion", key):
            return None

        def claim() -> Ingestion | None:
            found = self._one("find_ingestion", key)
            if found is None:
                return None
            execute = self._open().connection.execute
            number = self._renew_file(found[0], "pending") if found[1] else found[0]
            execute(QUERIES["claim_ingestion"], (owner, number))
            tenant, fence, attempts = execute(QUERIES["claim_of"], (number,)).fetchone()
            file = store_file(execute(QUERIES["store_file_by_number"], (number,)).fetchone())
            return Ingestion(Scope(tenant), file, (number << _FENCE_BITS) + fence, attempts)

        claimed = await self._write(claim)
        await self._remove_lost()
        return claimed

    async def add_chunks(self, ingestion: Ingestion, chunks: Sequence[NewChunk]) -> bool:
        """Add chunks to a claimed file; False where the claim is not good any more.

        Raises:
            UnavailableError: it cannot be written now.
        """
        for first in range(0, len(chunks), _CHUNKS_A_STEP):
            some = chunks[first : first + _CHUNKS_A_STEP]
            if not await self._write(lambda some=some: self._add_some(ingestion, some), heavy=True):
                return False
        return True

    async def finish_ingestion(self, ingestion: Ingestion, error: tuple[str, str] | None) -> bool:
        """End a claim: the file is completed, or failed with that code and message; False as above.

        Raises:
            UnavailableError: it cannot be written now.
        """

        def finish() -> bool:
            claim = self._claim(ingestion)
            if claim is None:
                return False
            execute, number = self._open().connection.execute, ingestion.fence >> _FENCE_BITS
            if error is None:
                execute(QUERIES["complete_store_file"], (number,))
            else:
                number = self._renew_file(number, "failed") if claim[2] else number
                execute(QUERIES["fail_store_file"], (*error, number))
            return True

        finished = await self._write(finish)
        if error is not None:
            await self._remove_lost()
        return finished

    async def release_ingestion(self, ingestion: Ingestion) -> None:
        """Give a claim back: the server stops, and another claim begins anew.

        Raises:
            UnavailableError: it cannot be written now.
        """

        def release() -> None:
            if self._claim(ingestion) is not None:
                number = ingestion.fence >> _FENCE_BITS
                self._open().connection.execute(QUERIES["free_store_file"], (number,))

        await self._write(release)

    # Search

    async def search_text(
        self, scope: Scope, vector_store_id: str, words: Sequence[str], most: int, files: Collection[str] | None = None
    ) -> Sequence[TextHit]:
        """The best chunks that hold some of these words; of these files where given."""
        key = self._of_corpus(scope, vector_store_id)
        if most <= 0 or self.text_fault or not self._read("searched_store", key):
            return []
        kept = clean_words(words)
        return await asyncio.to_thread(self._search, key, kept, most, None if files is None else list(files))

    async def chunk_vectors(
        self, scope: Scope, vector_store_id: str, after: Place | None, most: int, files: Collection[str] | None = None
    ) -> Sequence[ChunkVector]:
        """The vectors of chunks that have one, in the order of their places."""
        key = self._of_corpus(scope, vector_store_id)
        return [ChunkVector(*row) for row in self._places("vectors_of", key, after, most, files)]

    async def find_chunks(self, scope: Scope, vector_store_id: str, places: Sequence[Place]) -> Sequence[StoredChunk]:
        """The chunks at these places; those that are not there are left out."""
        wanted = [place for place in dict.fromkeys(places) if 0 <= place[1] <= _INDEX_MASK]
        key = {**self._of_corpus(scope, vector_store_id), "places": json.dumps(wanted)}
        return [StoredChunk(*row) for row in self._read("chunk_at", key)]

    async def list_chunks(
        self, scope: Scope, vector_store_id: str, after: Place | None, most: int, files: Collection[str] | None = None
    ) -> Sequence[StoredChunk]:
        """Chunks in the order of their places, those beyond a place; of these files where given."""
        key = self._of_corpus(scope, vector_store_id)
        return [StoredChunk(*row) for row in self._places("chunks_of", key, after, most, files)]

    def _places(
        self, query: str, key: dict[str, object], after: Place | None, most: int, files: Collection[str] | None
    ) -> list[Any]:
        """Rows of chunks with their file's id before them, in the order of their places, those beyond one."""
        found: list[Any] = []
        held = None if files is None else json.dumps(list(files))
        key = {**key, "files": held, "most": _FILES_A_READ, "low": after[0] if after else ""}
        while len(found) < most:
            numbers = self._read("found_files", key)
            for number, file_id in numbers:
                first = number << INDEX_BITS
                low = first + (max(after[1], -1) if after is not None and after[0] == file_id else -1)
                bounds: dict[str, object] = {"low": low, "high": first + _INDEX_MASK + 1, "most": most - len(found)}
                found += [(file_id, *row) for row in self._read(query, bounds)]
                if len(found) >= most:
                    break
            if len(numbers) < _FILES_A_READ:
                break
            # The next file's id is beyond this one's by at least this.
            key["low"] = numbers[-1][1] + "\0"
        return found

    # On the thread of text searches

    def _search(self, key: dict[str, object], words: list[str], most: int, files: list[str] | None) -> list[TextHit]:
        with self._searching:
            try:
                if self._searcher is None:
                    self._searcher = connect(self.path, read_only=True)
                self._searcher.execute("BEGIN")
                try:
                    return self._ranked(self._searcher, key, words, most, files)
                finally:
                    self._searcher.execute("COMMIT")
            except sqlite3.Error as error:
                raise clean_error(error) from error

    def _ranked(
        self, searcher: sqlite3.Connection, key: dict[str, object], words: list[str], most: int, files: list[str] | None
    ) -> list[TextHit]:
        # Asked again: what is read from here on is of one moment.
        found = searcher.execute(QUERIES["searched_store"], key).fetchone()
        if found is None:
            return []
        table = words_table(found[0])
        counting = _COUNT.format(table)
        counts = {word: searcher.execute(counting, (f'"{word}"',)).fetchone()[0] for word in words}
        match, scale = match_of(counts, most)
        if not match:
            return []
        # The numbers of chunks say whose they are, so that no row of a chunk is read for a chunk that is not returned.
        values: dict[str, object] = {"match": match, "scale": scale, "most": most, "store": found[0]}
        if files is not None:
            values["files"] = json.dumps(files)
        rows = searcher.execute((_RANK if files is None else _RANK_OF_FILES).format(table), values).fetchall()
        names: dict[int, str] = {}
        for number in {row >> INDEX_BITS for row, _ in rows}:
            names[number] = searcher.execute(QUERIES["name_of_file"], (number,)).fetchone()[0]
        return [TextHit(names[row >> INDEX_BITS], row & _INDEX_MASK, score) for row, score in rows]

    def _close_searcher(self) -> None:
        with self._searching:
            searcher, self._searcher = self._searcher, None
            if searcher is not None:
                searcher.close()

    # Inside a job of the writer

    def _claim(self, ingestion: Ingestion) -> tuple[int, int, int] | None:
        """The vector store of a claim that is good, whether that has a text index, and the chunks of the file."""
        number, fence = ingestion.fence >> _FENCE_BITS, ingestion.fence & ((1 << _FENCE_BITS) - 1)
        return self._open().connection.execute(QUERIES["find_claim"], (number, fence)).fetchone()

    def _add_some(self, ingestion: Ingestion, chunks: Sequence[NewChunk]) -> bool | APIError:
        claim = self._claim(ingestion)
        if claim is None:
            return False
        execute, number = self._open().connection.execute, ingestion.fence >> _FENCE_BITS
        store, has_words, _ = claim
        added, size = 0, 0
        for chunk in chunks:
            row = (number << INDEX_BITS) + chunk.index
            heading, text = storable_text(chunk.heading), storable_text(chunk.text)
            if not execute(QUERIES["insert_corpus_chunk"], (row, heading, text, chunk.detail)).rowcount:
                continue
            if chunk.vector:
                execute(QUERIES["insert_corpus_vector"], (row, chunk.vector))
            if (heading or text) and not self.text_fault:
                if not has_words:
                    self._make_words(store)
                    has_words = 1
                execute(_ADD.format(words_table(store)), (row, heading, text))
            added += 1
            size += len(heading.encode()) + len(text.encode()) + len(chunk.detail) + len(chunk.vector)
        execute(QUERIES["count_corpus_chunks"], (added, size, int(not self.text_fault), number))
        return True
