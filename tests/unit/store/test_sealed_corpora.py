"""What only vector stores of a sealed store have: nothing plain at rest, tags to find by, and words in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.errors import ConfigurationError, InternalError
from antiphon.store.base import StoreLimits
from antiphon.store.corpora import NewStoreFile
from antiphon.store.memory import MemoryStore
from antiphon.store.sealed import SealedStore
from antiphon.store.sqlite import SQLiteStore
from support.corpora import ROOM, chunk, claimed, fill, new_file, new_store, upload
from support.stores import MASTER, OURS, THEIRS, Clock

requirement = pytest.mark.requirement
SECRETS = [b"zanzibar", b"Kilimanjaro", b"serengeti", b"victoria", b"tanganyika", b"mombasa", b"nairobi", b"kampala"]


@pytest.fixture
async def inner() -> MemoryStore:
    """The store within."""
    return MemoryStore(StoreLimits())


@pytest.fixture
async def sealed(inner: MemoryStore) -> SealedStore:
    """A sealed store in memory with an empty vector store."""
    store = SealedStore(inner, MASTER)
    await store.open()
    await store.create_vector_store(OURS, new_store(), ROOM)
    return store


@requirement("corpus-store:sealed")
async def test_nothing_of_a_vector_store_lies_plain_on_the_disk(tmp_path: Path) -> None:
    store = SealedStore(SQLiteStore(tmp_path / "a.db", StoreLimits(), Clock()), MASTER)
    await store.open()
    row = new_store(title="zanzibar")
    await store.create_vector_store(OURS, row, ROOM)
    await upload(store, "file-1", "file-2")
    files = [
        NewStoreFile("file-1", 1, b'{"a":"Kilimanjaro"}', b'{"d":"serengeti"}', "victoria"),
        NewStoreFile("file-2", 2, b"", b""),
    ]
    await store.add_store_files(OURS, "vs-1", files, ROOM)
    ingestion = await claimed(store)
    vector = (0.1, 0.2, 0.3, 0.4)
    assert await store.add_chunks(ingestion, [chunk(0, "tanganyika tanganyika", "mombasa", vector)])
    assert await store.finish_ingestion(ingestion, None)
    assert await store.finish_ingestion(await claimed(store), ("bad", "nairobi"))
    await store.change_store_file(OURS, "vs-1", "victoria", b'{"a":"kampala"}')
    assert [hit.file_id for hit in await store.search_text(OURS, "vs-1", ["tanganyika"], 5)] == ["file-1"]
    found = await store.find_store_file(OURS, "vs-1", "file-2")
    assert found is not None
    assert found.error == ("bad", "nairobi")
    (stored,) = await store.chunk_vectors(OURS, "vs-1", None, 5)
    assert stored.vector == chunk(0, "", vector=vector).vector
    # The log beside it too, before it is brought into the file.
    disk = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    await store.close()
    disk += b"".join(file.read_bytes() for file in tmp_path.iterdir())
    plain = [stored.vector, stored.vector[:8], *SECRETS]
    assert [word for word in plain if word in disk or word.lower() in disk] == []


@requirement("corpus-store:sealed")
async def test_tags_of_names_are_those_of_a_tenant_and_no_name_is_found_without_its_key(
    inner: MemoryStore, sealed: SealedStore
) -> None:
    await sealed.create_vector_store(THEIRS, new_store(), ROOM)
    rows = [await inner.find_vector_store(scope, "vs-1") for scope in (OURS, THEIRS)]
    tags = [row.name for row in rows if row is not None]
    assert len(set(tags)) == 2
    assert "name of vs-1" not in tags
    # Nobody is given a key by asking.
    assert await sealed.find_vector_store_named(type(OURS)("nobody"), "name of vs-1") is None
    assert await sealed.find_store_file(type(OURS)("nobody"), "vs-1", "x") is None
    assert await inner.tenant_key("nobody") is None


@requirement("corpus-store:sealed")
async def test_a_chunk_that_was_moved_does_not_open(inner: MemoryStore, sealed: SealedStore) -> None:
    await fill(sealed, "file-1", "one", "two")
    chunks = inner._corpora["ours", "vs-1"].files["file-1"].chunks
    chunks[0], chunks[1] = (
        type(chunks[0])(0, "", "", chunks[1].detail, chunks[1].vector),
        type(chunks[0])(1, "", "", chunks[0].detail, chunks[0].vector),
    )
    with pytest.raises(InternalError, match="cannot be read"):
        await sealed.list_chunks(OURS, "vs-1", None, 5)
    with pytest.raises(InternalError, match="cannot be read"):
        await sealed.chunk_vectors(OURS, "vs-1", None, 5)


@requirement("corpus-store:sealed")
async def test_a_store_with_plain_vector_stores_is_not_sealed_over_them(inner: MemoryStore) -> None:
    await inner.create_vector_store(OURS, new_store(), ROOM)
    with pytest.raises(ConfigurationError, match="not encrypted"):
        await SealedStore(inner, MASTER).open()


@requirement("corpus-store:sealed")
async def test_a_file_whose_key_is_gone_fails_and_the_next_one_is_claimed(
    inner: MemoryStore, sealed: SealedStore, caplog: pytest.LogCaptureFixture
) -> None:
    await upload(sealed, "file-1", "file-2")
    await sealed.add_store_files(OURS, "vs-1", [new_file("file-1"), new_file("file-2")], ROOM)
    file = inner._corpora["ours", "vs-1"].files["file-1"]
    file.row = type(file.row)(
        **{**{name: getattr(file.row, name) for name in file.row.__struct_fields__}, "detail": b"?"}
    )
    assert (await claimed(sealed)).file.file_id == "file-2"
    assert file.row.status == "failed"
    assert "cannot be read" in caplog.text


@requirement("corpus-store:sealed:words")
async def test_words_in_memory_follow_the_versions_and_are_bounded(
    sealed: SealedStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def hits(*words: str, vector_store: str = "vs-1") -> list[str]:
        return [hit.file_id for hit in await sealed.search_text(OURS, vector_store, words, 9)]

    await fill(sealed, "file-1", "red apple")
    assert await hits("apple") == ["file-1"]
    await fill(sealed, "file-2", "green apple and more")
    assert sorted(await hits("apple")) == ["file-1", "file-2"]
    assert await sealed.remove_store_file(OURS, "vs-1", "file-1")
    assert await hits("apple", "red") == ["file-2"]
    await fill(sealed, "file-2", "yellow pear")
    assert await hits("apple", "green") == []
    assert await hits("pear") == ["file-2"]
    # With room for one of two, the one that was not used for longest goes, and is made again.
    await sealed.create_vector_store(OURS, new_store("vs-2"), ROOM)
    await fill(sealed, "file-3", "blue plum", vector_store="vs-2")
    sealed._words.most_text = 45
    assert await hits("plum", vector_store="vs-2") == ["file-3"]
    assert list(sealed._words._known) == [("ours", "vs-2")]
    assert await hits("pear") == ["file-2"]
    # One that has no room by itself is not searched by words.
    sealed._words.forget()
    sealed._words.most_text = 5
    assert await hits("pear") == []
    assert "too large for words" in caplog.text
    sealed._words.most_text = 1000
    assert await sealed.delete_vector_store(OURS, "vs-1")
    assert await hits("pear") == []
    await sealed.close()
    assert sealed._words._known == {}
