"""The tools over documents, on a library that says what it was asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.corpus.library import Facet
from antiphon.errors import APIError, InvalidRequestError
from antiphon.prompt.hosted import hosted_call, hosted_result
from antiphon.protocol.hosted import project
from antiphon.protocol.request import decode_create_response
from antiphon.store.base import Scope
from antiphon.tools.base import HostedCall, HostedTool, Outcome, Session
from antiphon.tools.corpus.provider import CorpusProvider
from antiphon.tools.corpus.results import clipped
from antiphon.tools.prune import PruneProvider
from support.plain_library import FakeLibrary, chunk


def session(tenant: str = "t", **request: Any) -> Session:
    """A session of a request with these fields."""
    body = json.dumps({"model": "m", "input": "hi", **request}).encode()
    return Session(Scope(tenant), "resp_1", decode_create_response(body))


async def opened(library: FakeLibrary, *tools: dict[str, Any], tenant: str = "t") -> tuple[list[HostedTool], Session]:
    """The tools of these entries, checked as a request's are."""
    provider = CorpusProvider(library)
    here = session(tenant, tools=list(tools))
    declared = [tool for tool in here.request.tools if isinstance(tool, dict)]
    provider.check(declared, here.request)
    return list((await provider.open(declared, here)).tools), here


async def call(tool: HostedTool, here: Session, characters: int = 100_000, **arguments: Any) -> dict[str, Any]:
    """The item of a call, run and settled, and part of the evidence from now on."""
    made = HostedCall("call_1", "item_1", tool.function.name, json.dumps(arguments), arguments, characters)
    item = tool.item(made)
    try:
        outcome = await tool.run(made, here)
    except APIError as error:
        outcome = tool.failed(made, error)
    outcome = tool.settle(made, outcome, here)
    body = {**item, **outcome.fields}
    here.evidence.append(body)
    return body


@pytest.mark.requirement("corpus-tools:note")
async def test_what_a_search_did_without_is_told_in_its_item() -> None:
    library = FakeLibrary([chunk(0, "Turn left.")])
    entry = {"vector_store_ids": ["vs_guide"]}
    tools, here = await opened(
        library,
        {"type": "file_search", **entry},
        {"type": "file_search", **entry},
        {"type": "search_corpus", "store_identifiers": ["guide"]},
    )
    for tool in tools:
        assert "note" not in await call(tool, here, queries=["q"])
    here.evidence.clear()
    library.note = "Only words were searched for."
    for tool in tools:
        body = await call(tool, here, queries=["q"])
        assert (body["note"], project(body)["note"]) == (library.note, library.note)
        assert hosted_result(body).endswith("Turn left.\n\nNote: Only words were searched for.")
        assert json.loads(hosted_call(body).arguments) == {"queries": ["q"]}


@pytest.mark.requirement("corpus-tools:file-search", "corpus-tools:citations")
async def test_file_search_gives_the_items_of_openai_with_numbered_sources() -> None:
    library = FakeLibrary([chunk(0, "Turn left.", score=0.5, heading="Ways", lang="en"), chunk(3, "Go.", score=0.25)])
    (tool,), here = await opened(
        library,
        {"type": "file_search", "vector_store_ids": ["vs_guide"], "max_num_results": 2, "filters": None},
        {"type": "file_search", "vector_store_ids": ["vs_guide"], "max_num_results": 1},
    )

    assert tool.function.name == "file_search"
    assert tool.function.parameters is not None
    assert list(tool.function.parameters["properties"]) == ["queries"]
    assert tool.item(HostedCall("c", "i", "file_search", "", None)) == {
        "type": "file_search_call",
        "queries": [],
        "results": None,
    }
    body = await call(tool, here, queries=["where to"])
    assert body["queries"] == ["where to"]
    assert body["status"] == "completed"
    assert body["results"][0] == {
        "file_id": "file-a",
        "filename": "file-a.md",
        "score": 0.5,
        "text": "Ways\n\nTurn left.",
        "attributes": {"lang": "en"},
        "vector_store_id": "vs_guide",
        "_chunk": 0,
        "_number": 1,
    }
    assert [result["_number"] for result in body["results"]] == [1, 2]
    assert [kind for kind, _ in library.asked] == ["search", "search"]
    again = await call(tool, here, query="where")
    assert [result["_number"] for result in again["results"]] == [1, 2]
    assert here.sources[2] == {
        "type": "file_citation",
        "file_id": "file-a",
        "filename": "file-a.md",
        "chunk_id": "file-a:3",
        "store_id": "vs_guide",
    }
    assert tool.sources(body) == here.sources


@pytest.mark.requirement("corpus-tools:file-search")
async def test_the_ranking_options_of_file_search_are_heeded() -> None:
    library = FakeLibrary([chunk(0, "a", score=1.0)])
    (tool,), here = await opened(
        library,
        {
            "type": "file_search",
            "vector_store_ids": ["guide"],
            "ranking_options": {
                "ranker": "none",
                "score_threshold": 0.25,
                "hybrid_search": {"embedding_weight": 2, "text_weight": 0.5},
            },
        },
    )
    await call(tool, here, queries=["a"])
    ranking = library.asked[0][1]["ranking"]
    assert (ranking.rerank, ranking.threshold, ranking.vector_weight, ranking.text_weight) == (False, 0.25, 2.0, 0.5)


@pytest.mark.requirement("corpus-tools:search", "corpus-tools:citations")
async def test_a_corpus_search_gives_ids_scores_and_metadata_and_no_numbers_unless_it_cites() -> None:
    library = FakeLibrary([chunk(1, "Turn left.", score=0.123456, heading="Ways", year=2026)])
    (tool,), here = await opened(library, {"type": "search_corpus", "store_identifiers": ["guide"]})
    body = await call(tool, here, queries=["left"], metadata_filters=[], filter_mode="all")
    assert body == {
        "type": "search_corpus_call",
        "queries": ["left"],
        "metadata_filters": [],
        "filter_mode": "all",
        "store": None,
        "status": "completed",
        "results": [
            {
                "chunk_id": "file-a:1",
                "document_id": "file-a",
                "chunk_index": 1,
                "filename": "file-a.md",
                "file_title": "file-a.md",
                "mime_type": "text/markdown",
                "external_id": "file-a/x",
                "search_score": 0.1235,
                "text": "Turn left.",
                "context": "Ways",
                "metadata": {"year": 2026},
                "_store": "vs_guide",
            }
        ],
    }
    assert library.asked[0][1]["most"] == 5
    (citing,), here = await opened(
        library, {"type": "search_corpus", "store_identifiers": ["guide"], "citations": True}
    )
    assert "<cite" in (citing.function.description or "")
    body = await call(citing, here, queries=["left"])
    assert [result["_number"] for result in body["results"]] == [1]


@pytest.mark.requirement("corpus-tools:grep", "corpus-tools:seen")
async def test_what_a_run_has_given_is_referred_to_and_left_out_by_a_search() -> None:
    library = FakeLibrary([chunk(0, "alpha", score=0.5), chunk(1, "alphabet", score=0.4)])
    scope = {"store_identifiers": ["guide"]}
    (search, grep), here = await opened(
        library, {"type": "search_corpus", **scope, "max_num_results": 1}, {"type": "grep", **scope}
    )
    first = await call(search, here, queries=["alpha"])
    assert [result["chunk_id"] for result in first["results"]] == ["file-a:0"]
    found = await call(grep, here, pattern="alpha", case_sensitive=True)
    assert (found["pattern"], found["case_sensitive"], found["targets"]) == ("alpha", True, None)
    assert found["results"][0] == {
        "chunk_id": "file-a:0",
        "document_id": "file-a",
        "chunk_index": 0,
        "filename": "file-a.md",
        "_store": "vs_guide",
        "seen": True,
    }
    assert found["results"][1]["text"] == "alphabet"
    assert found["results"][1]["matches"] == 1
    assert (await call(search, here, queries=["alpha"]))["results"] == []
    assert (await call(grep, here, pattern="alpha", targets=["generated"]))["results"] == []


@pytest.mark.requirement("corpus-tools:seen")
async def test_a_search_beside_another_of_the_same_turn_gives_nothing_twice() -> None:
    library = FakeLibrary([chunk(0, "alpha", score=0.5)])
    (tool,), here = await opened(library, {"type": "search_corpus", "store_identifiers": ["guide"]})
    made = HostedCall("c", "i", "search_corpus", "", {"queries": ["a"]})
    both = [await tool.run(made, here), await tool.run(made, here)]
    settled: list[Outcome] = []
    for outcome in both:
        settled.append(tool.settle(made, outcome, here))
        here.evidence.append(settled[-1].fields)
    assert [len(outcome.fields["results"]) for outcome in settled] == [1, 0]


@pytest.mark.requirement("corpus-tools:seen")
async def test_what_an_earlier_response_was_given_is_given_again() -> None:
    library = FakeLibrary([chunk(0, "alpha", score=0.5)])
    (tool,), here = await opened(library, {"type": "search_corpus", "store_identifiers": ["guide"]})
    await call(tool, here, queries=["alpha"])
    here.before = len(here.evidence)
    assert len((await call(tool, here, queries=["alpha"]))["results"]) == 1


@pytest.mark.requirement("corpus-tools:filter-chunks")
async def test_a_listing_says_where_it_cannot_rank_by_a_field() -> None:
    fields = [Facet("year", [(2026, 2)], True), Facet("lang", [("en", 2)], False)]
    library = FakeLibrary([chunk(0, "a", year=2026)], fields)
    (tool,), here = await opened(library, {"type": "filter_chunks", "store_identifiers": ["guide"]})
    ranked = await call(tool, here, rank_by="year", direction="asc", max_num_results=99)
    assert library.asked[-1] == ("chunks", {"most": 30, "filters": [], "rank_by": "year", "down": False})
    assert "rank_by_applied" not in ranked
    assert "search_score" not in ranked["results"][0]
    unranked = await call(tool, here, rank_by="lang")
    assert library.asked[-1][1]["rank_by"] is None
    assert library.asked[-1][1]["most"] == 10
    assert unranked["rank_by_applied"] is False


@pytest.mark.requirement("corpus-tools:inspect-metadata")
async def test_the_fields_of_the_metadata_are_told_with_their_values() -> None:
    library = FakeLibrary(facets=[Facet("year", [(2026, 2), (2025, 1)], True), Facet("lang", [("en", 3)], False)])
    (tool,), here = await opened(
        library, {"type": "inspect_metadata", "store_identifiers": ["guide"], "max_values_per_field": 2}
    )
    body = await call(tool, here)
    assert body["facets"] == [
        {"field": "year", "values": [{"value": 2026, "count": 2}, {"value": 2025, "count": 1}]},
        {"field": "lang", "values": [{"value": "en", "count": 3}]},
    ]
    assert body["rankable_fields"] == ["year"]
    assert library.asked[0][1]["most_values"] == 2


@pytest.mark.requirement("corpus-tools:get-chunks", "corpus-tools:citations")
async def test_chunks_are_read_by_their_ids_and_those_that_are_not_there_have_errors() -> None:
    library = FakeLibrary([chunk(0, "alpha"), chunk(1, "beta")])
    (tool,), here = await opened(library, {"type": "get_chunks", "store_identifiers": ["guide"], "citations": True})
    body = await call(tool, here, chunk_ids=["file-a:1", "file-b:0", "file-a:1"])
    assert body["chunk_ids"] == ["file-a:1", "file-b:0", "file-a:1"]
    assert [result["chunk_id"] for result in body["results"]] == ["file-a:1", "file-b:0"]
    assert (body["results"][0]["text"], body["results"][0]["_number"]) == ("beta", 1)
    assert body["results"][1]["error"]["code"] == "not_found"
    many = await call(tool, here, chunk_ids=[f"file-a:{index}" for index in range(21)])
    assert (many["status"], many["error"]["code"]) == ("failed", "invalid_arguments")


@pytest.mark.requirement("corpus-tools:get-chunks")
async def test_chunks_for_which_there_is_no_room_say_so() -> None:
    library = FakeLibrary([chunk(index, "x" * 5_000) for index in range(4)])
    (tool,), here = await opened(library, {"type": "get_chunks", "store_identifiers": ["guide"]})
    body = await call(tool, here, 5_000, chunk_ids=[f"file-a:{index}" for index in range(4)])
    assert ["error" in result for result in body["results"]] == [False, False, True, True]
    assert body["results"][2]["error"]["code"] == "no_room"


@pytest.mark.requirement("corpus-tools:list-stores", "corpus-tools:scope")
async def test_stores_are_listed_and_calls_name_them_where_the_request_does_not() -> None:
    library = FakeLibrary([chunk(0, "alpha", score=0.5)])
    (search, listing), here = await opened(library, {"type": "search_corpus"}, {"type": "list_stores", "limit": 1})
    assert search.function.parameters is not None
    assert search.function.parameters["required"] == ["queries", "store"]
    body = await call(listing, here)
    assert body["stores"] == [{"name": "guide", "description": "How to", "connectors": []}]
    assert (body["has_more"], body["next_cursor"]) == (True, "vs_guide")
    rest = await call(listing, here, cursor="vs_guide")
    assert (rest["cursor"], rest["has_more"], rest["next_cursor"]) == ("vs_guide", False, None)
    assert [given["after"] for kind, given in library.asked if kind == "listed"] == ["", "vs_guide"]
    assert (await call(search, here, queries=["a"], store="guide"))["status"] == "completed"
    assert (await call(search, here, queries=["a"]))["error"]["code"] == "invalid_arguments"


@pytest.mark.requirement("corpus-tools:scope")
@pytest.mark.parametrize(
    "tools",
    [
        [{"type": "search_corpus", "store_identifiers": ["a"]}, {"type": "grep", "store_identifiers": ["b"]}],
        [{"type": "search_corpus", "store_identifiers": ["a"]}, {"type": "grep"}, {"type": "list_stores"}],
        [{"type": "search_corpus"}],
        [{"type": "grep", "store_identifiers": ["a"]}, {"type": "grep", "store_identifiers": ["a"]}],
    ],
)
async def test_tools_of_several_scopes_are_refused(tools: Sequence[dict[str, Any]]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await opened(FakeLibrary(), *tools)
    assert caught.value.param == "tools"


@pytest.mark.requirement("corpus-tools:filters")
async def test_the_filters_of_an_entry_hold_beside_those_of_the_model() -> None:
    library = FakeLibrary([chunk(0, "alpha", score=0.5)])
    own = {"all": [{"key": "lang", "operator": "eq", "value": "en"}]}
    (tool,), here = await opened(
        library,
        {"type": "search_corpus", "store_identifiers": ["guide"], "filters": own, "score_threshold": 0.3},
    )
    assert "lang" not in json.dumps(tool.function.parameters)
    condition = {"key": "lang", "operator": "eq", "value": "de"}
    await call(tool, here, queries=["a"], metadata_filters=[condition], filter_mode="any", score_threshold=0.0)
    asked = library.asked[0][1]
    assert asked["filters"] == [own, {"any": [condition]}]
    assert asked["ranking"].threshold == 0.3


@pytest.mark.requirement("corpus-tools:unknown-store")
@pytest.mark.parametrize("tenant, store", [("t", "gone"), ("other", "guide")])
async def test_a_store_that_is_not_there_gives_a_failed_item(tenant: str, store: str) -> None:
    library = FakeLibrary([chunk(0, "alpha")])
    tools, here = await opened(
        library,
        {"type": "file_search", "vector_store_ids": [store]},
        {"type": "search_corpus", "store_identifiers": [store]},
        {"type": "inspect_metadata", "store_identifiers": [store]},
        tenant=tenant,
    )
    for tool in tools:
        body = await call(tool, here, queries=["a"])
        assert body["status"] == "failed"
        assert body["error"]["code"] == "permission_denied"
        assert body.get("results") is None


@pytest.mark.requirement("corpus-tools:arguments")
@pytest.mark.parametrize(
    "kind, arguments",
    [
        ("search_corpus", {}),
        ("search_corpus", {"queries": []}),
        ("search_corpus", {"queries": [1]}),
        ("search_corpus", {"queries": ["a"] * 9}),
        ("search_corpus", {"queries": ["a" * 5_000]}),
        ("search_corpus", {"queries": ["a"], "metadata_filters": "x"}),
        ("search_corpus", {"queries": ["a"], "metadata_filters": [{}], "filter_mode": "none"}),
        ("grep", {}),
        ("grep", {"pattern": 7}),
        ("filter_chunks", {"rank_by": 1}),
        ("filter_chunks", {"max_num_results": 0}),
        ("get_chunks", {"chunk_ids": {}}),
        ("list_stores", {"cursor": 1}),
    ],
)
async def test_arguments_that_cannot_be_used_say_why(kind: str, arguments: dict[str, Any]) -> None:
    (tool,), here = await opened(FakeLibrary(), {"type": kind, "store_identifiers": ["guide"]})
    body = await call(tool, here, **arguments)
    assert body["status"] == "failed"
    assert body["error"]["code"] == "invalid_arguments"
    assert "'" in body["error"]["message"]


@pytest.mark.requirement("corpus-tools:arguments")
async def test_arguments_that_are_no_object_give_a_failed_item() -> None:
    (tool,), here = await opened(FakeLibrary(), {"type": "search_corpus", "store_identifiers": ["guide"]})
    made = HostedCall("c", "i", "search_corpus", "[]", None)
    assert tool.item(made)["queries"] is None
    with pytest.raises(InvalidRequestError):
        await tool.run(made, here)


@pytest.mark.requirement("corpus-tools:aliases")
@pytest.mark.parametrize("alias", ["store_search", "store_grep", "store_list_chunks", "store_metadata_facets"])
async def test_the_older_names_of_corpus_tools_work(alias: str) -> None:
    library = FakeLibrary([chunk(0, "alpha", score=0.5)])
    (tool,), here = await opened(library, {"type": alias, "store_identifiers": ["guide"]})
    assert tool.function.name == alias
    body = await call(tool, here, queries=["a"], pattern="a")
    assert (body["type"], body["status"]) == (f"{alias}_call", "completed")


@pytest.mark.requirement("corpus-tools:entries")
@pytest.mark.parametrize(
    "entry",
    [
        {"type": "file_search", "vector_store_ids": "vs"},
        {"type": "file_search", "vector_store_ids": [], "max_num_results": 51},
        {"type": "file_search", "ranking_options": {"score_threshold": 2}},
        {"type": "file_search", "filters": []},
        {"type": "search_corpus", "store_identifiers": []},
        {"type": "search_corpus", "store_identifiers": [""]},
        {"type": "search_corpus", "store_identifiers": ["a"], "max_num_results": 31},
        {"type": "search_corpus", "store_identifiers": ["a"] * 17},
        {"type": "inspect_metadata", "store_identifiers": ["a"], "max_values_per_field": 0},
        {"type": "list_stores", "limit": 101},
    ],
)
async def test_fields_out_of_range_are_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await opened(FakeLibrary(), entry)
    assert caught.value.param is not None
    assert caught.value.param.startswith("tools")


@pytest.mark.requirement("corpus-tools:forced")
async def test_get_chunks_cannot_be_forced() -> None:
    here = session(tools=[{"type": "get_chunks", "store_identifiers": ["guide"]}], tool_choice={"type": "get_chunks"})
    declared = [tool for tool in here.request.tools if isinstance(tool, dict)]
    with pytest.raises(InvalidRequestError) as caught:
        CorpusProvider(FakeLibrary()).check(declared, here.request)
    assert caught.value.param == "tool_choice"


@pytest.mark.requirement("corpus-tools:payload")
@pytest.mark.parametrize(
    "lengths, characters, kept",
    [
        ([100, 100], 10_000, [100, 100]),
        ([9_000, 100, 9_000], 12_000, [4_000, 100, 7_900]),
        ([9_000, 9_000], 40_000, [8_000, 8_000]),
        ([5_000] * 5, 5_000, [2_048, 2_048]),
        ([5_000], 1_000, [1_000]),
    ],
)
def test_results_share_what_the_model_may_be_given(lengths: list[int], characters: int, kept: list[int]) -> None:
    results = clipped([{"text": "x" * length} for length in lengths], characters, 8_000)
    assert [len(result["text"]) for result in results] == kept
    assert sum(kept) <= characters


@pytest.mark.requirement("corpus-tools:payload")
async def test_a_call_gives_no_more_than_it_may() -> None:
    library = FakeLibrary([chunk(index, "x" * 9_000, score=0.5) for index in range(5)])
    (tool,), here = await opened(library, {"type": "file_search", "vector_store_ids": ["guide"]})
    body = await call(tool, here, 20_000, queries=["x"])
    assert len(body["results"]) == 5
    assert sum(len(result["text"]) for result in body["results"]) <= 20_000


@pytest.mark.requirement("corpus-tools:prune")
async def test_the_model_can_prune_where_the_request_declares_it() -> None:
    provider = PruneProvider()
    assert not provider.wanted(session().request)
    (tool,) = (await provider.open([], session())).tools
    assert tool.function.name == "prune_context"
    here = session()
    body = await call(tool, here, ids=["file-a:0", "file-a:0", "call_7"])
    assert body == {"type": "prune_context_call", "ids": ["file-a:0", "call_7"], "status": "completed"}
    assert (await call(tool, here, ids=[]))["status"] == "failed"
