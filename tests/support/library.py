"""A library over a store in memory, with an embedder that knows a few words and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from antiphon.corpus.embedding import TextEmbedder, unit_vectors
from antiphon.corpus.librarian import Librarian
from antiphon.protocol.json import encode
from antiphon.settings import Settings
from antiphon.store.base import Store
from antiphon.store.corpora import NewChunk, StoredVectorStore
from antiphon.store.memory import MemoryStore
from antiphon.store.rows import Scope, StoreLimits
from support.corpora import ROOM, claimed, new_file, new_store, upload
from support.stores import OURS

__all__ = ["Meanings", "Shelved"]


class Meanings(TextEmbedder):
    """Vectors that count words by their meaning: words of one group are the same."""

    name = "meanings"

    def __init__(self, *groups: str) -> None:
        self.groups = [group.split() for group in groups]
        self.fault: Exception | None = None
        self.asked: list[str] = []
        self.wait: Callable[[], Any] | None = None

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        self.asked += texts
        if self.wait is not None:
            await self.wait()
        if self.fault is not None:
            raise self.fault
        rows = [[sum(text.lower().split().count(word) for word in group) for group in self.groups] for text in texts]
        return unit_vectors(np.array(rows, "<f8") + 1e-3)

    async def close(self) -> None:
        """Nothing to free."""


class Shelved:
    """A library, and the vector stores in which it searches."""

    def __init__(
        self,
        embedder: TextEmbedder | None,
        settings: Settings | None = None,
        store: Store | None = None,
        **fields: Any,
    ) -> None:
        self.store: Store = store or MemoryStore(StoreLimits())
        self.embedder = embedder
        self.library = Librarian(self.store, embedder, settings or Settings(), **fields)

    async def make(self, name: str = "vs-1", title: str = "", scope: Scope = OURS) -> None:
        """Make a vector store."""
        await self.store.create_vector_store(scope, new_store(name, title=title), ROOM)

    async def put(
        self,
        file_id: str,
        *chunks: str | tuple[str, str],
        of: Mapping[str, Any] | None = None,
        into: str = "vs-1",
        scope: Scope = OURS,
        vectors: bool = True,
    ) -> None:
        """Put a file with these chunks, texts or headings and texts, and these attributes into a vector store."""
        if await self.store.find_file(scope, file_id) is None:
            await upload(self.store, file_id, scope=scope)
        file = msgspec.structs.replace(new_file(file_id), attributes=encode(dict(of or {})))
        assert await self.store.add_store_files(scope, into, [file], ROOM) == []
        ingestion = await claimed(self.store)
        pairs = [("", each) if isinstance(each, str) else each for each in chunks]
        texts = [f"{heading}\n{text}" for heading, text in pairs]
        made = await self.embedder.embed(texts) if vectors and self.embedder is not None else [b""] * len(pairs)
        rows = [
            NewChunk(at, heading, text, b'{"page":%d}' % at, vector)
            for at, ((heading, text), vector) in enumerate(zip(pairs, made, strict=True))
        ]
        assert await self.store.add_chunks(ingestion, rows)
        assert await self.store.finish_ingestion(ingestion, None)

    async def stores(self, *names: str, scope: Scope = OURS) -> Sequence[StoredVectorStore]:
        """The vector stores of these names."""
        return await self.library.stores(scope, names or ("vs-1",))
