"""What hosted tools gave is told to the model the same in the turn after, in a chain, and in a conversation (B18)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.fake_tools import Corpus, Servers
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement

TOOLS: list[Any] = [
    {"type": "search_corpus"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "mcp", "server_label": "here", "server_url": "https://mcp.test", "require_approval": "never"},
    {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}},
]
ROUNDS = [
    '!REASON think\n!TEXT I look.\n!CALL search_corpus {"queries":["one"]}\n!CALL look {"queries":["two"]}',
    '!CALL file_search {"queries" : ["fail"]}\n!CALL search_corpus {"queries":["three"]}',
    '!CALL look {"queries":["four"]}',
    "!ECHO",
]
ASKED = "\n!THEN\n".join(ROUNDS)
RULES = "Be brief."


@pytest.fixture(params=["memory", "sqlite"])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcess]:
    async with inprocess_app(store=request.param, tmp_path=tmp_path, tools=[Corpus(), Servers()]) as app:
        yield app


def seen(response: dict[str, Any]) -> str:
    """The prompt that the last turn had, without the turn that it leaves open."""
    return response["output"][-1]["content"][0]["text"].rpartition("<|im_start|>")[0]


@requirement("hosted:evidence", "hosted:evidence:chain")
async def test_b18_a_chain_begins_with_the_prompt_that_the_last_round_had(api: InProcess):
    first = await api.create(ASKED, tools=TOOLS, instructions=RULES)
    live = seen(first)
    for found in ("found one", "found two", "There is no such store.", "found three", "found four"):
        assert found in live
    assert live.index("found two") < live.index("There is no such store.") < live.index("found four")
    chained = await api.create("!ECHO", previous_response_id=first["id"], tools=TOOLS, instructions=RULES)
    assert chained["output_text"].startswith(live)
    # Nothing is inherited but the history, which needs no tool to be told.
    bare = await api.create("!ECHO", previous_response_id=first["id"], instructions=RULES)
    assert "found four" in bare["output_text"]


@requirement("hosted:evidence", "hosted:evidence:chain")
async def test_b18_a_conversation_begins_with_it_too(api: InProcess):
    conversation = (await api.client.post("/conversations", json={})).json()["id"]
    first = await api.create(ASKED, tools=TOOLS, instructions=RULES, conversation=conversation)
    again = await api.create("!ECHO", tools=TOOLS, instructions=RULES, conversation=conversation)
    assert again["output_text"].startswith(seen(first))


@requirement("hosted:evidence:elsewhere", "hosted:evidence:not-kept")
async def test_a_client_that_keeps_its_own_history_tells_what_it_was_shown(api: InProcess):
    tools = TOOLS[1:3]
    asked = '!CALL file_search {"queries":["one"]}\n!THEN\n!TEXT so'
    for include, told in (
        (["file_search_call.results"], "found one"),
        ([], "[The results of this call were not kept.]"),
    ):
        first = await api.create(asked, tools=tools, include=include, store=False)
        history = [{"role": "user", "content": asked}, *first["output"]]
        echo = await api.echo(history, tools=tools)
        assert told in echo
        assert '"queries":["one"]' in echo.replace(" ", "").replace('\\"', '"')
