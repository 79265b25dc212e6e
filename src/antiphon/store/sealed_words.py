"""The words of a sealed store: an index in memory of each vector store that is searched, made of its opened chunks.

It is made at the first search, and brought up to date by the revisions of files when the vector store's version has
changed. So many bytes of text may be indexed at a time; the index that was not used for longest goes first. A vector
store that is larger than that alone is not searched by words, which is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence

from antiphon.store.corpora import CorpusStore, Place, StoredChunk, StoreFilePage, TextHit
from antiphon.store.rows import Scope
from antiphon.store.text_index import TextIndex

__all__ = ["MOST_TEXT", "SealedWords"]

_log = logging.getLogger(__name__)

MOST_TEXT = 256 * 1024 * 1024
"""Bytes of text that are indexed at a time, of all vector stores together."""

_FILES_A_PAGE = 500
_FILES_A_READ = 100
_CHUNKS_A_READ = 256

ListChunks = Callable[[Scope, str, Place | None, int, Collection[str] | None], Awaitable[Sequence[StoredChunk]]]
"""Lists opened chunks, as `CorpusStore.list_chunks` does."""

_Key = tuple[str, str]


class _Words:
    """The index of one vector store: the version that it is of, and the revisions of the files that are in it."""

    def __init__(self) -> None:
        self.index = TextIndex()
        self.version = -1
        self.revisions: dict[str, int] = {}
        self.lock = asyncio.Lock()

    def clear(self) -> None:
        self.index.close()
        self.index = TextIndex()
        self.version = -1
        self.revisions = {}


class SealedWords:
    """Indexes of the vector stores of `inner`, whose chunks `list_chunks` opens; at most `most_text` bytes of text."""

    def __init__(self, inner: CorpusStore, list_chunks: ListChunks, most_text: int = MOST_TEXT) -> None:
        self._inner = inner
        self._list_chunks = list_chunks
        self._known: OrderedDict[_Key, _Words] = OrderedDict()
        self.most_text = most_text

    def forget(self, tenant: str | None = None, vector_store_id: str | None = None) -> None:
        """Let go of the index of a vector store, of those of a tenant, or of all."""
        for key in list(self._known):
            if tenant in (None, key[0]) and vector_store_id in (None, key[1]):
                self._drop(key)

    async def search(
        self, scope: Scope, vector_store_id: str, words: Sequence[str], most: int, files: Collection[str] | None
    ) -> Sequence[TextHit]:
        """The best chunks that hold some of these words; of these files where given."""
        key = (scope.tenant, vector_store_id)
        row = await self._inner.find_vector_store(scope, vector_store_id)
        if row is None:
            self._drop(key)
            return []
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Words()
        self._known.move_to_end(key)
        async with known.lock:
            if known.version != row.version:
                await self._update(scope, vector_store_id, known)
                known.version = row.version
                self._bound(key)
            # On a thread: SQLite lets go of the interpreter's lock while it ranks. The lock keeps others from it.
            hits = await asyncio.to_thread(known.index.search, words, most, files)
        if self._known.get(key) is not known and not known.lock.locked():
            known.index.close()
        return hits

    async def _update(self, scope: Scope, vector_store_id: str, known: _Words) -> None:
        if known.index.stale:
            known.clear()
        found = await self._found(scope, vector_store_id)
        for file_id in [name for name, revision in known.revisions.items() if found.get(name) != revision]:
            known.index.remove(file_id)
            del known.revisions[file_id]
        new = [name for name in found if name not in known.revisions]
        for first in range(0, len(new), _FILES_A_READ):
            some = new[first : first + _FILES_A_READ]
            await self._add(scope, vector_store_id, known, some)
            if known.index.size > self.most_text:
                _log.warning("the vector store %s is too large for words to be searched in it sealed", vector_store_id)
                known.clear()
                return
            for file_id in some:
                known.index.show(file_id)
                known.revisions[file_id] = found[file_id]

    async def _found(self, scope: Scope, vector_store_id: str) -> dict[str, int]:
        """The revisions of the files that are found, by id."""
        found: dict[str, int] = {}
        page = StoreFilePage(_FILES_A_PAGE, newest_first=False, statuses=("completed",))
        while rows := await self._inner.list_store_files(scope, vector_store_id, page):
            found.update((row.file_id, row.revision) for row in rows)
            if len(rows) < _FILES_A_PAGE:
                break
            page = StoreFilePage(_FILES_A_PAGE, newest_first=False, after=rows[-1].file_id, statuses=("completed",))
        return found

    async def _add(self, scope: Scope, vector_store_id: str, known: _Words, files: Sequence[str]) -> None:
        after: Place | None = None
        while rows := await self._list_chunks(scope, vector_store_id, after, _CHUNKS_A_READ, files):
            texts: dict[str, list[tuple[int, str, str]]] = {}
            for row in rows:
                texts.setdefault(row.file_id, []).append((row.index, row.heading, row.text))
            for file_id, chunks in texts.items():
                await asyncio.to_thread(known.index.add, file_id, chunks)
            after = (rows[-1].file_id, rows[-1].index)

    def _bound(self, used: _Key) -> None:
        """Let go of the indexes that were not used for longest, until the rest fits."""
        for key, known in list(self._known.items()):
            if sum(words.index.size for words in self._known.values()) <= self.most_text:
                return
            # One in use by another search goes when that has ended.
            if key != used and not known.lock.locked():
                self._drop(key)

    def _drop(self, key: _Key) -> None:
        known = self._known.pop(key, None)
        # A search that holds it closes nothing under itself: the index goes with the last one that has it.
        if known is not None and not known.lock.locked():
            known.index.close()
