"""What look-ups show of hosted items: results by `include`, in a response, among its input, and in a conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.fake_tools import Corpus
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement

ASKED = '!CALL search_corpus {"queries":["one"]}\n!CALL file_search {"queries":["two"]}\n!THEN\n!TEXT so'
TOOLS = [{"type": "search_corpus"}, {"type": "file_search", "vector_store_ids": ["vs_1"]}]
CORPUS, FILES = "search_corpus_call.results", "file_search_call.results"


@pytest.fixture(params=["memory", "sqlite"])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcess]:
    async with inprocess_app(store=request.param, tmp_path=tmp_path, tools=[Corpus()]) as app:
        yield app


async def shown(api: InProcess, path: str, **query: Any) -> Any:
    answer = await api.client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    assert "_private" not in answer.text
    assert '"_' not in answer.text
    return answer.json()


def results(response: dict[str, Any]) -> list[list[str] | None]:
    """The texts of the results of all hosted calls, those beside the output first."""
    calls = [*response["hosted_tool_calls"], *(item for item in response["output"] if "queries" in item)]
    return [None if call["results"] is None else [each["text"] for each in call["results"]] for call in calls]


@requirement("hosted:include:get")
async def test_a_response_is_looked_up_with_what_is_included(api: InProcess):
    made = await api.create(ASKED, tools=TOOLS)
    path = f"/responses/{made['id']}"
    assert results(made) == [None, None]
    assert await shown(api, path) == made
    assert await shown(api, path, include="unknown.value") == made
    assert results(await shown(api, path, include=CORPUS)) == [["found one"], None]
    assert results(await shown(api, path, **{"include[]": [CORPUS, FILES]})) == [["found one"], ["found two"]]
    assert results(await shown(api, path, include=f"{CORPUS},{FILES}")) == [["found one"], ["found two"]]
    assert await shown(api, path) == made


@requirement("hosted:include:get")
async def test_what_the_request_included_stays_shown(api: InProcess):
    made = await api.create(ASKED, tools=TOOLS, include=[FILES])
    path = f"/responses/{made['id']}"
    assert results(await shown(api, path)) == [None, ["found two"]]
    assert results(await shown(api, path, include=CORPUS)) == [["found one"], ["found two"]]


@requirement("hosted:include:get")
async def test_lists_of_items_show_results_by_include(api: InProcess):
    first = await api.create(ASKED, tools=TOOLS)
    second = await api.create("more", previous_response_id=first["id"])
    path = f"/responses/{second['id']}/input_items"
    listed = (await shown(api, path, order="asc"))["data"]
    assert [item["results"] for item in listed if "queries" in item] == [None, None]
    listed = (await shown(api, path, order="asc", include=FILES))["data"]
    assert [bool(item["results"]) for item in listed if "queries" in item] == [False, True]


@requirement("hosted:include:get")
async def test_a_conversation_shows_results_by_include(api: InProcess):
    conversation = (await api.client.post("/conversations", json={})).json()["id"]
    await api.create(ASKED, tools=TOOLS, conversation=conversation)
    path = f"/conversations/{conversation}/items"
    items = (await shown(api, path, order="asc"))["data"]
    calls = [item for item in items if "queries" in item]
    assert [call["results"] for call in calls] == [None, None]
    items = (await shown(api, path, order="asc", **{"include[]": [CORPUS, FILES]}))["data"]
    assert [len(item["results"]) for item in items if "queries" in item] == [1, 1]
    one = f"{path}/{calls[0]['id']}"
    assert (await shown(api, one))["results"] is None
    assert (await shown(api, one, include=CORPUS))["results"][0]["text"] == "found one"
