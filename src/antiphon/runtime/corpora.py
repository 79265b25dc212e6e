"""The documents of one server: what makes their vectors, the search in them, and the workers that ingest them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from antiphon.corpus.build import document_embedder, reranker
from antiphon.corpus.ingest import Ingester
from antiphon.corpus.librarian import Librarian
from antiphon.corpus.library import Library
from antiphon.engines.registry import Registry
from antiphon.runtime.ingestion import IngestionWorkers
from antiphon.runtime.observer import Observer
from antiphon.settings import Settings
from antiphon.store.base import Store

__all__ = ["Corpora"]


class Corpora:
    """One a server; nothing is loaded before it is needed, and without a store there is nothing.

    Raises:
        ConfigurationError: the settings name no embedding model or reranker that there is.
    """

    def __init__(self, settings: Settings, registry: Registry, store: Store | None, observer: Observer) -> None:
        self.embedder = document_embedder(settings, registry) if store is not None else None
        self._reranker = reranker(settings, registry) if store is not None else None
        self._librarian = (
            Librarian(
                store,
                self.embedder,
                settings,
                self._reranker,
                on_fault=observer.fault,
                on_search=observer.searched,
            )
            if store is not None
            else None
        )
        self._settings = settings
        self._store = store
        self._observer = observer
        self._workers: IngestionWorkers | None = None

    @property
    def library(self) -> Library | None:
        """The search in documents."""
        return self._librarian

    @property
    def ingesting(self) -> int:
        """Files that are ingested now."""
        return self._workers.running if self._workers is not None else 0

    def start(self, owner: str, owners: Callable[[], Collection[str]]) -> None:
        """Begin to ingest what waits, as one of the living owners."""
        store = self._store
        if store is None or not self._settings.ingestion_workers:
            return
        embed = self.embedder.embed if self.embedder is not None else None
        self._workers = IngestionWorkers(
            store,
            Ingester(store, store, embed, without=self._without_vectors),
            self._observer,
            owner=owner,
            owners=owners,
            workers=self._settings.ingestion_workers,
            shared=store.shared,
        )
        self._workers.start()

    def ring(self) -> None:
        """Files have come into a vector store."""
        if self._workers is not None:
            self._workers.ring()

    async def stop(self) -> None:
        """Ingest no more; what was begun is given back, and begun anew by whoever comes next."""
        if self._workers is not None:
            await self._workers.stop()

    async def close(self) -> None:
        """Free what belongs to it."""
        if self._librarian is not None:
            await self._librarian.close()
        for each in (self.embedder, self._reranker):
            if each is not None:
                await each.close()

    def _without_vectors(self, error: Exception) -> None:
        self._observer.fault("documents are ingested without vectors: the embedding model cannot be had", error)
