"""What only vector stores in SQLite have: steps between which others write, an index that is whole, and its absence."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.errors import ConfigurationError
from antiphon.store import sqlite_chunks, sqlite_corpus_removal
from antiphon.store.base import StoreLimits
from antiphon.store.sqlite import SQLiteStore
from antiphon.store.text_index import leading, match_of
from support.corpora import ROOM, chunk, claimed, fill, new_file, new_store, upload
from support.stores import OURS, THEIRS, Clock, wrapped_key

requirement = pytest.mark.requirement
TABLES = ("vector_stores", "store_files", "batches", "corpus_chunks", "corpus_vectors")


def left(store: SQLiteStore) -> dict[str, int]:
    """How many rows of vector stores there are, and tables of words."""
    with closing(sqlite3.connect(store.path)) as connection:
        rows = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
        words = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'corpus_words%'"
        return {**rows, "words": connection.execute(words).fetchone()[0]}


async def reopened(store: SQLiteStore) -> SQLiteStore:
    """The same file, by a later process."""
    await store.close()
    again = SQLiteStore(store.path, StoreLimits(), Clock())
    await again.open()
    return again


@requirement("corpus-store:sqlite:steps")
async def test_a_large_vector_store_goes_in_steps_between_which_others_write(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_corpus_removal, "_FILES_A_STEP", 8)
    monkeypatch.setattr(sqlite_corpus_removal, "_PARTS", (("data", 1), ("docsize", 8)))
    await store.create_vector_store(OURS, new_store(), ROOM)
    await fill(store, "file-1", *[f"text {number}" for number in range(40)])
    deletion = asyncio.create_task(store.delete_vector_store(OURS, "vs-1"))
    seen: list[int] = []
    number = 0
    while not deletion.done():
        number += 1
        await store.create_vector_store(THEIRS, new_store(f"vs-{number}"), ROOM)
        seen.append(left(store)["corpus_chunks"])
        assert await store.find_vector_store(OURS, "vs-1") is None
    assert await deletion
    assert len({count for count in seen if 0 < count < 40}) > 1
    rows = left(store)
    assert (rows["store_files"], rows["corpus_chunks"], rows["corpus_vectors"], rows["words"]) == (0, 0, 0, 0)


@requirement("corpus-store:sqlite:steps")
async def test_what_a_call_and_a_process_have_left_is_removed_by_the_sweep(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_corpus_removal.SQLiteCorpusRemoval._remove_lost, "__defaults__", (0.0, None))
    await store.create_vector_store(OURS, new_store(), ROOM)
    await store.create_vector_store(OURS, new_store("vs-2"), ROOM)
    await fill(store, "file-1", *["many words"] * 100)
    await fill(store, "file-2", *["other words"] * 100, vector_store="vs-2")
    await fill(store, "file-3", "words that stay", vector_store="vs-2")
    assert await store.delete_vector_store(OURS, "vs-1")
    assert await store.remove_store_file(OURS, "vs-2", "file-2")
    before = left(store)
    store = await reopened(store)
    assert left(store) == before
    assert before["corpus_chunks"] == 201
    assert await store.sweep(1_000_000) == 2
    rows = left(store)
    assert (rows["vector_stores"], rows["store_files"], rows["corpus_chunks"]) == (1, 1, 1)
    assert [hit.file_id for hit in await store.search_text(OURS, "vs-2", ["words"], 9)] == ["file-3"]
    words = store._open().connection
    words.execute("INSERT INTO corpus_words_2 (corpus_words_2) VALUES ('integrity-check')")
    assert await store.sweep(1_000_000) == 0
    await store.close()


@requirement("corpus-store:sqlite:whole")
async def test_chunks_and_words_are_there_after_the_file_was_opened_again_and_claims_are_taken_over(
    store: SQLiteStore,
) -> None:
    await store.create_vector_store(OURS, new_store(), ROOM)
    await fill(store, "file-1", "red apple", "green pear")
    await upload(store, "file-2")
    await store.add_store_files(OURS, "vs-1", [new_file("file-2")], ROOM)
    lost = await claimed(store, "first process")
    assert await store.add_chunks(lost, [chunk(0, "half of an apple")])
    before = await store.search_text(OURS, "vs-1", ["apple"], 9)
    store = await reopened(store)
    assert await store.search_text(OURS, "vs-1", ["apple"], 9) == before
    again = await claimed(store, "second process")
    assert (again.file.file_id, again.attempts, again.file.chunks) == ("file-2", 2, 0)
    assert await store.add_chunks(again, [chunk(0, "a whole apple")])
    assert await store.finish_ingestion(again, None)
    hits = await store.search_text(OURS, "vs-1", ["half", "apple"], 9)
    assert sorted(hit.file_id for hit in hits) == ["file-1", "file-2"]
    assert left(store)["store_files"] == 2
    await store.close()


@requirement("corpus-store:sqlite:whole")
async def test_the_vector_stores_of_a_deleted_tenant_are_on_the_disk_no_more(store: SQLiteStore) -> None:
    await store.add_tenant_key("ours", wrapped_key("ours"))
    await store.create_vector_store(OURS, new_store(title="zanzibar"), ROOM)
    await fill(store, "file-1", *["tanganyika"] * 100)
    await store.delete_tenant("ours")
    assert set(left(store).values()) == {0}
    disk = b"".join(file.read_bytes() for file in store.path.parent.iterdir())
    assert [word for word in (b"zanzibar", b"tanganyika", b"tanganyik") if word in disk] == []


@requirement("corpus-store:sqlite:words")
async def test_without_fts5_words_are_not_searched_and_it_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_chunks, "has_full_text", lambda: False)
    store = SQLiteStore(path, StoreLimits(), Clock())
    await store.open()
    assert "without FTS5" in caplog.text
    assert "without FTS5" in store.text_fault
    await store.create_vector_store(OURS, new_store(), ROOM)
    await fill(store, "file-1", "words")
    assert await store.search_text(OURS, "vs-1", ["words"], 9) == []
    assert len(await store.chunk_vectors(OURS, "vs-1", None, 9)) == 1
    monkeypatch.undo()
    # Files that come in later are found, and those from before can go.
    store = await reopened(store)
    assert store.text_fault == ""
    await fill(store, "file-2", "words")
    assert [hit.file_id for hit in await store.search_text(OURS, "vs-1", ["words"], 9)] == ["file-2"]
    assert await store.remove_store_file(OURS, "vs-1", "file-1")
    store._open().connection.execute("INSERT INTO corpus_words_1 (corpus_words_1) VALUES ('integrity-check')")
    await store.close()
    monkeypatch.setattr(sqlite_chunks, "has_full_text", lambda: False)
    with pytest.raises(ConfigurationError, match="without FTS5"):
        await SQLiteStore(path, StoreLimits(), Clock()).open()


@requirement("corpus-store:common")
async def test_words_that_most_chunks_hold_add_to_scores_and_find_nothing_by_themselves(store: SQLiteStore) -> None:
    assert leading({"a": 15_000, "b": 3, "c": 9_000, "d": 0}, 1) == ["b", "c"]
    assert leading({"a": 50_000}, 1) == ["a"]
    assert match_of({"a": 1}, 1) == ('"a"', 1.0)
    assert match_of({"d": 0}, 1) == ("", 1.0)
    match, scale = match_of({"rare": 5, "common": 30_000}, 1)
    assert (match, scale) == ('("rare") AND ("rare" OR "common" OR "common")', 0.5)
    await store.create_vector_store(OURS, new_store(), ROOM)
    await fill(store, "file-1", "rare common", "rare", "common", "common one", *["other"] * 9)
    words = store._open().connection
    both = "SELECT rowid & 16777215, -bm25(corpus_words_1) * ? FROM corpus_words_1 WHERE corpus_words_1 MATCH ?"
    plain = dict(words.execute(both, (1.0, '"rare" OR "common"')).fetchall())
    led = dict(words.execute(both, (scale, match)).fetchall())
    # Those that are found have the scores that they would have without it.
    assert led == {place: pytest.approx(plain[place]) for place in (0, 1)}
    assert set(plain) == {0, 1, 2, 3}
