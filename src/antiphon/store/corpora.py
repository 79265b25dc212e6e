"""The part of a store's interface that keeps vector stores: their files, chunks, vectors and text index (issue 6).

A vector store is a row; a file in it is a row that points to an uploaded file, with a status; its chunks are rows that
come in while it is ingested and are found once it is `completed`. What is read from chunks goes by (file id, index).
Ingestion is work that one owner at a time holds: it claims a file, and a claim that another has taken over is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from msgspec import Struct

from antiphon.store.rows import Scope

__all__ = [
    "ChunkVector",
    "CorpusLimits",
    "CorpusStore",
    "FileCounts",
    "Ingestion",
    "NewChunk",
    "NewStoreFile",
    "Place",
    "StoreFile",
    "StoreFilePage",
    "StoredBatch",
    "StoredChunk",
    "StoredVectorStore",
    "TextHit",
    "VectorStorePage",
]


class CorpusLimits(Struct, frozen=True):
    """How many vector stores one tenant may have, and how many files one of them."""

    most_stores: int
    most_files: int


class FileCounts(Struct, frozen=True):
    """The files of a vector store or a batch by status.

    A `pending` one waits for its turn; to OpenAI's clients it is `in_progress`.
    """

    pending: int = 0
    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


class StoredVectorStore(Struct, frozen=True):
    """A vector store. Times in seconds since the epoch; `usage_bytes` counts the text and the vectors of its chunks.

    `detail` is JSON that the store does not look into: description, metadata, configuration. `name` is what it is found
    by beside its id (`store_identifiers`); names need not be unique, the newest is found. `version` is raised by
    each change of what a search can find: a cache of a version is good as long as the row has it.
    """

    id: str
    name: str
    created_at: int
    last_active_at: int
    expires_after_days: int | None
    detail: bytes
    usage_bytes: int = 0
    version: int = 0
    files: FileCounts = FileCounts()


class VectorStorePage(Struct, frozen=True):
    """At most `limit` vector stores beyond an id, or before one, whose name holds `query` where that is given."""

    limit: int
    newest_first: bool = True
    after: str = ""
    before: str = ""
    query: str = ""


class NewStoreFile(Struct, frozen=True):
    """A file that comes into a vector store: `attributes` and `detail` (chunking, parsing) are JSON, not looked into.

    `external_id` is the caller's own name of it; a file with that of another one in the same store replaces it.
    """

    file_id: str
    created_at: int
    attributes: bytes
    detail: bytes
    external_id: str | None = None
    batch_id: str | None = None


class StoreFile(Struct, frozen=True):
    """A file in a vector store. `status` is pending, in_progress, completed, failed or cancelled.

    `error` is a code and a message of a failed one. `filename` is that of the uploaded file. `chunks` counts them.
    """

    vector_store_id: str
    file_id: str
    filename: str
    created_at: int
    status: str
    attributes: bytes
    detail: bytes
    external_id: str | None = None
    batch_id: str | None = None
    error: tuple[str, str] | None = None
    usage_bytes: int = 0
    chunks: int = 0


class StoreFilePage(Struct, frozen=True):
    """At most `limit` files beyond a file id, or before one, of these statuses and of one batch where given."""

    limit: int
    newest_first: bool = True
    after: str = ""
    before: str = ""
    statuses: tuple[str, ...] = ()
    batch_id: str | None = None


class StoredBatch(Struct, frozen=True):
    """A batch of files of one vector store; `cancelled` says that it was cancelled."""

    id: str
    vector_store_id: str
    created_at: int
    cancelled: bool = False
    files: FileCounts = FileCounts()


class Ingestion(Struct, frozen=True):
    """A file that is to be ingested, claimed by an owner; `fence` tells this claim from later ones."""

    scope: Scope
    file: StoreFile
    fence: int
    attempts: int
    """How often it has been claimed; one that takes its process down every time is given up."""


Place = tuple[str, int]
"""Where a chunk is in its vector store: the file's id, and the chunk's index in it."""


class NewChunk(Struct, frozen=True):
    """A chunk that comes in: `text` is shown and searched, after `heading`, the path of headings that it stands under.

    `detail` is JSON that the store does not look into (page, lines, type). `vector` are little-endian 32-bit floats of
    length 1, empty where there is no embedding model.
    """

    index: int
    heading: str
    text: str
    detail: bytes
    vector: bytes = b""


class StoredChunk(Struct, frozen=True):
    """A chunk of a completed file."""

    file_id: str
    index: int
    heading: str
    text: str
    detail: bytes


class ChunkVector(Struct, frozen=True):
    """The vector of a chunk."""

    file_id: str
    index: int
    vector: bytes


class TextHit(Struct, frozen=True):
    """A chunk that a text search found; a higher score is a better one."""

    file_id: str
    index: int
    score: float


class CorpusStore(ABC):
    """Vector stores and what is in them. Ids sort by the time at which they were made, and lists by ids."""

    @abstractmethod
    async def create_vector_store(self, scope: Scope, row: StoredVectorStore, limits: CorpusLimits) -> None:
        """Create one, without files.

        Raises:
            InvalidRequestError: `vector_store_limit_reached`, the tenant has no room for it.
        """

    @abstractmethod
    async def find_vector_store(self, scope: Scope, vector_store_id: str) -> StoredVectorStore | None:
        """One by id, that has not expired."""

    @abstractmethod
    async def find_vector_store_named(self, scope: Scope, name: str) -> StoredVectorStore | None:
        """The newest one of that name that has not expired."""

    @abstractmethod
    async def list_vector_stores(self, scope: Scope, page: VectorStorePage) -> Sequence[StoredVectorStore]:
        """Those of a tenant that have not expired."""

    @abstractmethod
    async def change_vector_store(
        self, scope: Scope, vector_store_id: str, *, name: str, expires_after_days: int | None, detail: bytes, now: int
    ) -> StoredVectorStore | None:
        """Change one, which counts as a use; None where there is none by that id."""

    @abstractmethod
    async def use_vector_store(self, scope: Scope, vector_store_id: str, now: int) -> None:
        """Note that it was used: `expires_after` counts from then. Need not be durable at once."""

    @abstractmethod
    async def delete_vector_store(self, scope: Scope, vector_store_id: str) -> bool:
        """Remove one with its files' rows, chunks and index; uploaded files stay. False where there is none."""

    @abstractmethod
    async def add_store_files(
        self,
        scope: Scope,
        vector_store_id: str,
        files: Sequence[NewStoreFile],
        limits: CorpusLimits,
        batch: StoredBatch | None = None,
    ) -> Sequence[str] | None:
        """Put uploaded files into a vector store, as `pending`, with a batch where they come in one.

        A file that is there already is ingested anew. The ids that are no whole files of this tenant; then nothing was
        added. None where there is no vector store by that id.

        Raises:
            InvalidRequestError: `file_limit_reached`, the vector store has no room for them.
        """

    @abstractmethod
    async def find_store_file(self, scope: Scope, vector_store_id: str, file_id: str) -> StoreFile | None:
        """A file of a vector store, by its id or its external id."""

    @abstractmethod
    async def list_store_files(self, scope: Scope, vector_store_id: str, page: StoreFilePage) -> Sequence[StoreFile]:
        """Files of a vector store, by id."""

    @abstractmethod
    async def change_store_file(
        self, scope: Scope, vector_store_id: str, file_id: str, attributes: bytes
    ) -> StoreFile | None:
        """Give a file other attributes; None where there is none."""

    @abstractmethod
    async def remove_store_file(self, scope: Scope, vector_store_id: str, file_id: str) -> bool:
        """Take a file out of a vector store, with its chunks; False where there is none."""

    @abstractmethod
    async def find_batch(self, scope: Scope, vector_store_id: str, batch_id: str) -> StoredBatch | None:
        """A batch of a vector store."""

    @abstractmethod
    async def cancel_batch(self, scope: Scope, vector_store_id: str, batch_id: str) -> StoredBatch | None:
        """Cancel the files of a batch that have not been ingested; None where there is no such batch."""

    @abstractmethod
    async def claim_ingestion(self, owner: str, owners: Collection[str]) -> Ingestion | None:
        """Claim the oldest file, of whatever tenant, that is pending, or in progress with none of these owners.

        What chunks an earlier claim has left are removed. None where nothing waits.
        """

    @abstractmethod
    async def add_chunks(self, ingestion: Ingestion, chunks: Sequence[NewChunk]) -> bool:
        """Add chunks to a claimed file; False where the claim is not good any more."""

    @abstractmethod
    async def finish_ingestion(self, ingestion: Ingestion, error: tuple[str, str] | None) -> bool:
        """End a claim: the file is completed, or failed with that code and message; False as above."""

    @abstractmethod
    async def release_ingestion(self, ingestion: Ingestion) -> None:
        """Give a claim back: the server stops, and another claim begins anew."""

    @abstractmethod
    async def search_text(
        self, scope: Scope, vector_store_id: str, words: Sequence[str], most: int, files: Collection[str] | None = None
    ) -> Sequence[TextHit]:
        """The best chunks that hold some of these words, each by itself and stemmed; of these files where given.

        The words hold letters and digits only, at most 64 of them.
        """

    @abstractmethod
    async def chunk_vectors(
        self, scope: Scope, vector_store_id: str, after: Place | None, most: int
    ) -> Sequence[ChunkVector]:
        """The vectors of chunks that have one, in the order of their places, those beyond a place."""

    @abstractmethod
    async def find_chunks(self, scope: Scope, vector_store_id: str, places: Sequence[Place]) -> Sequence[StoredChunk]:
        """The chunks at these places, in any order; those that are not there are left out."""

    @abstractmethod
    async def list_chunks(
        self, scope: Scope, vector_store_id: str, after: Place | None, most: int, files: Collection[str] | None = None
    ) -> Sequence[StoredChunk]:
        """Chunks in the order of their places, those beyond a place; of these files where given."""
