"""The vector stores of the memory store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from antiphon.errors import InvalidRequestError
from antiphon.store.corpora import (
    ChunkVector,
    CorpusLimits,
    CorpusStore,
    FileCounts,
    Ingestion,
    NewChunk,
    NewStoreFile,
    Place,
    StoredBatch,
    StoredChunk,
    StoredVectorStore,
    StoreFile,
    StoreFilePage,
    TextHit,
    VectorStorePage,
    arranged,
    check_store_room,
    named_like,
    window_of,
)
from antiphon.store.memory_corpus import WAITING, Corpus, CorpusFile, texts_of
from antiphon.store.memory_files import MemoryFiles
from antiphon.store.memory_rows import Key
from antiphon.store.rows import Scope
from antiphon.store.text_index import NO_TEXT_SEARCH, TextIndex, has_full_text

__all__ = ["MemoryCorpora"]


class MemoryCorpora(MemoryFiles, CorpusStore):
    """Keeps vector stores beside the files that they are made of."""

    def __init__(self, file_clock: Callable[[], float]) -> None:
        super().__init__(file_clock)
        self._corpora: dict[Key, Corpus] = {}
        self._ingestions: dict[tuple[str, str, str], CorpusFile] = {}
        self._last_fence = 0
        self.text_fault = "" if has_full_text() else NO_TEXT_SEARCH

    # Vector stores

    async def create_vector_store(self, scope: Scope, row: StoredVectorStore, limits: CorpusLimits) -> None:
        """Create one, without files.

        Raises:
            InvalidRequestError: the tenant has no room for it.
        """
        refusal = check_store_room(limits, len(self._corpora_of(scope)))
        if refusal is not None:
            raise refusal
        self._corpora[scope.tenant, row.id] = Corpus(replace(row, version=0))

    async def find_vector_store(self, scope: Scope, vector_store_id: str) -> StoredVectorStore | None:
        """One by id, that has not expired."""
        corpus = self._corpus(scope, vector_store_id)
        return None if corpus is None else corpus.stored()

    async def find_vector_store_named(self, scope: Scope, name: str) -> StoredVectorStore | None:
        """The newest one of that name that has not expired."""
        named = [corpus for corpus in self._corpora_of(scope) if corpus.row.name == name]
        return max(named, key=lambda corpus: corpus.row.id).stored() if named else None

    async def list_vector_stores(self, scope: Scope, page: VectorStorePage) -> Sequence[StoredVectorStore]:
        """Those of a tenant that have not expired."""
        if page.query:
            return await named_like(self.list_vector_stores, scope, page)
        window = window_of(page)
        found = [corpus for corpus in self._corpora_of(scope) if window.holds(corpus.row.id)]
        found.sort(key=lambda corpus: corpus.row.id, reverse=window.down)
        listed = [corpus.stored() for corpus in found[: page.limit]]
        return listed[::-1] if window.turned else listed

    async def change_vector_store(
        self, scope: Scope, vector_store_id: str, *, name: str, expires_after_days: int | None, detail: bytes, now: int
    ) -> StoredVectorStore | None:
        """Change one, which counts as a use; None where there is none by that id."""
        corpus = self._corpus(scope, vector_store_id)
        if corpus is None:
            return None
        corpus.use(now)
        corpus.row = replace(corpus.row, name=name, expires_after_days=expires_after_days, detail=detail)
        return corpus.stored()

    async def use_vector_store(self, scope: Scope, vector_store_id: str, now: int) -> None:
        """Note that it was used."""
        corpus = self._corpus(scope, vector_store_id)
        if corpus is not None:
            corpus.use(now)

    async def delete_vector_store(self, scope: Scope, vector_store_id: str) -> bool:
        """Remove one with its files' rows, chunks and index; False where there is none."""
        if self._corpus(scope, vector_store_id) is None:
            return False
        self._drop_corpus((scope.tenant, vector_store_id))
        return True

    # Files

    async def add_store_files(
        self,
        scope: Scope,
        vector_store_id: str,
        files: Sequence[NewStoreFile],
        limits: CorpusLimits,
        batch: StoredBatch | None = None,
    ) -> Sequence[str] | None:
        """Put uploaded files into a vector store; the ids that are no whole files, None where there is no such store.

        Raises:
            InvalidRequestError: the vector store has no room for them.
        """
        corpus = self._corpus(scope, vector_store_id)
        if corpus is None:
            return None
        missing = [new.file_id for new in files if self._found(scope, new.file_id) is None]
        if missing:
            return list(dict.fromkeys(missing))
        known = {file_id: file.row.external_id for file_id, file in corpus.files.items()}
        arrangement = arranged(files, known, len(known), limits)
        if isinstance(arrangement, InvalidRequestError):
            raise arrangement
        added, replaced = arrangement
        for name in replaced:
            self._drop_file(corpus, name)
        if batch is not None:
            corpus.batches[batch.id] = replace(batch, vector_store_id=vector_store_id, files=FileCounts())
        for new in added:
            self._put(scope, corpus, replace(new, batch_id=batch.id if batch is not None else new.batch_id))
        corpus.use(max((new.created_at for new in files), default=0))
        return []

    async def find_store_file(self, scope: Scope, vector_store_id: str, file_id: str) -> StoreFile | None:
        """A file of a vector store, by its id or its external id."""
        file = self._file(scope, vector_store_id, file_id)
        return None if file is None else self._named(file)

    async def list_store_files(self, scope: Scope, vector_store_id: str, page: StoreFilePage) -> Sequence[StoreFile]:
        """Files of a vector store, by id."""
        corpus = self._corpus(scope, vector_store_id)
        window = window_of(page)
        found = [
            file
            for file_id, file in (corpus.files.items() if corpus is not None else ())
            if window.holds(file_id)
            and (not page.statuses or file.row.status in page.statuses)
            and page.batch_id in (None, file.row.batch_id)
        ]
        found.sort(key=lambda file: file.row.file_id, reverse=window.down)
        listed = [self._named(file) for file in found[: page.limit]]
        return listed[::-1] if window.turned else listed

    async def change_store_file(
        self, scope: Scope, vector_store_id: str, file_id: str, attributes: bytes
    ) -> StoreFile | None:
        """Give a file other attributes; None where there is none."""
        corpus, file = self._corpus(scope, vector_store_id), self._file(scope, vector_store_id, file_id)
        if corpus is None or file is None:
            return None
        file.row = replace(file.row, attributes=attributes)
        if file.found:
            corpus.change()
        return self._named(file)

    async def remove_store_file(self, scope: Scope, vector_store_id: str, file_id: str) -> bool:
        """Take a file out of a vector store, with its chunks; False where there is none."""
        corpus, file = self._corpus(scope, vector_store_id), self._file(scope, vector_store_id, file_id)
        if corpus is None or file is None:
            return False
        self._drop_file(corpus, file.row.file_id)
        return True

    async def find_batch(self, scope: Scope, vector_store_id: str, batch_id: str) -> StoredBatch | None:
        """A batch of a vector store."""
        corpus = self._corpus(scope, vector_store_id)
        return None if corpus is None or batch_id not in corpus.batches else corpus.batch(batch_id)

    async def cancel_batch(self, scope: Scope, vector_store_id: str, batch_id: str) -> StoredBatch | None:
        """Cancel the files of a batch that have not been ingested; None where there is no such batch."""
        corpus = self._corpus(scope, vector_store_id)
        if corpus is None or batch_id not in corpus.batches:
            return None
        corpus.batches[batch_id] = replace(corpus.batches[batch_id], cancelled=True)
        for file in corpus.files.values():
            if file.row.batch_id == batch_id and file.row.status in WAITING:
                self._empty(corpus, file, "cancelled")
        return corpus.batch(batch_id)

    # Ingestion

    async def claim_ingestion(self, owner: str, owners: Collection[str]) -> Ingestion | None:
        """Claim the oldest file that is pending, or in progress with none of these owners; None where none waits."""
        now = self._file_clock()
        free = [
            file
            for file in self._ingestions.values()
            if (file.row.status == "pending" or file.owner not in owners) and not self._corpus_of(file).expired(now)
        ]
        if not free:
            return None
        file = min(free, key=lambda file: file.row.created_at)
        self._empty(self._corpus_of(file), file, "in_progress")
        self._last_fence += 1
        file.owner, file.fence, file.attempts = owner, self._last_fence, file.attempts + 1
        return Ingestion(Scope(file.tenant), self._named(file), file.fence, file.attempts)

    async def add_chunks(self, ingestion: Ingestion, chunks: Sequence[NewChunk]) -> bool:
        """Add chunks to a claimed file; False where the claim is not good any more."""
        file = self._claimed(ingestion)
        if file is None:
            return False
        corpus = self._corpus_of(file)
        chunks = [chunk for chunk in chunks if chunk.index not in file.chunks]
        file.chunks.update((chunk.index, chunk) for chunk in chunks)
        usage = file.row.usage_bytes + sum(map(_size, chunks))
        file.row = replace(file.row, chunks=len(file.chunks), usage_bytes=usage)
        if not self.text_fault:
            corpus.index = corpus.index or TextIndex()
            corpus.index.add(file.row.file_id, texts_of(chunks))
        return True

    async def finish_ingestion(self, ingestion: Ingestion, error: tuple[str, str] | None) -> bool:
        """End a claim: the file is completed, or failed with that code and message; False as above."""
        file = self._claimed(ingestion)
        if file is None:
            return False
        corpus = self._corpus_of(file)
        if error is None:
            corpus.show(file)
            del self._ingestions[file.key]
        else:
            self._empty(corpus, file, "failed")
            file.row = replace(file.row, error=error)
        return True

    async def release_ingestion(self, ingestion: Ingestion) -> None:
        """Give a claim back: the server stops, and another claim begins anew."""
        file = self._claimed(ingestion)
        if file is not None:
            self._empty(self._corpus_of(file), file, "pending")
            file.attempts -= 1

    # Search

    async def search_text(
        self, scope: Scope, vector_store_id: str, words: Sequence[str], most: int, files: Collection[str] | None = None
    ) -> Sequence[TextHit]:
        """The best chunks that hold some of these words; of these files where given."""
        corpus = self._corpus(scope, vector_store_id)
        return [] if corpus is None or corpus.index is None else corpus.index.search(words, most, files)

    async def chunk_vectors(
        self, scope: Scope, vector_store_id: str, after: Place | None, most: int, files: Collection[str] | None = None
    ) -> Sequence[ChunkVector]:
        """The vectors of chunks that have one, in the order of their places."""
        found: list[ChunkVector] = []
        corpus = self._corpus(scope, vector_store_id)
        for file_id, chunk in corpus.places(after, files) if corpus is not None and most > 0 else ():
            if chunk.vector:
                found.append(ChunkVector(file_id, chunk.index, chunk.vector))
                if len(found) == most:
                    break
        return found

    async def find_chunks(self, scope: Scope, vector_store_id: str, places: Sequence[Place]) -> Sequence[StoredChunk]:
        """The chunks at these places; those that are not there are left out."""
        corpus = self._corpus(scope, vector_store_id)
        found: list[StoredChunk] = []
        for file_id, index in dict.fromkeys(places) if corpus is not None else ():
            file = corpus.files.get(file_id) if corpus is not None else None
            if file is not None and file.found and index in file.chunks:
                found.append(_stored(file_id, file.chunks[index]))
        return found

    async def list_chunks(
        self, scope: Scope, vector_store_id: str, after: Place | None, most: int, files: Collection[str] | None = None
    ) -> Sequence[StoredChunk]:
        """Chunks in the order of their places, those beyond a place; of these files where given."""
        found: list[StoredChunk] = []
        corpus = self._corpus(scope, vector_store_id)
        for file_id, chunk in corpus.places(after, files) if corpus is not None and most > 0 else ():
            found.append(_stored(file_id, chunk))
            if len(found) == most:
                break
        return found

    # Rows

    def _corpora_of(self, scope: Scope) -> list[Corpus]:
        now = self._file_clock()
        return [corpus for key, corpus in self._corpora.items() if key[0] == scope.tenant and not corpus.expired(now)]

    def _corpus(self, scope: Scope, vector_store_id: str) -> Corpus | None:
        corpus = self._corpora.get((scope.tenant, vector_store_id))
        return None if corpus is None or corpus.expired(self._file_clock()) else corpus

    def _corpus_of(self, file: CorpusFile) -> Corpus:
        return self._corpora[file.tenant, file.row.vector_store_id]

    def _file(self, scope: Scope, vector_store_id: str, name: str) -> CorpusFile | None:
        corpus = self._corpus(scope, vector_store_id)
        return None if corpus is None else corpus.files.get(name) or corpus.external(name)

    def _claimed(self, ingestion: Ingestion) -> CorpusFile | None:
        file = self._ingestions.get((ingestion.scope.tenant, ingestion.file.vector_store_id, ingestion.file.file_id))
        return None if file is None or file.row.status != "in_progress" or file.fence != ingestion.fence else file

    def _named(self, file: CorpusFile) -> StoreFile:
        upload = self._files[file.tenant, file.row.file_id].file
        return replace(file.row, filename=upload.filename.decode("utf-8", "surrogateescape"))

    def _put(self, scope: Scope, corpus: Corpus, new: NewStoreFile) -> None:
        self._drop_file(corpus, new.file_id)
        row = StoreFile(
            vector_store_id=corpus.row.id,
            file_id=new.file_id,
            filename="",
            created_at=new.created_at,
            status="pending",
            attributes=new.attributes,
            detail=new.detail,
            external_id=new.external_id,
            batch_id=new.batch_id,
        )
        file = CorpusFile(scope.tenant, row)
        corpus.put(file)
        self._ingestions[file.key] = file

    def _empty(self, corpus: Corpus, file: CorpusFile, status: str) -> None:
        """Give a file that is not completed another status, without chunks."""
        file.chunks = {}
        corpus.hide(file)
        file.row = replace(file.row, status=status, chunks=0, usage_bytes=0)
        if status in WAITING:
            self._ingestions[file.key] = file
        else:
            self._ingestions.pop(file.key, None)

    def _drop_file(self, corpus: Corpus, file_id: str) -> None:
        file = corpus.drop(file_id)
        if file is not None:
            self._ingestions.pop(file.key, None)

    def _drop_corpus(self, key: Key) -> None:
        corpus = self._corpora.pop(key)
        for file_id in list(corpus.files):
            self._drop_file(corpus, file_id)

    def _file_went(self, key: Key) -> None:
        for corpus_key, corpus in self._corpora.items():
            if corpus_key[0] == key[0]:
                self._drop_file(corpus, key[1])

    def _expire_corpora(self) -> int:
        """Remove the vector stores whose time is up; the number removed."""
        now = self._file_clock()
        due = [key for key, corpus in self._corpora.items() if corpus.expired(now)]
        for key in due:
            self._drop_corpus(key)
        return len(due)

    def _delete_corpora_of(self, tenant: str) -> None:
        for key in [key for key in self._corpora if key[0] == tenant]:
            self._drop_corpus(key)

    def _forget_corpora(self) -> None:
        for key in list(self._corpora):
            self._drop_corpus(key)


def _stored(file_id: str, chunk: NewChunk) -> StoredChunk:
    return StoredChunk(file_id, chunk.index, chunk.heading, chunk.text, chunk.detail)


def _size(chunk: NewChunk) -> int:
    return len(chunk.heading.encode()) + len(chunk.text.encode()) + len(chunk.detail) + len(chunk.vector)
