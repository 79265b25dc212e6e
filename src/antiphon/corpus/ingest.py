"""One file into one vector store: read, cut, embedded and added, a few chunks at a time, to its end.

However often it is begun, the same chunks come of it: a claim removes what an earlier one has left. Nothing of a file
is held but what is on its way (issue 6, section 3).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final

from antiphon.corpus.chunking import AUTO, Chunk, Chunking, chunking_of
from antiphon.corpus.embedding import embedded_text
from antiphon.corpus.parsing import UnreadableFileError, read_chunks
from antiphon.errors import AntiphonError, EngineError, EngineUnavailableError
from antiphon.protocol.json import encode, loads
from antiphon.store.corpora import CorpusStore, Ingestion, NewChunk
from antiphon.store.files import FileStore, StoredFile
from antiphon.store.rows import Scope

__all__ = ["MOST_ATTEMPTS", "Embed", "Ingester"]

MOST_ATTEMPTS: Final = 3
"""How often a file is begun: one that takes its server down each time is given up."""

MOST_CHUNKS: Final = 100_000
"""Chunks of one file."""

_CHUNKS_A_READ: Final = 4
_PAUSES: Final = (1.0, 3.0, 9.0)
"""Seconds to wait for an embedding model that does not answer, before it is asked again."""

_IMPATIENT_SECONDS: Final = 60.0
"""How long nobody waits for a model that could not be had, so that many files without it take no longer than one."""

_SERVER: Final = "server_error"

Embed = Callable[[Sequence[str]], Awaitable[Sequence[bytes]]]
"""Makes a vector of each text; raises an `AntiphonError` where it cannot."""


class _DeletedError(Exception):
    """The uploaded file is not there any more."""


class Ingester:
    """Ingests files that were claimed.

    Without `embed`, or where its model cannot be had, chunks come in without vectors, and are found by their words
    only; `without` is told then.
    """

    def __init__(
        self,
        files: FileStore,
        corpora: CorpusStore,
        embed: Embed | None = None,
        *,
        without: Callable[[AntiphonError], None] = lambda _: None,
        pauses: Sequence[float] = _PAUSES,
    ) -> None:
        self._files = files
        self._store = corpora
        self._embed = embed
        self._without = without
        self._pauses = pauses
        self._impatient = -math.inf

    async def run(self, ingestion: Ingestion) -> str:
        """Ingest a file; how it ended: completed, failed, or lost where its claim was taken away meanwhile.

        Raises:
            UnavailableError: the store cannot be used now; the claim stays.
            OSError: no process can be started to read it; the claim stays.
        """
        try:
            error = await self._ingest(ingestion)
        except UnreadableFileError as fault:
            error = (fault.code, fault.message)
        except _DeletedError:
            error = (_SERVER, "The file was deleted before it was read. Upload it again.")
        except EngineError:
            # What it said may name the server's own addresses.
            error = (_SERVER, "The embedding model failed. Add the file again once it works.")
        if not await self._store.finish_ingestion(ingestion, error):
            return "lost"
        return "completed" if error is None else "failed"

    async def _ingest(self, ingestion: Ingestion) -> tuple[str, str] | None:
        if ingestion.attempts > MOST_ATTEMPTS:
            return _SERVER, "The server ended each time while it read this file. Split the file, or convert it to text."
        file = await self._files.find_file(ingestion.scope, ingestion.file.file_id)
        if file is None:
            raise _DeletedError
        index = 0
        vectors = self._embed
        content = _content(self._files, ingestion.scope, file)
        reading = read_chunks(content, ingestion.file.filename, _chunking(ingestion))
        try:
            async for some in reading:
                if index + len(some) > MOST_CHUNKS:
                    return "invalid_file", f"The file makes more than {MOST_CHUNKS} chunks. Split it."
                made = await self._vectors(vectors, some)
                if made is None:
                    # All or none of the rest: a model that comes and goes must not be waited for with each batch.
                    vectors = None
                if not await self._add(ingestion, index, some, made or [b""] * len(some)):
                    # Taken away: its batch was cancelled, it was removed, or somebody thought this server dead.
                    return None
                index += len(some)
        finally:
            await reading.aclose()
        return None

    async def _add(self, ingestion: Ingestion, first: int, chunks: Sequence[Chunk], vectors: Sequence[bytes]) -> bool:
        rows = [
            NewChunk(first + index, chunk.heading, chunk.text, encode(chunk.detail), vector)
            for index, (chunk, vector) in enumerate(zip(chunks, vectors, strict=True))
        ]
        return await self._store.add_chunks(ingestion, rows)

    async def _vectors(self, embed: Embed | None, chunks: Sequence[Chunk]) -> Sequence[bytes] | None:
        """The vectors of chunks; None where no model can be had.

        Raises:
            EngineError: the model failed, again and again.
        """
        if embed is None:
            return None
        texts = [embedded_text(chunk.heading, chunk.text) for chunk in chunks]
        hurried = time.monotonic() < self._impatient
        for pause in () if hurried else self._pauses:
            try:
                return await embed(texts)
            except (EngineError, EngineUnavailableError):
                await asyncio.sleep(pause)
        try:
            return await embed(texts)
        except EngineUnavailableError as error:
            self._impatient = time.monotonic() + _IMPATIENT_SECONDS
            self._without(error)
            return None


def _chunking(ingestion: Ingestion) -> Chunking:
    """What the file was added with, which was checked then."""
    try:
        return chunking_of(loads(ingestion.file.detail).get("chunking_strategy"))
    except ValueError:
        return AUTO


async def _content(store: FileStore, scope: Scope, file: StoredFile) -> AsyncGenerator[bytes]:
    position, left = 0, file.bytes
    while left > 0:
        found = await store.file_chunks(scope, file.id, position, _CHUNKS_A_READ)
        if not found:
            raise _DeletedError
        position += len(found)
        for chunk in found:
            left -= len(chunk)
            yield chunk
