"""Uploaded files in a store: they come in by steps, are whole or not there, and belong to a tenant."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.errors import ConfigurationError, InternalError, InvalidRequestError
from antiphon.store.base import Scope, Store, StoreLimits
from antiphon.store.files import UPLOAD_SECONDS, FileLimits, FilePage, StoredFile
from antiphon.store.memory import MemoryStore
from antiphon.store.sealed import SealedStore
from antiphon.store.sqlite import SQLiteStore
from support.stores import MASTER, OURS, THEIRS, Clock, Make, wrapped_key

requirement = pytest.mark.requirement

ROOM = FileLimits(100, 1_000_000)
NUL = b"\x00\xff any bytes \r\n"


def a_file(name: str, size: int = 10, purpose: str = "batch", expires_at: int | None = None) -> StoredFile:
    return StoredFile(name, 1000, expires_at, size, purpose, f"{name}.txt é".encode())


async def put(store: Store, file: StoredFile, *chunks: bytes, scope: Scope = OURS) -> None:
    await store.begin_file(scope, file, ROOM)
    for position, chunk in enumerate(chunks):
        assert await store.add_file_chunk(scope, file.id, position, chunk)
    assert await store.finish_file(scope, file.id)


async def listed(store: Store, scope: Scope = OURS, **page: object) -> list[str]:
    found: Sequence[StoredFile] = await store.list_files(scope, FilePage(**{"limit": 100, **page}))
    return [file.id for file in found]


@requirement("store:files")
async def test_a_file_is_found_when_it_is_whole_and_not_before(store: Store):
    file = a_file("file-1")
    await store.begin_file(OURS, file, ROOM)
    assert await store.add_file_chunk(OURS, file.id, 0, NUL)
    assert await store.find_file(OURS, file.id) is None
    assert await listed(store) == []
    assert list(await store.file_chunks(OURS, file.id, 0, 9)) == []
    assert await store.finish_file(OURS, file.id)
    assert await store.find_file(OURS, file.id) == file
    assert await listed(store) == ["file-1"]
    assert list(await store.file_chunks(OURS, file.id, 0, 9)) == [NUL]
    assert not await store.finish_file(OURS, file.id)
    assert not await store.add_file_chunk(OURS, file.id, 1, b"late")
    assert list(await store.file_chunks(OURS, file.id, 0, 9)) == [NUL]


@requirement("store:files")
async def test_chunks_come_back_in_order_and_by_position(store: Store):
    chunks = [bytes([number]) * 5 for number in range(7)]
    await put(store, a_file("file-1"), *chunks)
    assert list(await store.file_chunks(OURS, "file-1", 0, 7)) == chunks
    assert list(await store.file_chunks(OURS, "file-1", 2, 3)) == chunks[2:5]
    assert list(await store.file_chunks(OURS, "file-1", 7, 3)) == []


@requirement("store:files:tenants")
async def test_a_file_of_another_tenant_is_not_there(store: Store):
    await put(store, a_file("file-1"), b"ours")
    await store.begin_file(OURS, a_file("file-2"), ROOM)
    assert await store.find_file(THEIRS, "file-1") is None
    assert await listed(store, THEIRS) == []
    assert list(await store.file_chunks(THEIRS, "file-1", 0, 1)) == []
    assert not await store.add_file_chunk(THEIRS, "file-2", 0, b"x")
    assert not await store.finish_file(THEIRS, "file-2")
    assert not await store.delete_file(THEIRS, "file-1")
    await put(store, a_file("file-1"), b"theirs", scope=THEIRS)
    assert list(await store.file_chunks(OURS, "file-1", 0, 1)) == [b"ours"]
    assert list(await store.file_chunks(THEIRS, "file-1", 0, 1)) == [b"theirs"]
    await store.add_tenant_key("theirs", wrapped_key("theirs"))
    await store.delete_tenant("theirs")
    assert await store.find_file(THEIRS, "file-1") is None
    assert await listed(store) == ["file-1"]
    assert (await store.status()).files == 2


@requirement("store:files")
async def test_a_deleted_file_leaves_nothing(store: Store):
    await put(store, a_file("file-1"), b"one", b"two")
    await store.begin_file(OURS, a_file("file-2"), ROOM)
    assert await store.delete_file(OURS, "file-1")
    assert await store.delete_file(OURS, "file-2")
    assert not await store.delete_file(OURS, "file-1")
    assert await store.find_file(OURS, "file-1") is None
    assert (await store.status()).files == 0
    await put(store, a_file("file-1"), b"new")
    assert list(await store.file_chunks(OURS, "file-1", 0, 9)) == [b"new"]


@requirement("store:files:steps")
async def test_a_large_file_that_two_delete_is_deleted_once(store: Store):
    await put(store, a_file("file-1"), *[b"x"] * 40)
    deleted = await asyncio.gather(*(store.delete_file(OURS, "file-1") for _ in range(2)))
    assert sorted(deleted) == [False, True]
    assert (await store.status()).files == 0


@requirement("store:files:steps")
async def test_sqlite_removes_a_large_file_in_steps_between_which_others_write(tmp_path: Path, clock: Clock):
    store = SQLiteStore(tmp_path / "a.db", StoreLimits(), clock)
    await store.open()
    await put(store, a_file("file-1"), *[b"x"] * 40)

    def left() -> tuple[int, int]:
        with closing(sqlite3.connect(store.path)) as connection:
            return connection.execute("SELECT (SELECT count(*) FROM file_chunks), count(*) FROM files").fetchone()

    deletion = asyncio.create_task(store.delete_file(OURS, "file-1"))
    await asyncio.sleep(0)
    await store.begin_file(OURS, a_file("file-2"), ROOM)
    assert left() == (24, 2)
    # It is gone by now, for everybody and in every way.
    assert await store.find_file(OURS, "file-1") is None
    assert list(await store.file_chunks(OURS, "file-1", 0, 40)) == []
    assert await listed(store) == []
    assert not await store.delete_file(OURS, "file-1")
    assert not await store.add_file_chunk(OURS, "file-1", 40, b"x")
    assert not await store.finish_file(OURS, "file-1")
    deletion.cancel()
    # Whatever kept it from coming to its end, the sweep does.
    await asyncio.gather(deletion, return_exceptions=True)
    assert left()[0] > 0
    assert await store.sweep(clock.now) == 1
    assert left() == (0, 1)
    await store.close()


@requirement("store:files:limits")
async def test_a_tenant_has_room_for_so_many_files_and_bytes(store: Store):
    await put(store, a_file("file-1", 60), b"x")
    with pytest.raises(InvalidRequestError, match="100 bytes") as caught:
        await store.begin_file(OURS, a_file("file-2", 41), FileLimits(9, 100))
    assert caught.value.code == "file_limit_reached"
    with pytest.raises(InvalidRequestError, match="1 files"):
        await store.begin_file(OURS, a_file("file-2", 1), FileLimits(1, 100))
    assert (await store.status()).files == 1
    # One that is coming in counts, and the other tenant's do not.
    await store.begin_file(OURS, a_file("file-2", 40), FileLimits(2, 100))
    with pytest.raises(InvalidRequestError):
        await store.begin_file(OURS, a_file("file-3", 1), FileLimits(9, 100))
    await store.begin_file(THEIRS, a_file("file-3", 100), FileLimits(1, 100))
    assert await store.delete_file(OURS, "file-1")
    await store.begin_file(OURS, a_file("file-3", 60), FileLimits(2, 100))


@requirement("store:files:limits")
async def test_files_that_come_at_once_do_not_pass_the_limit_together(store: Store):
    begun = [store.begin_file(OURS, a_file(f"file-{number}", 10), FileLimits(3, 1000)) for number in range(8)]
    results = await asyncio.gather(*begun, return_exceptions=True)
    assert sum(result is None for result in results) == 3
    assert sum(isinstance(result, InvalidRequestError) for result in results) == 5
    assert (await store.status()).files == 3


@requirement("store:files:list")
async def test_files_are_listed_by_id_in_pages_and_by_purpose(store: Store):
    for number in range(5):
        await put(store, a_file(f"file-{number}", purpose="vision" if number % 2 else "batch"))
    assert await listed(store) == [f"file-{number}" for number in (4, 3, 2, 1, 0)]
    assert await listed(store, newest_first=False, limit=2) == ["file-0", "file-1"]
    assert await listed(store, newest_first=False, after="file-1", limit=2) == ["file-2", "file-3"]
    assert await listed(store, after="file-1") == ["file-0"]
    assert await listed(store, purpose="vision") == ["file-3", "file-1"]
    assert await listed(store, purpose="vision", after="file-3") == ["file-1"]
    assert await listed(store, purpose="batch", newest_first=False, after="file-0") == ["file-2", "file-4"]
    assert await listed(store, purpose="evals") == []
    # The file that a page ended with may have been deleted since.
    assert await store.delete_file(OURS, "file-2")
    assert await listed(store, after="file-2") == ["file-1", "file-0"]


@requirement("store:files:expiry")
async def test_a_file_goes_when_its_time_is_up(make: Make, clock: Clock):
    store = await make()
    now = int(clock.now)
    await put(store, a_file("file-1", expires_at=now + 100), b"soon", b"gone")
    await put(store, a_file("file-2"), b"stays")
    clock.now += 99
    assert await store.sweep(clock.now) == 0
    assert await listed(store) == ["file-2", "file-1"]
    clock.now += 1
    assert await store.find_file(OURS, "file-1") is None
    assert list(await store.file_chunks(OURS, "file-1", 0, 9)) == []
    assert await listed(store) == ["file-2"]
    assert not await store.delete_file(OURS, "file-1")
    await store.sweep(clock.now)
    assert (await store.status()).files == 1
    clock.now += 10 * UPLOAD_SECONDS
    await store.sweep(clock.now)
    assert list(await store.file_chunks(OURS, "file-2", 0, 9)) == [b"stays"]


@requirement("store:files:expiry")
async def test_a_file_that_never_became_whole_is_swept(make: Make, clock: Clock):
    store = await make()
    await store.begin_file(OURS, a_file("file-1"), ROOM)
    for position in range(130):
        assert await store.add_file_chunk(OURS, "file-1", position, b"x")
    clock.now += UPLOAD_SECONDS - 1
    assert await store.sweep(clock.now) == 0
    clock.now += 1
    assert await store.sweep(clock.now) == 1
    assert (await store.status()).files == 0
    assert not await store.add_file_chunk(OURS, "file-1", 130, b"x")


@requirement("encryption:moved", "store:files")
async def test_a_sealed_chunk_that_was_moved_does_not_open(clock: Clock):
    inner = MemoryStore(StoreLimits(), clock, clock)
    store = SealedStore(inner, MASTER, clock)
    await store.open()
    await put(store, a_file("file-1"), b"first words", b"second words")
    await put(store, a_file("file-2"), b"third words")
    below = await inner.find_file(OURS, "file-1")
    assert below is not None
    assert b"file-1" not in below.filename
    one, two = inner._files["ours", "file-1"].chunks, inner._files["ours", "file-2"].chunks
    assert b"words" not in b"".join(one + two)
    for chunks in ([one[1], one[0]], [two[0], one[1]], [one[0][:-1], one[1]]):
        inner._files["ours", "file-1"].chunks = chunks
        with pytest.raises(InternalError, match="cannot be read"):
            await store.file_chunks(OURS, "file-1", 0, 2)
    inner._files["ours", "file-1"].chunks = one
    assert list(await store.file_chunks(OURS, "file-1", 0, 2)) == [b"first words", b"second words"]


@requirement("encryption:moved", "store:files")
async def test_a_store_with_plain_files_is_not_sealed_over_them(clock: Clock):
    inner = MemoryStore(StoreLimits(), clock, clock)
    await put(inner, a_file("file-1"), b"plain")
    with pytest.raises(ConfigurationError, match="not encrypted"):
        await SealedStore(inner, MASTER, clock).open()
