"""Vector stores in one PostgreSQL database that several servers have."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.corpus.shelf import Shelves
from antiphon.corpus.vectors import VectorSearch
from antiphon.store import postgres_chunks
from support.corpora import ROOM, chunk, claimed, fill, new_file, new_store, upload
from support.postgres import Cluster, Server
from support.stores import OURS

requirement = pytest.mark.requirement


@requirement("corpus-store:postgresql:owners")
async def test_servers_share_the_files_that_wait_and_take_over_from_one_that_is_gone(server: Server) -> None:
    first, second = await server(), await server()
    for store, owner in ((first, "one"), (second, "two")):
        await store.join(owner)
    owners = set(await first.beat("one")) | set(await second.beat("two"))
    assert owners == {"one", "two"}
    names = [f"file-{number}" for number in range(8)]
    await first.create_vector_store(OURS, new_store(), ROOM)
    await upload(first, *names)
    await first.add_store_files(OURS, "vs-1", [new_file(name) for name in names], ROOM)
    claims = await asyncio.gather(
        *(store.claim_ingestion(owner, owners) for store, owner in ((first, "one"), (second, "two")) * 5)
    )
    held = {claim.file.file_id: claim for claim in claims if claim is not None}
    assert sorted(held) == names
    # One that entered after the last look is alive, although nobody names it.
    third = await server()
    await third.join("three")
    await upload(third, "file-9")
    await third.add_store_files(OURS, "vs-1", [new_file("file-9")], ROOM)
    late = await claimed(third, "three")
    assert await first.claim_ingestion("one", ["one", "two"]) is None
    # And one that left is not.
    await second.leave("two")
    taken = []
    while (claim := await first.claim_ingestion("one", set(await first.beat("one")))) is not None:
        taken.append(claim)
    assert {claim.attempts for claim in taken} == {2}
    assert 1 <= len(taken) < len(names)
    for claim in taken:
        assert not await second.add_chunks(held[claim.file.file_id], [chunk(0, "late")])
    assert await third.finish_ingestion(late, None)


@requirement("corpus-store:postgresql:owners")
async def test_files_that_come_in_by_two_servers_at_once_do_not_pass_the_limit(server: Server) -> None:
    first, second = await server(), await server()
    await first.create_vector_store(OURS, new_store(), ROOM)
    names = [f"file-{number}" for number in range(6)]
    await upload(first, *names)
    limits = type(ROOM)(most_stores=9, most_files=3)
    outcomes = await asyncio.gather(
        *(
            store.add_store_files(OURS, "vs-1", [new_file(name)], limits)
            for store, name in zip([first, second] * 3, names, strict=True)
        ),
        return_exceptions=True,
    )
    assert (
        sorted(str(getattr(outcome, "code", "added")) for outcome in outcomes)
        == ["added"] * 3 + ["file_limit_reached"] * 3
    )
    row = await second.find_vector_store(OURS, "vs-1")
    assert row is not None
    assert row.files.pending == 3


@requirement("corpus-store:common")
async def test_ranks_are_those_of_bm25_and_counts_follow_what_is_removed(
    server: Server, postgres: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await server()
    await store.create_vector_store(OURS, new_store(), ROOM)
    await fill(store, "file-1", "rare common", "rare", "common", "common house", *["other"] * 9)
    await fill(store, "file-2", "rare house", "a common mouse")
    counted = "SELECT chunks FROM corpus_terms WHERE word = 'rare'"
    assert postgres.execute(counted, database) == "3"
    before = await store.search_text(OURS, "vs-1", ["rare", "common"], 9)
    assert len(before) == 6
    # Where the common word leads no search, the others have the scores that they had.
    monkeypatch.setattr(postgres_chunks, "_MOST_RANKED", 3)
    monkeypatch.setattr("antiphon.store.text_index._ENOUGH", 0)
    held = await store.search_text(OURS, "vs-1", ["rare", "common"], 9)
    assert held == [hit for hit in before if (hit.file_id, hit.index) in {("file-1", 0), ("file-1", 1), ("file-2", 0)}]
    assert await store.remove_store_file(OURS, "vs-1", "file-1")
    assert postgres.execute(counted, database) == "1"
    assert postgres.execute("SELECT texts, words FROM vector_stores", database) == "2|4"
    assert await store.delete_vector_store(OURS, "vs-1")
    for table in ("vector_stores", "store_files", "corpus_chunks", "corpus_words", "corpus_vectors", "corpus_terms"):
        assert postgres.execute(f"SELECT count(*) FROM {table}", database) == "0", table


@requirement("corpus-store:pgvector:comes-and-goes")
async def test_without_the_extension_vectors_are_compared_elsewhere(
    server: Server, postgres: Cluster, database: str
) -> None:
    if postgres.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"):
        pytest.skip("this PostgreSQL has pgvector; tests/pgvector says what it does")
    store = await server()
    await store.create_vector_store(OURS, new_store(), ROOM)
    await fill(store, "file-1", "a red house", "the blue sea")
    asked = chunk(0, "", vector=(0.0, 1.0)).vector
    assert await store.search_vectors(OURS, "vs-1", [asked], 5) is None
    assert postgres.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'corpus_point%'", database) == "0"
    row = await store.find_vector_store(OURS, "vs-1")
    assert row is not None
    search = VectorSearch(store, 2**20)
    near = await search.search(OURS, await Shelves(store).of(OURS, row), [asked], 5)
    assert [(hit.file_id, hit.index, hit.score) for hit in near.hits[0]] == [("file-1", 0, 1.0), ("file-1", 1, 1.0)]
    assert search.kept_bytes > 0
