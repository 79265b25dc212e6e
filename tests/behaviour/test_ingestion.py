"""Files in vector stores are ingested in the background: whole, once, by one server, and again after a crash."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.corpus.chunking import AUTO
from antiphon.corpus.ingest import MOST_ATTEMPTS, Embed, Ingester
from antiphon.errors import EngineError, EngineUnavailableError, UnavailableError
from antiphon.protocol.json import encode, loads
from antiphon.runtime import ingestion
from antiphon.runtime.ingestion import IngestionWorkers
from antiphon.runtime.observer import Observer
from antiphon.store.base import Store
from antiphon.store.corpora import Ingestion, NewStoreFile, StoredBatch, StoreFile
from antiphon.store.files import FileLimits, StoredFile
from antiphon.store.rows import Scope
from support.corpora import ROOM, new_store
from support.stores import KINDS, OURS, THEIRS, Make

requirement = pytest.mark.requirement
every_store = pytest.mark.parametrize("make", KINDS, indirect=True)
one_store = pytest.mark.parametrize("make", ["memory"], indirect=True)
GUIDE = "# Guide\n\nHow to begin.\n\n" + "".join(
    f"## Part {number}\n\n" + f"A sentence about part {number} of the guide. " * 40 + "\n\n" for number in range(40)
)


class Seen(Observer):
    """What went wrong, in words."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def fault(self, message: str, error: BaseException) -> None:
        self.faults.append(f"{message}: {error}")


@pytest.fixture
async def store(make: Make) -> Store:
    """Each kind of store that keeps vector stores, with one of them."""
    found = await make()
    await found.create_vector_store(OURS, new_store(), ROOM)
    return found


async def put(
    store: Store, file_id: str, text: str | bytes = GUIDE, *, name: str = "a.md", scope: Scope = OURS, **more: Any
) -> None:
    """Upload a file, and add it to the vector store."""
    data = text.encode() if isinstance(text, str) else text
    file = StoredFile(file_id, 1, None, len(data), "assistants", name.encode())
    await store.begin_file(scope, file, FileLimits(99, 10**9))
    for position in range(0, len(data), 100_000):
        assert await store.add_file_chunk(scope, file_id, position // 100_000, data[position : position + 100_000])
    assert await store.finish_file(scope, file_id)
    await add(store, file_id, scope, **more)


async def add(
    store: Store, file_id: str, scope: Scope = OURS, *, detail: Any = None, batch: StoredBatch | None = None
) -> None:
    row = NewStoreFile(file_id, 1, b"{}", encode(detail or {}))
    assert await store.add_store_files(scope, "vs-1", [row], ROOM, batch) == []


async def embed(texts: Sequence[str]) -> Sequence[bytes]:
    return [struct.pack("<2f", float(len(text)), 1.0) for text in texts]


@asynccontextmanager
async def working(
    store: Store,
    embed: Embed | None = embed,
    *,
    owner: str = "one",
    living: Sequence[str] = ("one",),
    observer: Observer | None = None,
    workers: int = 1,
) -> AsyncGenerator[IngestionWorkers]:
    """Workers of one server, which stop as it does."""
    seen = observer or Seen()
    ingester = Ingester(store, store, embed, without=lambda error: seen.fault("without vectors", error), pauses=(0, 0))
    made = IngestionWorkers(store, ingester, seen, owner=owner, owners=lambda: living, workers=workers, shared=False)
    made.start()
    try:
        yield made
    finally:
        await made.stop()


async def ended(store: Store, file_id: str, scope: Scope = OURS) -> StoreFile:
    """The file, once it has ended."""
    async with asyncio.timeout(30):
        while True:
            found = await store.find_store_file(scope, "vs-1", file_id)
            assert found is not None
            if found.status not in ("pending", "in_progress"):
                return found
            await asyncio.sleep(0.005)


async def chunks(store: Store, scope: Scope = OURS) -> list[tuple[Any, ...]]:
    """All that is found of the vector store."""
    found = await store.list_chunks(scope, "vs-1", None, 10_000)
    vectors = {(row.file_id, row.index): row.vector for row in await store.chunk_vectors(scope, "vs-1", None, 10_000)}
    return [
        (row.file_id, row.index, row.heading, row.text, bytes(row.detail), vectors.get((row.file_id, row.index)))
        for row in found
    ]


@one_store
@requirement("ingest:file")
async def test_a_file_is_cut_embedded_and_found(store: Store) -> None:
    await put(store, "file-1")
    async with working(store):
        file = await ended(store, "file-1")
    assert (file.status, file.error) == ("completed", None)
    found = await chunks(store)
    assert len(found) == file.chunks > 80
    assert [row[1] for row in found] == list(range(len(found)))
    assert found[1][2:4] == ("Guide > Part 0", ("A sentence about part 0 of the guide. " * 24).strip())
    assert loads(found[1][4])["line"] == 7
    assert all(row[5] == struct.pack("<2f", float(len(f"{row[2]}\n{row[3]}")), 1.0) for row in found)
    assert file.usage_bytes > len(GUIDE) // 2
    row = await store.find_vector_store(OURS, "vs-1")
    assert row is not None
    assert (row.files.completed, row.files.in_progress, row.usage_bytes) == (1, 0, file.usage_bytes)


@one_store
@requirement("ingest:chunks:strategy")
async def test_a_file_is_cut_as_it_was_added(store: Store) -> None:
    static = {"max_chunk_size_tokens": 4096, "chunk_overlap_tokens": 0}
    await put(store, "file-1", "word " * 5_000, detail={"chunking_strategy": {"type": "static", "static": static}})
    await put(store, "file-2", "word " * 5_000, detail={"chunking_strategy": {"type": "auto"}})
    async with working(store):
        assert (await ended(store, "file-1")).chunks == 2
        assert (await ended(store, "file-2")).chunks == 5_000 / AUTO.size


@one_store
@requirement("ingest:stop")
async def test_what_was_claimed_and_not_begun_is_given_back_too(store: Store) -> None:
    await put(store, "file-1")
    async with working(store) as workers:
        while not workers.running:
            await asyncio.sleep(0)
    file = await store.find_store_file(OURS, "vs-1", "file-1")
    assert file is not None
    assert file.status == "pending"


@one_store
@requirement("ingest:parse:faults", "ingest:deleted")
async def test_what_cannot_be_ingested_has_failed_with_what_to_do(store: Store) -> None:
    await put(store, "file-1", b"\x00\xff", name="a.bin")
    await put(store, "file-2", b"PK\x03\x04 broken", name="a.docx")
    await put(store, "file-3", " ")
    async with working(store, workers=2):
        errors = [(await ended(store, name)).error for name in ("file-1", "file-2", "file-3")]
    assert [error and error[0] for error in errors] == ["unsupported_file", "invalid_file", "invalid_file"]
    assert await chunks(store) == []
    await put(store, "file-4")
    claim = await store.claim_ingestion("one", ["one"])
    assert claim is not None
    await store.delete_file(OURS, "file-4")
    await Ingester(store, store).run(claim)
    assert await store.find_store_file(OURS, "vs-1", "file-4") is None


@every_store
@requirement("ingest:crash", "ingest:file")
async def test_a_server_that_dies_in_the_middle_leaves_the_file_to_the_next_one(store: Store) -> None:
    asked = 0
    stuck = asyncio.Event()

    async def dying(texts: Sequence[str]) -> Sequence[bytes]:
        nonlocal asked
        asked += 1
        if asked > 2:
            stuck.set()
            await asyncio.Event().wait()
        return await embed(texts)

    await put(store, "file-1")
    dead = await store.claim_ingestion("dead", ["dead"])
    assert dead is not None
    doing = asyncio.create_task(Ingester(store, store, dying).run(dead))
    await stuck.wait()
    assert await chunks(store) == []
    # To the store it goes on for as long as its owner lives.
    assert await store.claim_ingestion("two", ["dead", "two"]) is None
    async with working(store, owner="two", living=["two"]):
        assert (await ended(store, "file-1")).status == "completed"
    found = await chunks(store)
    doing.cancel()
    await asyncio.gather(doing, return_exceptions=True)
    # One that was only slow changes nothing any more.
    await Ingester(store, store, embed).run(dead)
    assert await chunks(store) == found
    await add(store, "file-1")
    async with working(store):
        assert (await ended(store, "file-1")).status == "completed"
    assert await chunks(store) == found


@one_store
@requirement("ingest:attempts")
async def test_a_file_that_takes_its_server_down_each_time_is_given_up(store: Store) -> None:
    await put(store, "file-1")
    for number in range(MOST_ATTEMPTS):
        assert await store.claim_ingestion(f"dead {number}", []) is not None
    async with working(store):
        file = await ended(store, "file-1")
    assert file.status == "failed"
    assert file.error is not None
    assert file.error[0] == "server_error"
    assert "Split the file" in file.error[1]


@every_store
@requirement("ingest:stop")
async def test_a_server_that_stops_gives_back_what_it_has_begun(store: Store) -> None:
    begun = asyncio.Event()

    async def slow(texts: Sequence[str]) -> Sequence[bytes]:
        begun.set()
        await asyncio.Event().wait()
        return await embed(texts)

    await put(store, "file-1")
    for _ in range(MOST_ATTEMPTS + 1):
        begun.clear()
        async with working(store, slow) as workers:
            await begun.wait()
            assert workers.running == 1
            file = await store.find_store_file(OURS, "vs-1", "file-1")
            assert file is not None
            assert file.status == "in_progress"
        file = await store.find_store_file(OURS, "vs-1", "file-1")
        assert file is not None
        assert file.status == "pending"
    # A stop is no attempt that failed.
    async with working(store):
        assert (await ended(store, "file-1")).status == "completed"


@every_store
@requirement("ingest:cancel")
async def test_a_batch_that_is_cancelled_stops_in_the_middle_of_a_file(store: Store) -> None:
    batch = StoredBatch("vsfb-1", "vs-1", 1)
    asked = 0

    async def cancelling(texts: Sequence[str]) -> Sequence[bytes]:
        nonlocal asked
        asked += 1
        if asked == 2:
            await store.cancel_batch(OURS, "vs-1", "vsfb-1")
        return await embed(texts)

    await put(store, "file-1", GUIDE * 3, batch=batch)
    async with working(store, cancelling) as workers:
        assert (await ended(store, "file-1")).status == "cancelled"
        await put(store, "file-2", "# Other\n\nText.\n")
        workers.ring()
        assert (await ended(store, "file-2")).status == "completed"
    assert asked == 3
    assert [row[0] for row in await chunks(store)] == ["file-2"]


@one_store
@requirement("ingest:vectors")
async def test_without_an_embedding_model_there_are_words_and_that_is_told(store: Store) -> None:
    asked = 0
    seen = Seen()

    async def away(texts: Sequence[str]) -> Sequence[bytes]:
        nonlocal asked
        asked += 1
        raise EngineUnavailableError("No model at http://10.0.0.1.")

    async def broken(texts: Sequence[str]) -> Sequence[bytes]:
        raise EngineError("Broken at http://10.0.0.1.")

    await put(store, "file-1")
    await put(store, "file-2", "Two words.\n")
    async with working(store, away, observer=seen):
        assert (await ended(store, "file-1")).status == "completed"
        assert (await ended(store, "file-2")).status == "completed"
    # Patience with the first file, and none with the next one.
    assert asked == 4
    assert len(seen.faults) == 2
    assert all(row[5] is None for row in await chunks(store))
    await put(store, "file-3", "More words.\n")
    async with working(store, broken, observer=seen):
        error = (await ended(store, "file-3")).error
    assert error == ("server_error", "The embedding model failed. Add the file again once it works.")


@one_store
@requirement("ingest:idle")
async def test_nothing_is_asked_of_the_store_while_nothing_waits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    claim = store.claim_ingestion

    async def counted(*arguments: Any) -> Ingestion | None:
        nonlocal asked
        asked += 1
        return await claim(*arguments)

    monkeypatch.setattr(store, "claim_ingestion", counted)
    async with working(store) as workers:
        for _ in range(200):
            await asyncio.sleep(0)
        assert asked == 1
        await put(store, "file-1", "Text.\n")
        workers.ring()
        assert (await ended(store, "file-1")).status == "completed"
    # One that finds it, one that finds nothing, and one more when it has ended.
    assert asked <= 4


@one_store
@requirement("ingest:faults")
async def test_a_store_that_is_away_is_waited_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingestion, "_AGAIN_SECONDS", 0.01)
    faults = {"claim_ingestion": 2, "add_chunks": 1, "finish_ingestion": 1, "release_ingestion": 1}
    for name in faults:
        real = getattr(store, name)

        async def unsteady(*arguments: Any, _name: str = name, _real: Any = real) -> Any:
            if faults[_name]:
                faults[_name] -= 1
                raise UnavailableError("Away.")
            return await _real(*arguments)

        monkeypatch.setattr(store, name, unsteady)
    await put(store, "file-1")
    seen = Seen()
    async with working(store, observer=seen):
        file = await ended(store, "file-1")
    assert (file.status, file.chunks) == ("completed", len(await chunks(store)))
    assert not any(faults.values())
    assert seen.faults


@one_store
@requirement("ingest:faults")
async def test_one_file_that_breaks_us_keeps_no_other_back(store: Store) -> None:
    async def odd(texts: Sequence[str]) -> Sequence[bytes]:
        if "odd" in texts[0]:
            raise LookupError("a bug at 0x7f00deadbeef")
        return await embed(texts)

    await put(store, "file-1", "odd\n")
    await put(store, "file-2", "even\n")
    seen = Seen()
    async with working(store, odd, observer=seen):
        failed = await ended(store, "file-1")
        assert (await ended(store, "file-2")).status == "completed"
    assert failed.error is not None
    assert failed.error[0] == "server_error"
    assert "0x" not in failed.error[1]
    assert seen.faults == ["a file could not be ingested: a bug at 0x7f00deadbeef"]


@one_store
@requirement("ingest:tenants")
async def test_what_two_tenants_add_is_each_their_own(store: Store) -> None:
    await store.create_vector_store(THEIRS, new_store(), ROOM)
    for number in range(6):
        scope, word = (OURS, "ours") if number % 2 else (THEIRS, "theirs")
        await put(store, f"file-{number}", f"{word} {number}\n", scope=scope)
    async with working(store, workers=3):
        for number in range(6):
            await ended(store, f"file-{number}", OURS if number % 2 else THEIRS)
    assert [row[3] for row in await chunks(store, OURS)] == ["ours 1", "ours 3", "ours 5"]
    assert [row[3] for row in await chunks(store, THEIRS)] == ["theirs 0", "theirs 2", "theirs 4"]
