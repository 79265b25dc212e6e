"""The part of a store's interface that keeps vector stores: their files, chunks, vectors and text index (issue 6).

A vector store is a row; a file in it is a row that points to an uploaded file, with a status; its chunks are rows that
come in while it is ingested and are found once it is `completed`. What is read from chunks goes by (file id, index).
Ingestion is work that one owner at a time holds: it claims a file, and a claim that another has taken over is refused.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from antiphon.errors import InvalidRequestError
from antiphon.store.rows import Scope

__all__ = [
    "DAY_SECONDS",
    "MOST_WORDS",
    "ChunkVector",
    "CorpusLimits",
    "CorpusStore",
    "FileCounts",
    "Ingestion",
    "NearVectors",
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
    "Window",
    "arranged",
    "check_store_room",
    "expiry",
    "named_like",
    "window_of",
]

DAY_SECONDS = 24 * 3600
"""Seconds of a day of `expires_after_days`."""

MOST_WORDS = 64
"""Words of one text search; those beyond are not looked for."""


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
    """A vector store. Times in seconds since the epoch; `usage_bytes` counts the chunks of its completed files.

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

    `error` is a code and a message of a failed one. `filename` is that of the uploaded file. `chunks` counts them, and
    `usage_bytes` the bytes of their texts, headings, details and vectors, as they are kept. `revision` is the version
    of the vector store with which its chunks came to be found: what was read of them is good as long as it stays; 0
    while they are not found.
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
    revision: int = 0


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
    """A chunk that a search found; a higher score is a better one."""

    file_id: str
    index: int
    score: float


class NearVectors(Struct, frozen=True):
    """For each question the chunks whose vectors are nearest, best first, with the product of the two as score.

    `count` says how many chunks of the vector store have a vector of the questions' length.
    """

    hits: Sequence[Sequence[TextHit]]
    count: int


class CorpusStore(ABC):
    """Vector stores and what is in them. Ids sort by the time at which they were made, and lists by ids.

    An uploaded file that is deleted, or has expired and is swept, is taken out of every vector store.
    """

    text_fault: str = ""
    """Why words cannot be searched here; empty where they can."""

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

        The words hold letters and digits only, at most `MOST_WORDS` of them. Scores depend on this vector store alone.
        """

    @abstractmethod
    async def chunk_vectors(
        self, scope: Scope, vector_store_id: str, after: Place | None, most: int, files: Collection[str] | None = None
    ) -> Sequence[ChunkVector]:
        """The vectors of chunks that have one, in the order of their places, those beyond a place; of these files."""

    async def search_vectors(
        self,
        scope: Scope,
        vector_store_id: str,
        vectors: Sequence[bytes],
        most: int,
        files: Collection[str] | None = None,
    ) -> NearVectors | None:
        """For each vector of a question, all of one length, the nearest chunks; of these files where given.

        None where vectors are not searched in the store, or cannot be now: then they are read and compared elsewhere.
        """
        del scope, vector_store_id, vectors, most, files
        return None

    @abstractmethod
    async def find_chunks(self, scope: Scope, vector_store_id: str, places: Sequence[Place]) -> Sequence[StoredChunk]:
        """The chunks at these places, in any order; those that are not there are left out."""

    @abstractmethod
    async def list_chunks(
        self, scope: Scope, vector_store_id: str, after: Place | None, most: int, files: Collection[str] | None = None
    ) -> Sequence[StoredChunk]:
        """Chunks in the order of their places, those beyond a place; of these files where given."""


class Window(Struct, frozen=True):
    """What of a list to read: ids between two, from the end (`down`) or not, and whether to turn what was read."""

    low: str
    high: str
    down: bool
    turned: bool

    def holds(self, identity: str) -> bool:
        """Whether an id lies in it."""
        return self.low < identity < self.high


def window_of(page: VectorStorePage | StoreFilePage) -> Window:
    """Where a page lies in a list by ids; one that ends before an id is read from there backwards."""
    first, last = (page.before, page.after) if page.newest_first else (page.after, page.before)
    backwards = bool(page.before) and not page.after
    return Window(first, last or "~", page.newest_first != backwards, backwards)


async def named_like(
    listed: Callable[[Scope, VectorStorePage], Awaitable[Sequence[StoredVectorStore]]],
    scope: Scope,
    page: VectorStorePage,
) -> Sequence[StoredVectorStore]:
    """A page of those whose name holds the query, in any case, from a list that knows no query."""
    query, step = page.query.casefold(), replace(page, query="", limit=max(page.limit, 100))
    backwards = window_of(page).turned
    found: list[StoredVectorStore] = []
    while len(found) < page.limit:
        rows = await listed(scope, step)
        named = [row for row in rows if query in row.name.casefold()]
        found = [*named, *found] if backwards else [*found, *named]
        if len(rows) < step.limit:
            break
        step = replace(step, before=rows[0].id) if backwards else replace(step, after=rows[-1].id)
    return found[-page.limit :] if backwards else found[: page.limit]


def expiry(last_active_at: int, days: int | None) -> float:
    """When a vector store expires that was used last at that time; never is infinitely late."""
    return math.inf if days is None else last_active_at + days * DAY_SECONDS


def check_store_room(limits: CorpusLimits, count: int) -> InvalidRequestError | None:
    """The refusal of a vector store beside so many of the tenant's; None where there is room."""
    if count < limits.most_stores:
        return None
    return InvalidRequestError(
        f"There are {count} vector stores already, which is the most that this server keeps. Delete some of them.",
        code="vector_store_limit_reached",
    )


def arranged(
    files: Sequence[NewStoreFile], known: Mapping[str, str | None], count: int, limits: CorpusLimits
) -> tuple[list[NewStoreFile], list[str]] | InvalidRequestError:
    """What files that come in make of a vector store: those to put in, and the ids of those that they replace.

    `known` are those of its `count` files that have one of their ids or external ids, by id, with their external ids.
    An error where there is no room for them.
    """
    left = dict(known)
    replaced: dict[str, None] = {}
    for new in files:
        if new.external_id is not None:
            same = [name for name, known_as in left.items() if known_as == new.external_id and name != new.file_id]
            for name in same:
                del left[name]
            replaced.update(dict.fromkeys(same))
        left[new.file_id] = new.external_id
    added = {new.file_id: new for new in files if new.file_id in left}
    removed = [name for name in replaced if name in known and name not in left]
    after = count + sum(name not in known for name in added) - len(removed)
    if after > max(limits.most_files, count):
        return _file_limit_reached(limits)
    return list(added.values()), removed


def _file_limit_reached(limits: CorpusLimits) -> InvalidRequestError:
    return InvalidRequestError(
        f"A vector store of this server holds at most {limits.most_files} files. Take some out, or make another one.",
        code="file_limit_reached",
    )
