"""The library: search by words and meaning, patterns, listings and facets over vector stores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.corpus import librarian, searching
from antiphon.corpus.library import Facet, Found, Ranking, chunk_id
from antiphon.corpus.shelf import Shelves
from antiphon.errors import EngineUnavailableError, InvalidRequestError, NotFoundError
from antiphon.store.base import Store
from support.corpora import ROOM, new_store
from support.library import Meanings, Shelved
from support.questions import PASSAGES, QUESTIONS, ndcg
from support.stores import OURS, THEIRS

requirement = pytest.mark.requirement


def ids(found: Found) -> list[str]:
    return [chunk_id(chunk.file.file_id, chunk.index) for chunk in found.chunks]


async def zoo(**fields: Any) -> Shelved:
    """Two vector stores about animals."""
    shelved = Shelved(Meanings("cat kitten feline", "dog puppy canine", "car wheel"), **fields)
    await shelved.make("vs-1", "animals")
    await shelved.make("vs-2", "machines")
    await shelved.put("a", "the feline sleeps", "a dog barks at night", of={"lang": "en", "year": 2001})
    await shelved.put("b", ("Pets > Puppies", "they chew on shoes"), of={"lang": "en", "year": 2010, "new": True})
    await shelved.put("c", "eine katze, a cat that is called Mimi", of={"lang": "de", "year": 2005.5})
    await shelved.put("d", "the car has a wheel", into="vs-2", of={"lang": "en"})
    return shelved


async def search(shelved: Shelved, *queries: str, stores: Sequence[str] = ("vs-1",), **fields: Any) -> Found:
    given = {"most": 10, **fields}
    return await shelved.library.search(OURS, await shelved.stores(*stores), queries, **given)


@requirement("search:hybrid")
async def test_words_and_meaning_are_ranked_together():
    shelved = await zoo()
    found = await search(shelved, "kitten Mimi")
    assert ids(found)[:2] == ["c:0", "a:0"], "the words find one, its meaning the other"
    first = found.chunks[0]
    assert first.score is not None
    assert first.score > 0.9
    assert found.note == ""
    assert (first.text, first.attributes, first.detail) == (
        "eine katze, a cat that is called Mimi",
        {"lang": "de", "year": 2005.5},
        {"page": 0},
    )
    assert (first.store.name, first.file.filename) == ("animals", "c.md é")
    scores = [chunk.score for chunk in found.chunks]
    assert scores == sorted(scores, key=lambda score: -(score or 0))
    assert all(score is not None and 0 <= score <= 1 and round(score, 4) == score for score in scores)


@requirement("search:hybrid", "search:grep", "search:get")
async def test_every_store_answers_alike(store: Store):
    shelved = await zoo(store=store)
    assert ids(await search(shelved, "kitten Mimi"))[:2] == ["c:0", "a:0"]
    assert ids(await search(shelved, "wheel", stores=("vs-1", "vs-2")))[0] == "d:0"
    german = {"type": "eq", "key": "lang", "value": "de"}
    assert ids(await search(shelved, "cat dog", filters=[german])) == ["c:0"]
    assert [match.text for match in await grep(shelved, "barks?")] == ["a dog barks at night"]
    assert ids(await listing(shelved, rank_by="year")) == ["b:0", "c:0", "a:0", "a:1"]
    rows = await shelved.stores("vs-1", "vs-2")
    assert [chunk is not None for chunk in await shelved.library.get(OURS, rows, ["a:1", "d:0", "d:1"])] == [1, 1, 0]
    assert [facet.name for facet in await shelved.library.facets(OURS, rows)] == ["lang", "year", "new"]
    assert await shelved.store.remove_store_file(OURS, "vs-1", "c")
    assert ids(await search(shelved, "kitten Mimi"))[0] == "a:0"
    await shelved.library.close()


@requirement("search:hybrid")
async def test_headings_are_searched_with_the_text_below_them():
    shelved = await zoo()
    assert ids(await search(shelved, "puppies", ranking=Ranking(vector_weight=0)))[0] == "b:0"
    assert shelved.embedder is not None
    assert "Pets > Puppies\nthey chew on shoes" in shelved.embedder.asked  # type: ignore[attr-defined]


@requirement("search:hybrid")
async def test_the_weights_say_what_counts():
    shelved = await zoo()
    by_words = await search(shelved, "dog kitten", ranking=Ranking(vector_weight=0))
    assert ids(by_words) == ["a:1"]
    by_meaning = await search(shelved, "kitten", ranking=Ranking(text_weight=0))
    assert set(ids(by_meaning)[:2]) == {"a:0", "c:0"}
    with pytest.raises(InvalidRequestError):
        await search(shelved, "kitten", ranking=Ranking(text_weight=0, vector_weight=0))


@requirement("search:hybrid")
async def test_a_question_in_other_words_than_its_answer_is_answered_by_meaning():
    shelved = Shelved(Meanings("red", "blue"))
    await shelved.make()
    await shelved.put("near", "red red red")
    await shelved.put("words", "alpha alpha alpha blue")
    # One of four words stands in a chunk that means something else.
    assert ids(await search(shelved, "red alpha beta gamma"))[0] == "near:0"
    assert ids(await search(shelved, "alpha blue"))[0] == "words:0"


@requirement("search:quality")
async def test_words_find_what_they_are_to_find():
    shelved = Shelved(None)
    await shelved.make()
    for name, passage in PASSAGES.items():
        await shelved.put(name, passage)
    rows = await shelved.stores()
    gains: list[float] = []
    for question, good in QUESTIONS:
        found = await shelved.library.search(OURS, rows, [question], most=10)
        gains.append(ndcg([chunk.file.file_id for chunk in found.chunks], good))
    assert sum(gains) / len(gains) > 0.59


@requirement("search:several")
async def test_several_questions_and_stores_are_searched_together():
    shelved = await zoo()
    found = await search(shelved, "kitten", "wheel", "wheel", stores=("vs-1", "machines", "vs-2"), most=3)
    assert set(ids(found)) == {"a:0", "c:0", "d:0"}
    assert {chunk.store.name for chunk in found.chunks} == {"animals", "machines"}
    for queries in ((), ("",), ("  ", ""), tuple(f"q{number}" for number in range(40))):
        with pytest.raises(InvalidRequestError):
            await search(shelved, *queries)


@requirement("search:results")
async def test_results_are_bounded_told_apart_and_leave_out_what_is_known():
    shelved = await zoo()
    await shelved.put("e", "the  feline\nsleeps")
    every = await search(shelved, "feline dog")
    assert len({chunk.text.replace("  ", " ").replace("\n", " ") for chunk in every.chunks}) == len(every.chunks)
    assert ids(await search(shelved, "feline dog", most=1)) == ids(every)[:1]
    rest = await search(shelved, "feline dog", without=frozenset(ids(every)[:2]))
    assert not set(ids(rest)) & set(ids(every)[:2])
    second = every.chunks[1].score or 0
    high = await search(shelved, "feline dog", ranking=Ranking(threshold=second))
    assert ids(high) == [each for each, chunk in zip(ids(every), every.chunks, strict=True) if chunk.score >= second]
    assert 2 <= len(high.chunks) < len(every.chunks)
    assert (await search(shelved, "qqqq", ranking=Ranking(vector_weight=0))).chunks == []


@requirement("search:results")
async def test_filters_say_which_files_are_searched():
    shelved = await zoo()
    german = {"type": "eq", "key": "lang", "value": "de"}
    assert ids(await search(shelved, "cat", filters=[german])) == ["c:0"]
    of_file = {"key": "__file_id", "operator": "in", "value": ["a"]}
    assert set(ids(await search(shelved, "cat", filters=[of_file]))) == {"a:0", "a:1"}
    assert ids(await search(shelved, "cat", filters=[german, of_file])) == []
    with pytest.raises(InvalidRequestError):
        await search(shelved, "cat", filters=[{"type": "eq"}])


@requirement("search:without_vectors")
async def test_without_vectors_words_are_searched_and_it_is_said(monkeypatch: pytest.MonkeyPatch):
    told: list[tuple[str, Exception]] = []
    shelved = await zoo(on_fault=lambda *fault: told.append(fault))
    embedder = shelved.embedder
    assert isinstance(embedder, Meanings)
    embedder.fault = EngineUnavailableError("/home/secret/model.gguf is gone")
    found = await search(shelved, "the dog")
    assert ids(found) == ["a:1"]
    assert found.chunks[0].score == 1.0
    assert "Only words were searched for" in found.note
    assert "secret" not in found.note
    assert [error for _, error in told] == [embedder.fault]
    only_meaning = await search(shelved, "the dog", ranking=Ranking(text_weight=0))
    assert (ids(only_meaning), bool(only_meaning.note)) == (["a:1"], True)
    embedder.fault = None
    monkeypatch.setattr(searching, "_QUESTION_SECONDS", 0.01)
    embedder.wait = asyncio.Event().wait
    assert "is being loaded" in (await search(shelved, "the dog")).note
    none = Shelved(None)
    await none.make()
    await none.put("a", "a dog")
    found = await search(none, "dog")
    assert (ids(found), "makes no vectors" in found.note) == (["a:0"], True)


@requirement("search:without_vectors")
async def test_documents_that_another_model_has_read_are_found_by_words():
    shelved = await zoo()
    embedder = shelved.embedder
    assert isinstance(embedder, Meanings)
    embedder.groups.append(["more"])
    found = await search(shelved, "dog")
    assert (ids(found), "no vectors of the embedding model" in found.note) == (["a:1"], True)


@requirement("search:without_vectors")
async def test_that_some_documents_have_no_vectors_is_said():
    shelved = await zoo()
    await shelved.put("e", "a fox in the garden", vectors=False)
    found = await search(shelved, "fox")
    assert ids(found)[0] == "e:0"
    assert found.note.startswith("Of the chunks, 1 were searched by words only")


class Backwards:
    """A reranker that likes short texts best."""

    fault: Exception | None = None
    most = 50

    async def scores(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        if self.fault is not None:
            raise self.fault
        return [1 / len(text) for text in texts]


@requirement("search:rerank")
async def test_a_reranker_puts_what_was_found_in_its_order():
    ranker = Backwards()
    shelved = await zoo(reranker=ranker)
    found = await search(shelved, "cat dog", most=2)
    assert ids(found) == ["a:0", "a:1"]
    assert found.chunks[0].score == round(1 / len("the feline sleeps"), 4)
    plain = await search(shelved, "cat dog", ranking=Ranking(rerank=False))
    assert ids(plain) != ids(found)
    ranker.fault = EngineUnavailableError("gone")
    found = await search(shelved, "cat dog")
    assert (ids(found), "not reranked" in found.note) == (ids(plain), True)


@requirement("search:tenants")
async def test_stores_are_found_by_id_or_name_and_by_their_tenant_only():
    shelved = await zoo()
    assert [row.id for row in await shelved.stores("machines", "vs-1", "animals")] == ["vs-2", "vs-1"]
    with pytest.raises(NotFoundError, match="'absent'"):
        await shelved.stores("vs-1", "absent")
    with pytest.raises(NotFoundError):
        await shelved.stores("vs-1", scope=THEIRS)
    rows = await shelved.stores("vs-1")
    assert (await shelved.library.search(THEIRS, rows, ["cat"], most=5)).chunks == []
    assert await shelved.library.grep(THEIRS, rows, "cat", most=5) == []
    assert await shelved.library.get(THEIRS, rows, ["a:0"]) == [None]
    listed, more = await shelved.library.listed(OURS, limit=1)
    assert ([row.id for row in listed], more) == (["vs-2"], True)
    listed, more = await shelved.library.listed(OURS, limit=1, after="vs-2")
    assert ([row.id for row in listed], more) == (["vs-1"], False)


@requirement("search:used")
async def test_whatever_is_asked_of_a_store_is_a_use_of_it():
    now = [2_000_000.0]
    shelved = await zoo(clock=lambda: now[0])

    async def used() -> int:
        return (await shelved.stores("vs-1"))[0].last_active_at

    rows = await shelved.stores("vs-1")
    await search(shelved, "cat")
    assert await used() == 2_000_000
    now[0] += 100
    await shelved.library.facets(OURS, rows)
    assert await used() == 2_000_100


async def grep(shelved: Shelved, pattern: str, most: int = 10, stores: Sequence[str] = ("vs-1",), **fields: Any) -> Any:
    return await shelved.library.grep(OURS, await shelved.stores(*stores), pattern, most=most, **fields)


@requirement("search:grep")
async def test_a_pattern_finds_chunks_with_windows_around_its_matches():
    shelved = Shelved(None)
    await shelved.make()
    far = " ".join(f"w{number}" for number in range(400))
    await shelved.put("a", "Nothing here.", f"start {far} Needle {far} needle end", "a needle, a NEEDLE")
    await shelved.put("b", "needle", of={"lang": "de"})
    found = await grep(shelved, "needle")
    assert [(match.chunk.file.file_id, match.chunk.index, match.matches) for match in found] == [
        ("a", 1, 2),
        ("a", 2, 2),
        ("b", 0, 1),
    ]
    assert found[0].chunk.score is None
    first, second = found[0].text.split("\n…\n")
    assert " Needle " in first
    assert first.startswith("…w")
    assert second.endswith(" needle end")
    assert len(first) < 450
    assert "w200 " not in first
    assert found[1].text == "a needle, a NEEDLE"
    assert [match.matches for match in await grep(shelved, "needle", case_sensitive=True)] == [1, 1, 1]
    assert len(await grep(shelved, "needle", most=1)) == 1
    german = {"type": "eq", "key": "lang", "value": "de"}
    assert [match.chunk.file.file_id for match in await grep(shelved, "needle", filters=[german])] == ["b"]
    assert await grep(shelved, r"\bneed\b") == []
    assert [match.matches for match in await grep(shelved, "x*", most=1)] == [1]


@requirement("search:grep")
async def test_windows_never_cut_a_character():
    shelved = Shelved(None)
    await shelved.make()
    await shelved.put("a", "é" * 1_000 + "ß" + "日本" * 500)
    (match,) = await grep(shelved, "ß")
    assert set(match.text) == set("…éß日本")
    (match,) = await grep(shelved, "本$")
    assert match.text.endswith("日本")


@requirement("search:grep:faults")
@pytest.mark.parametrize("pattern", ["", "a" * 1_025, "(a", "(?=a)", r"(a)\1", "((a{1000}){1000})", "\ud800"])
async def test_what_is_no_pattern_of_re2_is_refused(pattern: str):
    shelved = await zoo()
    with pytest.raises(InvalidRequestError) as caught:
        await grep(shelved, pattern)
    assert caught.value.param == "pattern"


@requirement("search:grep:faults")
async def test_a_pattern_that_would_take_for_ever_does_not(monkeypatch: pytest.MonkeyPatch):
    shelved = Shelved(None)
    await shelved.make()
    await shelved.put("a", "a" * 100_000 + "b")
    start = asyncio.get_running_loop().time()
    assert await grep(shelved, "(a+)+$") == []
    assert asyncio.get_running_loop().time() - start < 1
    monkeypatch.setattr(librarian, "_GREP_SECONDS", 0.0)
    with pytest.raises(InvalidRequestError) as caught:
        await grep(shelved, "zzz")
    assert caught.value.code == "search_too_long"


async def listing(shelved: Shelved, **fields: Any) -> Found:
    given = {"most": 10, **fields}
    return await shelved.library.chunks(OURS, await shelved.stores("vs-1"), **given)


@requirement("search:chunks")
async def test_chunks_are_listed_by_attributes_and_ranked_by_a_number():
    shelved = await zoo()
    assert ids(await listing(shelved)) == ["a:0", "a:1", "b:0", "c:0"]
    assert ids(await listing(shelved, most=2)) == ["a:0", "a:1"]
    assert ids(await listing(shelved, after="a:0", most=2)) == ["a:1", "b:0"]
    ranked = await listing(shelved, rank_by="year")
    assert (ids(ranked), ranked.note, ranked.chunks[0].score) == (["b:0", "c:0", "a:0", "a:1"], "", None)
    assert ids(await listing(shelved, rank_by="year", descending=False, after="a:1")) == ["c:0", "b:0"]
    english = {"operator": "eq", "key": "lang", "value": "en"}
    assert ids(await listing(shelved, rank_by="year", filters=[english])) == ["b:0", "a:0", "a:1"]
    for name in ("lang", "absent", "new"):
        plain = await listing(shelved, rank_by=name)
        assert (ids(plain)[0], "not ranked" in plain.note) == ("a:0", True)
    with pytest.raises(InvalidRequestError):
        await listing(shelved, after="nonsense")
    with pytest.raises(NotFoundError):
        await listing(shelved, after="gone:3")


@requirement("search:get")
async def test_chunks_are_got_by_their_ids_each_or_none():
    shelved = await zoo()
    rows = await shelved.stores("vs-1", "vs-2")
    found = await shelved.library.get(OURS, rows, ["d:0", "a:9", "", "a", "a:-1", "a:1", "x:0", "d:0"])
    assert [None if chunk is None else chunk.text for chunk in found] == [
        "the car has a wheel",
        None,
        None,
        None,
        None,
        "a dog barks at night",
        None,
        "the car has a wheel",
    ]


@requirement("search:facets")
async def test_facets_count_the_chunks_that_have_a_value():
    shelved = await zoo()
    await shelved.put("e", "x", of={"tags": ["red", "blue", "red"], "year": 2001, "long": "x" * 500, "deep": {"a": 1}})
    facets = await shelved.library.facets(OURS, await shelved.stores("vs-1"))
    by_name = {facet.name: facet for facet in facets}
    assert facets[0] == Facet("year", [(2001, 3), (2005.5, 1), (2010, 1)], True)
    assert by_name["lang"] == Facet("lang", [("en", 3), ("de", 1)], False)
    assert by_name["tags"] == Facet("tags", [("blue", 1), ("red", 1)], False)
    assert by_name["new"] == Facet("new", [(True, 1)], False)
    assert by_name["long"].values == [("x" * 200, 1)]
    json.dumps([facet.values for facet in facets])
    few = await shelved.library.facets(OURS, await shelved.stores("vs-1"), most_values=1, most_fields=2)
    assert [(facet.name, len(facet.values)) for facet in few] == [("year", 1), ("lang", 1)]
    english = {"operator": "eq", "key": "lang", "value": "de"}
    some = await shelved.library.facets(OURS, await shelved.stores("vs-1"), filters=[english])
    assert [facet.name for facet in some] == ["lang", "year"]


@requirement("search:facets")
async def test_facets_are_bounded():
    shelved = Shelved(None)
    await shelved.make()
    await shelved.put("a", "x", of={f"field-{number}": number for number in range(200)})
    for number in range(40):
        await shelved.put(f"f-{number}", "x", of={"name": f"v{number}"})
    facets = await shelved.library.facets(OURS, await shelved.stores(), most_values=100, most_fields=1_000)
    assert len(facets) == 64
    assert (facets[0].name, len(facets[0].values)) == ("name", 32)


@requirement("search:hybrid")
async def test_an_empty_store_and_one_that_was_emptied_give_nothing():
    shelved = Shelved(Meanings("cat", "dog"))
    await shelved.make()
    assert (await search(shelved, "cat")).chunks == []
    await shelved.put("a", "cat")
    assert ids(await search(shelved, "cat")) == ["a:0"]
    assert await shelved.store.remove_store_file(OURS, "vs-1", "a")
    assert (await search(shelved, "cat")).chunks == []
    assert await grep(shelved, "cat") == []
    assert (await listing(shelved)).chunks == []
    await shelved.store.create_vector_store(OURS, new_store("vs-9"), ROOM)
    rows = await shelved.stores("vs-9")
    await shelved.store.delete_vector_store(OURS, "vs-9")
    assert (await shelved.library.search(OURS, rows, ["cat"], most=3)).chunks == []


@requirement("search:results")
async def test_the_files_that_are_kept_in_memory_are_bounded():
    shelved = Shelved(None)
    for number in range(4):
        await shelved.make(f"vs-{number}")
        await shelved.put(f"f-{number}", "x", of={"text": "x" * 1_000}, into=f"vs-{number}")
    shelves = Shelves(shelved.store, most_bytes=14_000)
    rows = await shelved.stores("vs-0", "vs-1", "vs-2", "vs-3")
    for row in rows:
        assert len((await shelves.of(OURS, row)).files) == 1
    kept = shelves._kept  # pyright: ignore[reportPrivateUsage]
    assert [key[1] for key in kept] == ["vs-2", "vs-3"]
    first, second = await asyncio.gather(shelves.of(OURS, rows[0]), shelves.of(OURS, rows[0]))
    assert first is second
    assert await shelves.of(OURS, rows[0]) is first
    # Whoever makes stores, looks into them and removes them again, leaves nothing for ever.
    for number in range(30):
        await shelved.make(f"vs-empty-{number}")
        (row,) = await shelved.stores(f"vs-empty-{number}")
        assert not (await shelves.of(OURS, row)).files
    assert len(kept) <= 14
