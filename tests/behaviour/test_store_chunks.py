"""Ingestion into vector stores, and what is found in them: claims, chunks, vectors and words."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.store.base import Store
from antiphon.store.corpora import ChunkVector, FileCounts, StoredChunk
from support.corpora import OWNER, ROOM, chunk, claimed, fill, new_file, new_store, upload
from support.stores import OURS, THEIRS

requirement = pytest.mark.requirement


@pytest.fixture
async def corpus(store: Store) -> Store:
    """A store with an empty vector store."""
    await store.create_vector_store(OURS, new_store(), ROOM)
    return store


async def hits(store: Store, *words: str, vector_store: str = "vs-1", most: int = 10) -> list[tuple[str, int]]:
    found = await store.search_text(OURS, vector_store, words, most)
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    return [(hit.file_id, hit.index) for hit in found]


async def state(store: Store) -> tuple[FileCounts, int, int]:
    row = await store.find_vector_store(OURS, "vs-1")
    assert row is not None
    return row.files, row.usage_bytes, row.version


@requirement("corpus-store:ingestion")
async def test_a_file_is_claimed_filled_and_found_when_it_is_completed(corpus: Store) -> None:
    await upload(corpus, "file-1")
    assert await corpus.claim_ingestion(OWNER, [OWNER]) is None
    await corpus.add_store_files(OURS, "vs-1", [new_file("file-1", "x")], ROOM)
    ingestion = await claimed(corpus)
    assert (ingestion.scope, ingestion.attempts) == (OURS, 1)
    file = ingestion.file
    assert (file.file_id, file.filename, file.status, file.external_id) == ("file-1", "file-1.md é", "in_progress", "x")
    assert (file.attributes, file.detail) == (b'{"kind":"attributes"}', b'{"kind":"detail"}')
    assert await corpus.add_chunks(ingestion, [chunk(0, "a red house", "Top > One", (1.0, 0.0))])
    assert await corpus.add_chunks(ingestion, [chunk(1, "the blue sea"), chunk(2, "houses é", "", (0.0, 1.0))])
    # Sent again, as after an answer that was lost: they stay as they are.
    assert await corpus.add_chunks(ingestion, [chunk(2, "houses é", "", (0.0, 1.0))])
    assert (await state(corpus))[0] == FileCounts(in_progress=1)
    assert await hits(corpus, "house") == []
    assert list(await corpus.list_chunks(OURS, "vs-1", None, 9)) == []
    assert list(await corpus.chunk_vectors(OURS, "vs-1", None, 9)) == []
    assert list(await corpus.find_chunks(OURS, "vs-1", [("file-1", 0)])) == []
    before = (await state(corpus))[2]
    assert await corpus.finish_ingestion(ingestion, None)
    counts, usage, version = await state(corpus)
    assert counts == FileCounts(completed=1)
    assert version > before
    found = await corpus.find_store_file(OURS, "vs-1", "file-1")
    assert found is not None
    assert (found.status, found.chunks, found.usage_bytes, found.revision) == ("completed", 3, usage, version)
    assert usage > 60
    assert await hits(corpus, "house") == [("file-1", 2), ("file-1", 0)]
    assert list(await corpus.find_chunks(OURS, "vs-1", [("file-1", 0), ("file-1", 9), ("file-2", 0)])) == [
        StoredChunk("file-1", 0, "Top > One", "a red house", b'{"page":0}')
    ]
    assert list(await corpus.chunk_vectors(OURS, "vs-1", None, 9)) == [
        ChunkVector("file-1", 0, b"\0\0\x80\x3f\0\0\0\0"),
        ChunkVector("file-1", 2, b"\0\0\0\0\0\0\x80\x3f"),
    ]
    assert not await corpus.add_chunks(ingestion, [chunk(3, "late")])
    assert not await corpus.finish_ingestion(ingestion, None)


@requirement("corpus-store:ingestion:failed")
async def test_a_file_that_failed_has_its_error_and_no_chunks(corpus: Store) -> None:
    await upload(corpus, "file-1")
    await corpus.add_store_files(OURS, "vs-1", [new_file("file-1")], ROOM)
    ingestion = await claimed(corpus)
    assert await corpus.add_chunks(ingestion, [chunk(0, "half of it")])
    assert await corpus.finish_ingestion(ingestion, ("unsupported_file", "This file é cannot be read."))
    found = await corpus.find_store_file(OURS, "vs-1", "file-1")
    assert found is not None
    assert (found.status, found.error) == ("failed", ("unsupported_file", "This file é cannot be read."))
    assert (found.chunks, found.usage_bytes) == (0, 0)
    assert await hits(corpus, "half") == []
    assert await corpus.claim_ingestion(OWNER, [OWNER]) is None
    # Brought in anew it waits again, without the error.
    await corpus.add_store_files(OURS, "vs-1", [new_file("file-1")], ROOM)
    again = await claimed(corpus)
    assert (again.attempts, again.file.error) == (1, None)
    assert not await corpus.finish_ingestion(ingestion, None)
    assert await corpus.finish_ingestion(again, None)


@requirement("corpus-store:ingestion:claims")
async def test_a_claim_of_a_dead_owner_is_taken_over_and_the_old_one_is_refused(corpus: Store) -> None:
    await upload(corpus, "file-1", "file-2")
    await corpus.add_store_files(OURS, "vs-1", [new_file("file-1", created_at=2), new_file("file-2")], ROOM)
    first = await corpus.claim_ingestion("dead", ["dead", "alive"])
    assert first is not None
    assert first.file.file_id == "file-1"
    assert await corpus.add_chunks(first, [chunk(0, "left behind"), chunk(1, "by the first")])
    second = await corpus.claim_ingestion("alive", ["dead", "alive"])
    assert second is not None
    assert second.file.file_id == "file-2"
    assert await corpus.claim_ingestion("alive", ["dead", "alive"]) is None
    taken = await corpus.claim_ingestion("alive", ["alive"])
    assert taken is not None
    assert (taken.file.file_id, taken.attempts, taken.file.chunks) == ("file-1", 2, 0)
    assert taken.fence != first.fence
    assert not await corpus.add_chunks(first, [chunk(2, "late")])
    assert not await corpus.finish_ingestion(first, None)
    await corpus.release_ingestion(first)
    assert await corpus.add_chunks(taken, [chunk(0, "the second time")])
    assert await corpus.finish_ingestion(taken, None)
    assert await hits(corpus, "left", "first", "late", "second") == [("file-1", 0)]
    assert [row.text for row in await corpus.list_chunks(OURS, "vs-1", None, 9)] == ["the second time"]


@requirement("corpus-store:ingestion:claims")
async def test_a_claim_that_is_given_back_counts_as_no_attempt(corpus: Store) -> None:
    await upload(corpus, "file-1")
    await corpus.add_store_files(OURS, "vs-1", [new_file("file-1")], ROOM)
    first = await claimed(corpus)
    assert await corpus.add_chunks(first, [chunk(0, "one")])
    await corpus.release_ingestion(first)
    assert (await state(corpus))[0] == FileCounts(pending=1)
    assert not await corpus.add_chunks(first, [chunk(1, "two")])
    again = await claimed(corpus)
    assert again.attempts == 1
    assert await corpus.finish_ingestion(again, None)
    assert list(await corpus.list_chunks(OURS, "vs-1", None, 9)) == []


@requirement("corpus-store:ingestion:claims")
async def test_claims_that_come_at_once_have_a_file_each(corpus: Store) -> None:
    names = [f"file-{number}" for number in range(4)]
    await upload(corpus, *names)
    await corpus.add_store_files(OURS, "vs-1", [new_file(name) for name in names], ROOM)
    claims = await asyncio.gather(*(corpus.claim_ingestion(OWNER, [OWNER]) for _ in range(6)))
    assert sorted(claim.file.file_id for claim in claims if claim is not None) == names
    assert sum(claim is None for claim in claims) == 2


@requirement("corpus-store:ingestion:anew")
async def test_what_replaces_removes_or_deletes_a_file_ends_its_claim(corpus: Store) -> None:
    await upload(corpus, "file-1")
    for step in range(4):
        await corpus.add_store_files(OURS, "vs-1", [new_file("file-1")], ROOM)
        ingestion = await claimed(corpus)
        assert await corpus.add_chunks(ingestion, [chunk(0, "old words")])
        if step == 0:
            await corpus.add_store_files(OURS, "vs-1", [new_file("file-1")], ROOM)
        elif step == 1:
            assert await corpus.remove_store_file(OURS, "vs-1", "file-1")
        elif step == 2:
            assert await corpus.delete_vector_store(OURS, "vs-1")
            await corpus.create_vector_store(OURS, new_store(), ROOM)
        else:
            assert await corpus.delete_file(OURS, "file-1")
        assert not await corpus.add_chunks(ingestion, [chunk(1, "late")])
        assert not await corpus.finish_ingestion(ingestion, None)
        await corpus.release_ingestion(ingestion)
        assert (await state(corpus))[0] == FileCounts(pending=step == 0)
        assert await hits(corpus, "old", "late") == []


@requirement("corpus-store:ingestion:anew")
async def test_a_file_that_is_ingested_anew_is_not_found_meanwhile_and_has_its_new_chunks_after(corpus: Store) -> None:
    await fill(corpus, "file-1", "apple pie", "apple tart")
    before = await state(corpus)
    await corpus.add_store_files(OURS, "vs-1", [new_file("file-1")], ROOM)
    counts, usage, version = await state(corpus)
    assert (counts, usage) == (FileCounts(pending=1), 0)
    assert version > before[2]
    assert await hits(corpus, "apple") == []
    ingestion = await claimed(corpus)
    assert await corpus.add_chunks(ingestion, [chunk(0, "pear cake")])
    assert await corpus.finish_ingestion(ingestion, None)
    assert await hits(corpus, "apple", "pear") == [("file-1", 0)]
    found = await corpus.find_store_file(OURS, "vs-1", "file-1")
    assert found is not None
    assert found.revision == (await state(corpus))[2] > version


@requirement("corpus-store:version")
async def test_the_version_is_raised_by_what_a_search_can_see_and_by_nothing_else(corpus: Store) -> None:
    versions = [(await state(corpus))[2]]

    async def same() -> bool:
        versions.append((await state(corpus))[2])
        return versions[-1] == versions[-2]

    await fill(corpus, "file-1", "words")
    assert not await same()
    await corpus.use_vector_store(OURS, "vs-1", 1_000_009)
    await upload(corpus, "file-2")
    await corpus.add_store_files(OURS, "vs-1", [new_file("file-2")], ROOM)
    await corpus.change_store_file(OURS, "vs-1", "file-2", b"{}")
    assert await corpus.finish_ingestion(await claimed(corpus), ("bad", "no"))
    assert await corpus.remove_store_file(OURS, "vs-1", "file-2")
    assert await same()
    await corpus.change_store_file(OURS, "vs-1", "file-1", b"{}")
    assert not await same()
    assert await corpus.remove_store_file(OURS, "vs-1", "file-1")
    assert not await same()
    assert versions == sorted(versions)


@requirement("corpus-store:text")
async def test_words_are_stemmed_joined_by_or_and_ranked_by_how_rare_they_are(corpus: Store) -> None:
    texts = ["common word", "common words again", "a common, running dog", "common zebra", "Zürich Straße 42"]
    await fill(corpus, "file-1", *texts)
    assert (await hits(corpus, "common", "zebra"))[0] == ("file-1", 3)
    assert len(await hits(corpus, "common", "zebra")) == 4
    assert len(await hits(corpus, "common", most=2)) == 2
    assert await hits(corpus, "run") == await hits(corpus, "RUNS") == [("file-1", 2)]
    assert await hits(corpus, "42") == [("file-1", 4)]
    assert await hits(corpus, "absent") == await hits(corpus) == []
    assert await hits(corpus, "common", most=0) == []


@requirement("corpus-store:text")
async def test_headings_are_searched_too(corpus: Store) -> None:
    await upload(corpus, "file-1")
    await corpus.add_store_files(OURS, "vs-1", [new_file("file-1")], ROOM)
    ingestion = await claimed(corpus)
    await corpus.add_chunks(ingestion, [chunk(0, "nothing of it", "Guide > Installation"), chunk(1, "something")])
    await corpus.finish_ingestion(ingestion, None)
    assert await hits(corpus, "installing") == [("file-1", 0)]


@requirement("corpus-store:text:words")
async def test_no_word_is_read_as_an_operator(corpus: Store) -> None:
    await fill(corpus, "file-1", "cat and dog", "near not or")
    words = [
        '"',
        "NEAR",
        "AND",
        "OR",
        "NOT",
        "*",
        "a*",
        "text:cat",
        "^cat",
        "ca\0t",
        "''",
        ")",
        "|",
        "\\",
        "&",
        "\ud800",
    ]
    for word in words:
        assert ("file-1", 0) in await hits(corpus, word, "dog"), word
    assert await hits(corpus, *[f"word{number}" for number in range(500)], "dog") == []


@requirement("corpus-store:text:files")
async def test_a_search_can_be_held_to_some_files(corpus: Store) -> None:
    for number in range(1, 5):
        await fill(corpus, f"file-{number}", "same words", "other things")
    found = await corpus.search_text(OURS, "vs-1", ["words"], 10, ["file-3", "file-1", "file-9"])
    assert [(hit.file_id, hit.index) for hit in found] == [("file-1", 0), ("file-3", 0)]
    assert await corpus.search_text(OURS, "vs-1", ["words"], 10, []) == []
    listed = await corpus.list_chunks(OURS, "vs-1", ("file-1", 0), 10, ["file-1", "file-4"])
    assert [(row.file_id, row.index) for row in listed] == [("file-1", 1), ("file-4", 0), ("file-4", 1)]
    vectors = await corpus.chunk_vectors(OURS, "vs-1", None, 10, ["file-2"])
    assert [(row.file_id, row.index) for row in vectors] == [("file-2", 0), ("file-2", 1)]


@requirement("corpus-store:text:alone")
async def test_scores_depend_on_nothing_in_other_vector_stores(corpus: Store) -> None:
    await fill(corpus, "file-1", "rare bird", "common bird", "common tree")
    before = await corpus.search_text(OURS, "vs-1", ["rare", "bird"], 10)
    await corpus.create_vector_store(THEIRS, new_store("vs-2"), ROOM)
    await corpus.create_vector_store(OURS, new_store("vs-3"), ROOM)
    await fill(corpus, "file-2", *["rare rare bird"] * 20, vector_store="vs-2", scope=THEIRS)
    await fill(corpus, "file-3", *["bird"] * 20, vector_store="vs-3")
    assert await corpus.search_text(OURS, "vs-1", ["rare", "bird"], 10) == before
    assert len(await corpus.search_text(THEIRS, "vs-2", ["rare"], 100)) == 20


@requirement("corpus-store:pages")
async def test_chunks_and_vectors_are_read_in_pages_in_the_order_of_their_places(corpus: Store) -> None:
    for number in (3, 1, 2):
        await fill(corpus, f"file-{number}", *[f"text {index}" for index in range(12)])
    expected = [(f"file-{number}", index) for number in (1, 2, 3) for index in range(12)]
    for most in (1, 5, 12, 100):
        places: list[tuple[str, int]] = []
        vectors: list[tuple[str, int]] = []
        while rows := await corpus.list_chunks(OURS, "vs-1", places[-1] if places else None, most):
            assert len(rows) <= most
            places += [(row.file_id, row.index) for row in rows]
        while found := await corpus.chunk_vectors(OURS, "vs-1", vectors[-1] if vectors else None, most):
            assert len(found) <= most
            vectors += [(row.file_id, row.index) for row in found]
        assert places == vectors == expected
    assert [row.index for row in await corpus.list_chunks(OURS, "vs-1", ("file-2", 10), 2)] == [11, 0]
    assert len(await corpus.find_chunks(OURS, "vs-1", expected)) == 36
    assert list(await corpus.list_chunks(OURS, "vs-1", None, 0)) == []
