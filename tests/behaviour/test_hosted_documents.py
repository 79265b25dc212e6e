"""Hosted tools over real documents: uploaded, ingested, searched in the loop of the scripted model, and cited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from antiphon.settings import Settings
from support.documents import ingested, uploaded
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement

KEYS = (
    "# Keys\n\n## Making\n\n"
    + "The porter makes keys and writes them down. " * 25
    + "\n\n## Revoking\n\nA revoked key is refused in two seconds.\n"
)
HOURS = "# Hours\n\nThe reading room opens at nine, but not for a lost key.\n"
SEARCHED, LISTED = "search_corpus_call.results", "filter_chunks_call.results"


class Handbook(Struct):
    """The application and a store named `handbook` of two documents, of the years 2020 and 2024."""

    api: InProcess
    store: str
    keys: str
    hours: str


@pytest.fixture(params=["memory", "sqlite"])
async def book(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Handbook]:
    settings = Settings(document_embedding="none")
    async with inprocess_app(store=request.param, tmp_path=tmp_path, settings=settings) as api:
        reply = await api.client.post("/vector_stores", json={"name": "handbook"})
        store = reply.json()["id"]
        files = [await uploaded(api, KEYS, "keys.md"), await uploaded(api, HOURS, "hours.md")]
        for file, year in zip(files, (2020, 2024), strict=True):
            body = {"file_id": file, "attributes": {"year": year}}
            reply = await api.client.post(f"/vector_stores/{store}/files", json=body)
            assert reply.status_code == 200, reply.text
        await ingested(api, store)
        yield Handbook(api, store, *files)


def tool(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "store_identifiers": ["handbook"], **fields}


def found(call: dict[str, Any]) -> list[tuple[str, int]]:
    """The documents and chunks of a call's results."""
    return [(result["document_id"], result["chunk_index"]) for result in call["results"]]


async def chunk(book: Handbook, file: str, index: int) -> str:
    """The text of a chunk, read over HTTP."""
    path = f"/stores/handbook/files/{file}?return_chunks={index}"
    (one,) = (await book.api.client.get(path)).json()["chunks"]
    return one["text"]


@requirement("corpus-tools:file-search", "corpus-tools:citations", "hosted:citations")
async def test_b15_a_citation_of_file_search_is_of_the_chunk_that_says_so(book: Handbook):
    asked = (
        '!CALL file_search {"queries":["revoked","lost"]}\n!THEN\n!TEXT Two seconds.<cite i="1"/> Nine.<cite i="2"/>'
    )
    tools = [{"type": "file_search", "vector_store_ids": [book.store]}]
    choice = {"type": "file_search"}
    made = await book.api.create(asked, tools=tools, tool_choice=choice, include=["file_search_call.results"])
    call, message = made["output"]
    assert (call["type"], call["status"], call["queries"]) == ("file_search_call", "completed", ["revoked", "lost"])
    part = message["content"][0]
    assert part["text"] == "Two seconds. Nine."
    texts: list[str] = []
    for cited, result in zip(part["annotations"], call["results"], strict=False):
        file, _, index = cited["chunk_id"].rpartition(":")
        assert (cited["type"], cited["file_id"], cited["store_id"]) == ("file_citation", file, book.store)
        assert (cited["file_id"], cited["filename"]) == (result["file_id"], result["filename"])
        texts.append(await chunk(book, file, int(index)))
        assert texts[-1] in result["text"]
    assert sorted("revoked" in text for text in texts) == [False, True]
    assert [cited["index"] for cited in part["annotations"]] == [12, 18]


@requirement("loop:hosted", "hosted:beside")
async def test_b2_b26_tools_of_a_store_stand_beside_the_output_streamed_as_whole(book: Handbook):
    asked = (
        '!CALL search_corpus {"queries":["revoked"]}\n!CALL grep {"pattern":"n[io]ne"}\n!THEN\n'
        '!CALL filter_chunks {"rank_by":"year"}\n!CALL inspect_metadata {}\n!THEN\n!TEXT Done.'
    )
    tools = [tool("search_corpus"), tool("grep"), tool("filter_chunks"), tool("inspect_metadata")]
    fields = {"tools": tools, "include": [SEARCHED, "grep_call.results", LISTED]}
    made = await book.api.create(asked, **fields)
    searched, grepped, listed, inspected = made["hosted_tool_calls"]
    assert [item["type"] for item in made["output"]] == ["message"]
    assert found(searched)[0] == (book.keys, 1)
    assert found(grepped) == [(book.hours, 0)]
    assert found(listed)[0] == (book.hours, 0)
    assert [result.get("seen") for result in listed["results"]] == [True, None, True]
    (year,) = inspected["facets"]
    assert (year["field"], inspected["rankable_fields"]) == ("year", ["year"])
    assert [(each["value"], each["count"]) for each in year["values"]] == [(2020, 2), (2024, 1)]
    events = await book.api.stream(asked, **fields)
    added = [event for event in events if event["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == [0, 1, 2, 3, 4]
    last = events[-1]["response"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert last["hosted_tool_calls"] == done[:4]
    assert [call["results"] for call in done[:3]] == [call["results"] for call in made["hosted_tool_calls"][:3]]
    assert last["output"] == done[4:]


@requirement("corpus-tools:scope", "corpus-tools:list-stores", "corpus-tools:unknown-store")
async def test_b10_without_stores_in_the_request_each_call_names_one_and_an_unknown_one_fails(book: Handbook):
    asked = (
        '!CALL list_stores {}\n!CALL search_corpus {"queries":["revoked"],"store":"handbook"}\n'
        '!CALL search_corpus {"queries":["revoked"],"store":"attic"}\n!CALL search_corpus {"queries":["revoked"]}\n'
        "!THEN\n!TEXT Done."
    )
    tools = [{"type": "search_corpus"}, {"type": "list_stores"}]
    made = await book.api.create(asked, tools=tools, include=[SEARCHED])
    stores, searched, attic, nowhere = made["hosted_tool_calls"]
    assert [store["name"] for store in stores["stores"]] == ["handbook"]
    assert found(searched)[0] == (book.keys, 1)
    assert [call["status"] for call in (attic, nowhere)] == ["failed", "failed"]
    assert [call["error"]["code"] for call in (attic, nowhere)] == ["permission_denied", "invalid_arguments"]
    assert (made["status"], made["output_text"]) == ("completed", "Done.")


@requirement("corpus-tools:scope")
@pytest.mark.parametrize(
    "tools",
    [
        [{"type": "search_corpus"}],
        [tool("search_corpus"), {"type": "grep", "store_identifiers": ["attic"]}],
        [tool("search_corpus"), {"type": "grep"}, {"type": "list_stores"}],
    ],
    ids=["no store and no list", "two scopes", "one with and one without"],
)
async def test_b10_tools_without_one_scope_are_a_400(book: Handbook, tools: list[dict[str, Any]]):
    assert (await book.api.refused(400, "x", tools=tools))["param"] == "tools"


@requirement("corpus-tools:filters")
async def test_b11_what_an_entry_filters_is_not_told_to_the_model_and_not_lifted_by_it(book: Handbook):
    old = {"all": [{"key": "year", "operator": "lt", "value": 2022}]}
    tools = [tool("search_corpus", filters=old, max_num_results=30), tool("filter_chunks", filters=old)]
    wider = '{"any":[{"key":"year","operator":"gte","value":0}]}'
    newer = '[{"key":"year","operator":"gte","value":2022}]'
    asked = (
        '!CALL search_corpus {"queries":["key"]}\n!THEN\n'
        f'!CALL search_corpus {{"queries":["key","nine"],"metadata_filters":{newer}}}\n'
        f'!CALL filter_chunks {{"metadata_filters":{wider}}}\n!THEN\n!TEXT Done.'
    )
    made = await book.api.create(asked, tools=tools, include=[SEARCHED, LISTED])
    first, narrowed, listed = made["hosted_tool_calls"]
    assert {file for file, _ in found(first)} == {book.keys}
    assert not narrowed["results"]
    assert {result["document_id"] for result in listed["results"] or ()} <= {book.keys}
    assert "2022" not in await book.api.echo("x", tools=tools)


@requirement("loop:chain", "hosted:evidence:chain")
async def test_b18_a_later_turn_has_what_was_found_and_cites_it_without_a_search(book: Handbook):
    tools = [tool("search_corpus", citations=True)]
    first = await book.api.create('!CALL search_corpus {"queries":["revoked"]}\n!THEN\n!TEXT Found.', tools=tools)
    again = '!TEXT In two seconds.<cite i="1"/>'
    second = await book.api.create(again, tools=tools, previous_response_id=first["id"])
    assert second["hosted_tool_calls"] == []
    (cited,) = second["output"][0]["content"][0]["annotations"]
    file, _, index = cited["chunk_id"].rpartition(":")
    assert "revoked key" in await chunk(book, file, int(index))
    seen = await book.api.create("!ECHO", previous_response_id=second["id"])
    assert "A revoked key is refused in two seconds." in seen["output_text"]


@requirement("loop:budget", "subset:M23")
async def test_b5_a_budget_of_no_call_is_a_400(book: Handbook):
    error = await book.api.refused(400, "x", tools=[tool("grep")], max_tool_calls=0)
    assert (error["param"], error["code"]) == ("max_tool_calls", "integer_below_min_value")


@requirement("corpus-tools:file-search", "loop:choice")
@pytest.mark.parametrize("kind", ["file_search", "search_corpus", "grep", "filter_chunks", "inspect_metadata"])
async def test_b7_the_least_that_a_forced_call_may_say_is_a_call_that_runs(book: Handbook, kind: str):
    entry = {"type": kind, "vector_store_ids": [book.store]} if kind == "file_search" else tool(kind)
    made = await book.api.create("Anything.", tools=[entry], tool_choice={"type": kind})
    (call,) = made["hosted_tool_calls"] if kind != "file_search" else made["output"][:1]
    assert (call["type"], call["status"], call.get("error")) == (f"{kind}_call", "completed", None)


@requirement("loop:budget", "corpus-tools:arguments")
async def test_b3_b5_errors_of_corpus_calls_have_one_of_three_codes(book: Handbook):
    calls = [f'!CALL grep {{"pattern":"key{number}"}}' for number in range(9)]
    asked = "\n".join([*calls, "!THEN", "!CALL grep not json", '!CALL grep {"pattern":"("}', "!THEN", "!TEXT Done."])
    made = await book.api.create(asked, tools=[tool("grep")])
    ran = made["hosted_tool_calls"]
    assert [call["status"] for call in ran] == ["completed"] * 8 + ["failed"] * 3
    assert {call["error"]["code"] for call in ran[8:]} <= {"permission_denied", "invalid_arguments", "server_error"}
    assert made["output_text"] == "Done."
