"""The workers that ingest files in the background: so many at a time, each file claimed in the store by one server.

A ring wakes them where files come in by this server. Else they look now and then: another server may have ended in the
middle of one. Nothing is done while nothing waits, and what a server that stops has begun waits for the next claim.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from antiphon.corpus.ingest import Ingester
from antiphon.errors import UnavailableError
from antiphon.runtime.observer import Observer
from antiphon.store.corpora import CorpusStore, Ingestion

__all__ = ["LOOK_SECONDS", "IngestionWorkers"]

LOOK_SECONDS: Final = 5.0
"""Seconds after which servers that share a store look for files that nobody ingests."""

_ALONE_SECONDS: Final = 60.0
_AGAIN_SECONDS: Final = 2.0
"""Seconds to wait for a store that could not be used."""


class IngestionWorkers:
    """Claims files and has them ingested. `owners` are the servers that live, this one among them."""

    def __init__(
        self,
        store: CorpusStore,
        ingester: Ingester,
        observer: Observer,
        *,
        owner: str,
        owners: Callable[[], Collection[str]],
        workers: int,
        shared: bool,
    ) -> None:
        self._store = store
        self._ingester = ingester
        self._observer = observer
        self._owner = owner
        self._owners = owners
        self._workers = workers
        self._pause = LOOK_SECONDS if shared else _ALONE_SECONDS
        self._rung = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._left: list[Ingestion] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        """Files that are ingested now."""
        return len(self._running)

    def start(self) -> None:
        """Begin with what waits; it goes on in the background."""
        self._task = asyncio.create_task(self._run())

    def ring(self) -> None:
        """Files have come in."""
        self._rung.set()

    async def stop(self) -> None:
        """Begin nothing more, and give back what is running."""
        tasks = [*self._running, *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(Exception):
            await self._give_back()

    async def _run(self) -> None:
        while True:
            self._rung.clear()
            pause = self._pause
            try:
                await self._give_back()
                await self._claim()
            except UnavailableError:
                pause = _AGAIN_SECONDS
            except Exception as error:  # noqa: BLE001 - the store may be back at the next look
                self._observer.fault("files that wait could not be looked for", error)
                pause = _AGAIN_SECONDS
            if self._left:
                pause = _AGAIN_SECONDS
            with contextlib.suppress(TimeoutError):
                # Not `wait_for`, which may lose a cancellation that comes together with a ring.
                async with asyncio.timeout(pause):
                    await self._rung.wait()

    async def _claim(self) -> None:
        while len(self._running) < self._workers and not self._left:
            ingestion = await self._store.claim_ingestion(self._owner, self._owners())
            if ingestion is None:
                return
            task = asyncio.create_task(self._ingest(ingestion))
            self._running.add(task)
            self._observer.ingesting(len(self._running))
            task.add_done_callback(partial(self._ended, ingestion))

    def _ended(self, ingestion: Ingestion, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._observer.ingesting(len(self._running))
        if task.cancelled():
            # Perhaps before it had begun.
            self._left.append(ingestion)
        self._rung.set()

    async def _ingest(self, ingestion: Ingestion) -> None:
        began = time.monotonic()
        try:
            outcome = await self._ingester.run(ingestion)
        except (UnavailableError, OSError) as error:
            self._observer.fault("a file could not be ingested now", error)
            self._left.append(ingestion)
            outcome = None
        except Exception as error:  # noqa: BLE001 - one file must not keep the others back, nor be tried for ever
            self._observer.fault("a file could not be ingested", error)
            await self._fail(ingestion)
            outcome = "failed"
        if outcome is not None:
            self._observer.file_ingested(outcome, time.monotonic() - began)

    async def _fail(self, ingestion: Ingestion) -> None:
        message = "The server failed while it read this file. Its log says why; convert the file to text."
        try:
            await self._store.finish_ingestion(ingestion, ("server_error", message))
        except Exception as error:  # noqa: BLE001 - it is begun again, so often and no more
            self._observer.fault("a file that failed could not be ended", error)
            self._left.append(ingestion)

    async def _give_back(self) -> None:
        """Release the claims of what was not brought to an end; a later claim begins anew."""
        while self._left:
            await self._store.release_ingestion(self._left[0])
            self._left.pop(0)
