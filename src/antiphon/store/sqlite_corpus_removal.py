"""How the SQLite store removes vector stores and their files: nobody finds them at once, and their rows go in steps.

A text index cannot be dropped in one step: its pages are overwritten, and there may be many. Since nobody reads it any
more, the rows of the tables that FTS5 keeps it in are deleted first, some at a time.
"""

from __future__ import annotations

import asyncio
import time

from antiphon.store.queries import QUERIES
from antiphon.store.rows import Scope
from antiphon.store.sqlite_files import SQLiteFiles
from antiphon.store.text_index import TOKENIZER

__all__ = ["INDEX_BITS", "SQLiteCorpusRemoval", "words_table"]

INDEX_BITS = 24
"""Bits of a chunk's number that are its index in its file; those above are the file's number."""

_CHUNKS_A_STEP = 64
_PARTS = (("data", 128), ("docsize", 4_000))
"""The large tables that FTS5 keeps an index in, and how many of their rows are deleted in one transaction."""

_DELETE = "DELETE FROM {0} WHERE id IN (SELECT id FROM {0} WHERE id > 10 LIMIT ?)"
"""The first ones say what the index is; without them it could not be opened to be dropped."""

_FORGET = "INSERT INTO {0} ({0}, rowid, heading, text) VALUES ('delete', ?, ?, ?)"
_FILES_A_STEP = 256
_REMOVE_SECONDS = 1.0
"""How long a call removes before it leaves the rest to the sweep."""


def words_table(store: int) -> str:
    """The name of the table that has the text index of a vector store."""
    return f"corpus_words_{store:d}"


class SQLiteCorpusRemoval(SQLiteFiles):
    """Removes vector stores and their files."""

    async def delete_file(self, scope: Scope, file_id: str) -> bool:
        """Remove a file and its content, whole or not, and take it out of all vector stores; False where there is none.

        Raises:
            UnavailableError: it cannot be written now.
        """
        deleted = await super().delete_file(scope, file_id)
        if deleted:
            await self._remove_lost()
        return deleted

    async def _remove_lost(self, seconds: float = _REMOVE_SECONDS, tenant: str | None = None) -> int:
        """Remove what nobody finds any more, of this tenant where one is given; the number of files and vector stores.

        In steps, for so many seconds; the sweep goes on with what is left then.
        """
        removed, until = 0, time.monotonic() + seconds
        # Asked before each step: where there is none, which is the usual case, that costs no transaction.
        while self._read("gone_store", {"tenant": tenant}) or (tenant is None and self._read("gone_store_file", {})):
            began = time.monotonic()
            if began > until:
                break
            removed += await self._write(lambda: self._remove_step(tenant), heavy=True)
            # For as long as the step took: what came meanwhile is not to share a transaction with the next one.
            await asyncio.sleep(time.monotonic() - began)
        return removed

    async def _expire_corpora(self, now: float) -> int:
        """Remove the vector stores whose time is up, and all that is left of others; the number of rows removed."""
        if self._read("any_expired_store", {"now": now}):
            await self._write(lambda: self._open().connection.execute(QUERIES["lose_expired_stores"], (now,)).rowcount)
        return await self._remove_lost(float("inf"))

    async def _remove_corpora_of(self, tenant: str) -> None:
        if self._read("any_store_of_tenant", {"tenant": tenant}):
            await self._write(
                lambda: self._open().connection.execute(QUERIES["lose_stores_of_tenant"], (tenant,)).rowcount
            )
        await self._remove_lost(float("inf"), tenant)

    # Inside a job of the writer

    def _lose_file(self, number: int) -> bool:
        """Let nobody find a file of a vector store any more."""
        return self._open().connection.execute(QUERIES["lose_store_file"], (number,)).rowcount > 0

    def _renew_file(self, number: int, status: str) -> int:
        """Put a row without chunks in the place of one that has some; its number."""
        execute = self._open().connection.execute
        self._lose_file(number)
        return execute(QUERIES["renew_store_file"], (status, number)).lastrowid or 0

    def _remove_step(self, tenant: str | None) -> int:
        """Remove some rows; how many vector stores and files went with them."""
        execute = self._open().connection.execute
        gone = execute(QUERIES["gone_store"], {"tenant": tenant}).fetchone()
        if gone is not None:
            return self._remove_of_store(*gone)
        removed, room = 0, _CHUNKS_A_STEP
        while room > 0 and (found := execute(QUERIES["gone_store_file"], {}).fetchone()) is not None:
            number, store, indexed = found
            count = self._remove_chunks(number, store, indexed, room)
            removed += count < room
            room -= 1 + count
        return removed

    def _remove_of_store(self, store: int, indexed: int) -> int:
        execute = self._open().connection.execute
        if indexed:
            words = words_table(store)
            if not any(execute(_DELETE.format(f"{words}_{part}"), (most,)).rowcount for part, most in _PARTS):
                execute(f"DROP TABLE {words}")
                execute(QUERIES["set_indexed"], (0, store))
            return 0
        room = _FILES_A_STEP
        while room > 0:
            found = execute(QUERIES["file_of_gone_store"], (store,)).fetchone()
            if found is None:
                break
            room -= 1 + self._remove_chunks(found[0], store, 0, room)
        else:
            return 0
        if execute(QUERIES["delete_batches_of"], (store, _FILES_A_STEP)).rowcount < _FILES_A_STEP:
            execute(QUERIES["delete_vector_store"], (store,))
            return 1
        return 0

    def _remove_chunks(self, number: int, store: int, indexed: int, most: int) -> int:
        """Remove at most so many chunks of a file, and its row with the last of them; how many they were."""
        execute = self._open().connection.execute
        first = number << INDEX_BITS
        chunks = execute(QUERIES["some_chunks_of"], (first, first + (1 << INDEX_BITS) - 1, most)).fetchall()
        for chunk, heading, text in chunks:
            if indexed and (heading or text):
                execute(_FORGET.format(words_table(store)), (chunk, heading, text))
            execute(QUERIES["delete_corpus_vector"], (chunk,))
            execute(QUERIES["delete_corpus_chunk"], (chunk,))
        if len(chunks) < most:
            execute(QUERIES["delete_store_file"], (number,))
        return len(chunks)

    def _make_words(self, store: int) -> None:
        """Make the text index of a vector store: a table of its own, so that no other's words count in its scores."""
        execute = self._open().connection.execute
        execute(
            f"CREATE VIRTUAL TABLE {words_table(store)} USING fts5 "
            f"(heading, text, content = '', tokenize = '{TOKENIZER}')"
        )
        execute(QUERIES["set_indexed"], (1, store))
