"""Vector stores in a store: rows, files and batches; what is in them is the business of the tests of ingestion."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from antiphon.errors import InvalidRequestError
from antiphon.store.base import Scope, Store
from antiphon.store.corpora import (
    CorpusLimits,
    FileCounts,
    StoredBatch,
    StoreFile,
    StoreFilePage,
    VectorStorePage,
)
from support.corpora import ROOM, chunk, claimed, fill, new_file, new_store, upload
from support.stores import OURS, THEIRS, Clock, wrapped_key

requirement = pytest.mark.requirement


async def listed(store: Store, scope: Scope = OURS, **page: object) -> list[str]:
    found = await store.list_vector_stores(scope, VectorStorePage(**{"limit": 100, **page}))
    return [row.id for row in found]


async def members(store: Store, vector_store: str = "vs-1", scope: Scope = OURS, **page: object) -> list[str]:
    found = await store.list_store_files(scope, vector_store, StoreFilePage(**{"limit": 100, **page}))
    return [row.file_id for row in found]


async def member(store: Store, file_id: str) -> StoreFile:
    found = await store.find_store_file(OURS, "vs-1", file_id)
    assert found is not None
    return found


async def version(store: Store) -> int:
    found = await store.find_vector_store(OURS, "vs-1")
    assert found is not None
    return found.version


@requirement("corpus-store:stores")
async def test_a_vector_store_is_kept_changed_and_deleted(store: Store) -> None:
    await store.create_vector_store(OURS, new_store(), ROOM)
    assert await store.find_vector_store(OURS, "vs-1") == new_store()
    changed = await store.change_vector_store(
        OURS, "vs-1", name="other", expires_after_days=3, detail=b"{}", now=1_000_500
    )
    expected = replace(new_store(), name="other", expires_after_days=3, detail=b"{}", last_active_at=1_000_500)
    assert changed == await store.find_vector_store(OURS, "vs-1") == expected
    assert await store.change_vector_store(OURS, "no", name="x", expires_after_days=None, detail=b"", now=1) is None
    assert await store.delete_vector_store(OURS, "vs-1")
    assert not await store.delete_vector_store(OURS, "vs-1")
    assert await store.find_vector_store(OURS, "vs-1") is None
    assert await listed(store) == []
    await store.create_vector_store(OURS, new_store(), ROOM)
    assert await store.find_vector_store(OURS, "vs-1") == new_store()


@requirement("corpus-store:stores:names")
async def test_the_newest_of_a_name_is_found_by_it(store: Store) -> None:
    for name in ("vs-1", "vs-3", "vs-2"):
        await store.create_vector_store(OURS, new_store(name, title="handbook é"), ROOM)
    found = await store.find_vector_store_named(OURS, "handbook é")
    assert found is not None
    assert (found.id, found.name) == ("vs-3", "handbook é")
    await store.change_vector_store(OURS, "vs-3", name="else", expires_after_days=None, detail=b"", now=1_000_000)
    found = await store.find_vector_store_named(OURS, "handbook é")
    assert found is not None
    assert found.id == "vs-2"
    assert await store.find_vector_store_named(OURS, "handbook") is None
    assert await store.find_vector_store_named(THEIRS, "handbook é") is None


@requirement("corpus-store:stores:list")
async def test_vector_stores_are_listed_in_pages_and_by_a_part_of_the_name(store: Store) -> None:
    for number in range(1, 8):
        title = f"Guide {number}" if number % 2 else f"notes {number}"
        await store.create_vector_store(OURS, new_store(f"vs-{number}", title=title), ROOM)
    await store.create_vector_store(THEIRS, new_store("vs-0"), ROOM)
    assert await listed(store) == [f"vs-{number}" for number in range(7, 0, -1)]
    assert await listed(store, limit=2, after="vs-6") == ["vs-5", "vs-4"]
    assert await listed(store, limit=2, before="vs-4") == ["vs-6", "vs-5"]
    assert await listed(store, limit=2, newest_first=False) == ["vs-1", "vs-2"]
    assert await listed(store, limit=2, newest_first=False, after="vs-5") == ["vs-6", "vs-7"]
    assert await listed(store, limit=2, newest_first=False, before="vs-5") == ["vs-3", "vs-4"]
    assert await listed(store, after="vs-6", before="vs-3") == ["vs-5", "vs-4"]
    assert await listed(store, query="guide") == ["vs-7", "vs-5", "vs-3", "vs-1"]
    assert await listed(store, query="GUIDE", limit=2, after="vs-5") == ["vs-3", "vs-1"]
    assert await listed(store, query="guide", limit=2, before="vs-1") == ["vs-5", "vs-3"]
    assert await listed(store, query="%") == []


@requirement("corpus-store:stores:limits")
async def test_a_tenant_has_room_for_so_many_vector_stores_and_each_for_so_many_files(store: Store) -> None:
    limits = CorpusLimits(most_stores=2, most_files=2)
    await store.create_vector_store(OURS, new_store("vs-1"), limits)
    await store.create_vector_store(OURS, new_store("vs-2"), limits)
    with pytest.raises(InvalidRequestError, match="2 vector stores") as refused:
        await store.create_vector_store(OURS, new_store("vs-3"), limits)
    assert refused.value.code == "vector_store_limit_reached"
    await store.create_vector_store(THEIRS, new_store("vs-3"), limits)
    await upload(store, "file-1", "file-2", "file-3")
    added = [new_file("file-1", "a"), new_file("file-2", "b")]
    assert await store.add_store_files(OURS, "vs-1", added, limits) == []
    with pytest.raises(InvalidRequestError, match="at most 2 files") as refused:
        await store.add_store_files(OURS, "vs-1", [new_file("file-3")], limits)
    assert refused.value.code == "file_limit_reached"
    assert await members(store) == ["file-2", "file-1"]
    # One that is there already, or replaces another one, needs no room.
    assert await store.add_store_files(OURS, "vs-1", [new_file("file-1", "a")], limits) == []
    assert await store.add_store_files(OURS, "vs-1", [new_file("file-3", "b")], limits) == []
    assert await members(store) == ["file-3", "file-1"]
    assert await store.delete_vector_store(OURS, "vs-2")
    await store.create_vector_store(OURS, new_store("vs-4"), limits)


@requirement("corpus-store:stores:expiry")
async def test_one_that_has_not_been_used_for_its_days_is_gone_at_once_and_swept(store: Store, clock: Clock) -> None:
    await store.create_vector_store(OURS, new_store("vs-1", days=1), ROOM)
    await store.create_vector_store(OURS, new_store("vs-2", days=1), ROOM)
    await store.create_vector_store(OURS, new_store("vs-3"), ROOM)
    await fill(store, "file-1", "some words")
    await store.add_store_files(OURS, "vs-2", [new_file("file-1")], ROOM)
    await store.use_vector_store(OURS, "vs-2", 1_000_000 + 3600)
    await store.use_vector_store(OURS, "vs-2", 1_000_000 + 60)
    clock.now += 24 * 3600
    assert await listed(store) == ["vs-3", "vs-2"]
    assert await store.find_vector_store(OURS, "vs-1") is None
    assert await store.find_vector_store_named(OURS, "name of vs-1") is None
    assert await members(store) == []
    assert await store.find_store_file(OURS, "vs-1", "file-1") is None
    assert await store.search_text(OURS, "vs-1", ["words"], 5) == []
    assert list(await store.list_chunks(OURS, "vs-1", None, 5)) == []
    assert list(await store.chunk_vectors(OURS, "vs-1", None, 5)) == []
    assert list(await store.find_chunks(OURS, "vs-1", [("file-1", 0)])) == []
    await store.use_vector_store(OURS, "vs-1", int(clock()))
    assert not await store.delete_vector_store(OURS, "vs-1")
    found = await store.find_vector_store(OURS, "vs-2")
    assert found is not None
    assert found.last_active_at == 1_000_000 + 3600
    clock.now += 3600
    assert await store.claim_ingestion("server 1", []) is None
    assert await store.sweep(clock()) >= 2
    assert await listed(store) == ["vs-3"]
    assert (await store.status()).vector_stores == 1
    assert await store.sweep(clock()) == 0


@requirement("corpus-store:files")
async def test_files_come_in_and_go_and_are_counted_by_status(store: Store) -> None:
    await store.create_vector_store(OURS, new_store(), ROOM)
    await upload(store, "file-1", "file-2")
    assert await store.add_store_files(OURS, "no", [new_file("file-1")], ROOM) is None
    unknown = [new_file("file-1"), new_file("file-8"), new_file("file-9")]
    assert await store.add_store_files(OURS, "vs-1", unknown, ROOM) == ["file-8", "file-9"]
    assert await members(store) == []
    added = [new_file("file-1", "ours é"), new_file("file-2", created_at=1_000_100)]
    assert await store.add_store_files(OURS, "vs-1", added, ROOM) == []
    found = await member(store, "file-1")
    assert found == StoreFile(
        "vs-1", "file-1", "file-1.md é", 1_000_000, "pending", b'{"kind":"attributes"}', b'{"kind":"detail"}', "ours é"
    )
    assert await store.find_store_file(OURS, "vs-1", "ours é") == found
    row = await store.find_vector_store(OURS, "vs-1")
    assert row is not None
    assert (row.files, row.last_active_at, row.version) == (FileCounts(pending=2), 1_000_100, 0)
    changed = await store.change_store_file(OURS, "vs-1", "ours é", b'{"new":1}')
    assert changed == await member(store, "file-1") == replace(found, attributes=b'{"new":1}')
    assert await store.change_store_file(OURS, "vs-1", "file-9", b"{}") is None
    assert await store.remove_store_file(OURS, "vs-1", "ours é")
    assert not await store.remove_store_file(OURS, "vs-1", "file-1")
    row = await store.find_vector_store(OURS, "vs-1")
    assert row is not None
    assert row.files == FileCounts(pending=1)
    assert await store.find_file(OURS, "file-1") is not None


@requirement("corpus-store:files:external")
async def test_a_file_with_the_external_id_of_another_one_replaces_it(store: Store) -> None:
    await store.create_vector_store(OURS, new_store(), ROOM)
    await upload(store, "file-2", "file-3", "file-4")
    await fill(store, "file-1", "old words")
    assert await store.add_store_files(OURS, "vs-1", [new_file("file-1", "x"), new_file("file-2")], ROOM) == []
    assert await store.add_store_files(OURS, "vs-1", [new_file("file-3", "x")], ROOM) == []
    assert await members(store) == ["file-3", "file-2"]
    assert await store.search_text(OURS, "vs-1", ["old"], 5) == []
    # Of several in one call the last one stays.
    both = [new_file("file-1", "x"), new_file("file-4", "x"), new_file("file-2", "y")]
    assert await store.add_store_files(OURS, "vs-1", both, ROOM) == []
    assert await members(store) == ["file-4", "file-2"]
    assert (await member(store, "y")).file_id == "file-2"


@requirement("corpus-store:files:list")
async def test_files_are_listed_in_pages_by_status_and_by_batch(store: Store) -> None:
    await store.create_vector_store(OURS, new_store(), ROOM)
    names = [f"file-{number}" for number in range(1, 7)]
    await upload(store, *names)
    await store.add_store_files(OURS, "vs-1", [new_file(name) for name in names[:3]], ROOM)
    batch = StoredBatch("batch-1", "vs-1", 1000)
    await store.add_store_files(OURS, "vs-1", [new_file(name) for name in names[3:]], ROOM, batch)
    await store.finish_ingestion(await claimed(store), None)
    assert await members(store) == names[::-1]
    assert await members(store, newest_first=False, limit=2, after="file-2") == ["file-3", "file-4"]
    assert await members(store, limit=2, before="file-2") == ["file-4", "file-3"]
    assert await members(store, statuses=("completed",)) == ["file-1"]
    assert await members(store, statuses=("failed",)) == []
    assert len(await members(store, statuses=("pending", "completed"))) == 6
    assert await members(store, batch_id="batch-1", limit=2) == ["file-6", "file-5"]
    assert await members(store, batch_id="batch-1", limit=2, after="file-5", statuses=("pending",)) == ["file-4"]
    assert await members(store, batch_id="batch-2") == []


@requirement("corpus-store:batches")
async def test_a_batch_counts_its_files_and_cancels_those_that_were_not_ingested(store: Store) -> None:
    await store.create_vector_store(OURS, new_store(), ROOM)
    await store.create_vector_store(OURS, new_store("vs-2"), ROOM)
    names = [f"file-{number}" for number in range(1, 5)]
    await upload(store, *names)
    batch = StoredBatch("batch-1", "vs-1", 1000)
    assert await store.add_store_files(OURS, "vs-1", [new_file(name) for name in names], ROOM, batch) == []
    assert await store.find_batch(OURS, "vs-1", "batch-1") == replace(batch, files=FileCounts(pending=4))
    assert (await member(store, "file-1")).batch_id == "batch-1"
    await store.finish_ingestion(await claimed(store), None)
    await store.finish_ingestion(await claimed(store), ("bad", "cannot be read"))
    running = await claimed(store)
    assert await store.add_chunks(running, [chunk(0, "words that nobody finds")])
    assert await store.cancel_batch(OURS, "vs-2", "batch-1") is None
    cancelled = await store.cancel_batch(OURS, "vs-1", "batch-1")
    expected = replace(batch, cancelled=True, files=FileCounts(completed=1, failed=1, cancelled=2))
    assert cancelled == await store.find_batch(OURS, "vs-1", "batch-1") == expected
    assert not await store.add_chunks(running, [chunk(1, "more")])
    assert not await store.finish_ingestion(running, None)
    await store.release_ingestion(running)
    assert await store.claim_ingestion("server 1", []) is None
    found = await member(store, running.file.file_id)
    assert (found.status, found.chunks, found.usage_bytes) == ("cancelled", 0, 0)
    # A file that comes in again leaves its batch.
    await store.add_store_files(OURS, "vs-1", [new_file("file-1")], ROOM)
    row = await store.find_vector_store(OURS, "vs-1")
    assert row is not None
    assert row.files == FileCounts(pending=1, failed=1, cancelled=2)
    found_batch = await store.find_batch(OURS, "vs-1", "batch-1")
    assert found_batch is not None
    assert found_batch.files == FileCounts(failed=1, cancelled=2)
    assert await store.delete_vector_store(OURS, "vs-1")
    assert await store.find_batch(OURS, "vs-1", "batch-1") is None


@requirement("corpus-store:uploads")
async def test_an_uploaded_file_that_goes_leaves_every_vector_store(store: Store, clock: Clock) -> None:
    for name in ("vs-1", "vs-2"):
        await store.create_vector_store(OURS, new_store(name), ROOM)
    await fill(store, "file-1", "words")
    await fill(store, "file-1", "words", vector_store="vs-2")
    await upload(store, "file-2", expires_at=int(clock()) + 10)
    await store.add_store_files(OURS, "vs-1", [new_file("file-2")], ROOM)
    before = await version(store)
    assert await store.delete_file(OURS, "file-1")
    assert await version(store) > before
    for name in ("vs-1", "vs-2"):
        assert await store.find_store_file(OURS, name, "file-1") is None
        assert await store.search_text(OURS, name, ["words"], 5) == []
        assert list(await store.list_chunks(OURS, name, None, 5)) == []
    clock.now += 10
    await store.sweep(clock())
    assert await members(store) == []
    row = await store.find_vector_store(OURS, "vs-1")
    assert row is not None
    assert (row.files, row.usage_bytes) == (FileCounts(), 0)
    assert await store.claim_ingestion("server 1", []) is None


@requirement("corpus-store:tenants")
async def test_a_foreign_tenant_sees_and_changes_no_vector_store(store: Store) -> None:
    await store.create_vector_store(OURS, new_store(), ROOM)
    await fill(store, "file-1", "secret words")
    await upload(store, "file-2")
    batch = StoredBatch("batch-1", "vs-1", 1000)
    await store.add_store_files(OURS, "vs-1", [new_file("file-2", "x")], ROOM, batch)
    before = await store.find_vector_store(OURS, "vs-1")
    foreign = THEIRS
    assert await store.find_vector_store(foreign, "vs-1") is None
    assert await store.find_vector_store_named(foreign, "name of vs-1") is None
    assert await listed(store, foreign) == []
    assert await store.change_vector_store(foreign, "vs-1", name="", expires_after_days=1, detail=b"", now=9) is None
    await store.use_vector_store(foreign, "vs-1", 2_000_000)
    assert not await store.delete_vector_store(foreign, "vs-1")
    assert await store.add_store_files(foreign, "vs-1", [], ROOM) is None
    assert await store.find_store_file(foreign, "vs-1", "file-1") is None
    assert await store.find_store_file(foreign, "vs-1", "x") is None
    assert await members(store, scope=foreign) == []
    assert await store.change_store_file(foreign, "vs-1", "file-1", b"{}") is None
    assert not await store.remove_store_file(foreign, "vs-1", "file-1")
    assert await store.find_batch(foreign, "vs-1", "batch-1") is None
    assert await store.cancel_batch(foreign, "vs-1", "batch-1") is None
    assert await store.search_text(foreign, "vs-1", ["secret"], 5) == []
    assert list(await store.chunk_vectors(foreign, "vs-1", None, 5)) == []
    assert list(await store.find_chunks(foreign, "vs-1", [("file-1", 0)])) == []
    assert list(await store.list_chunks(foreign, "vs-1", None, 5)) == []
    assert not await store.delete_file(foreign, "file-1")
    assert await store.find_vector_store(OURS, "vs-1") == before
    # An id of ours in a vector store of theirs: no file that they have.
    await store.create_vector_store(foreign, new_store(), ROOM)
    assert await store.add_store_files(foreign, "vs-1", [new_file("file-1")], ROOM) == ["file-1"]
    await store.add_tenant_key("theirs", wrapped_key("theirs"))
    await store.delete_tenant("theirs")
    assert await listed(store, foreign) == []
    assert await store.find_vector_store(OURS, "vs-1") == before
    assert (await store.status()).vector_stores == 1
