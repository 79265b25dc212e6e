"""Tools that run here beside an upstream with the same API, which runs its own: each call is where its tool is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from antiphon.protocol.ids import new_id
from antiphon.settings import ModelConfig, Settings
from support.fake_tools import Corpus, Servers
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement

LABELLED = {"type": "mcp", "server_label": "notes", "require_approval": "always"}
ELSEWHERE = {"type": "mcp", "server_label": "theirs", "server_url": "https://mcp.test"}
WEB = {"type": "web_search"}


@pytest.fixture
def corpus() -> Corpus:
    return Corpus()


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
async def api(scripted_server: str, corpus: Corpus, servers: Servers) -> AsyncIterator[InProcess]:
    model = ModelConfig(name="scripted", base_url=scripted_server, engine="responses", profile="antiphon")
    async with inprocess_app(settings=Settings(models=(model,)), tools=[corpus, servers]) as app:
        yield app


@requirement("hosted:tools:place", "hosted:approval")
async def test_a_server_of_the_operators_runs_here_with_its_approvals(api: InProcess, servers: Servers):
    first = await api.create('!CALL change {"queries":["one"]}\n!THEN\n!TEXT done', tools=[LABELLED, WEB])
    (request,) = [item for item in first["output"] if item["type"] == "mcp_approval_request"]
    answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    second = await api.create([answer], previous_response_id=first["id"], tools=[LABELLED, WEB])
    assert servers.runs == ["change one"]
    assert [item["type"] for item in second["output"]][:2] == ["mcp_list_tools", "mcp_call"]
    third = await api.create("!ECHO", previous_response_id=second["id"])
    assert "found one" in third["output_text"]


@requirement("hosted:tools:place")
async def test_a_denied_call_of_such_a_server_is_told_to_the_upstream(api: InProcess, servers: Servers):
    first = await api.create('!CALL change {"queries":["one"]}\n!THEN\n!TEXT done', tools=[LABELLED])
    (request,) = [item for item in first["output"] if item["type"] == "mcp_approval_request"]
    denial = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": False, "reason": "No."}
    asked = {"role": "user", "content": "!ECHO"}
    second = await api.create([denial, asked], previous_response_id=first["id"], tools=[LABELLED])
    assert "did not approve this call, so that it was not run. Reason: No." in second["output_text"]
    assert servers.runs == []


@requirement("hosted:tools:place")
async def test_a_search_of_a_store_of_ours_runs_here_and_a_server_by_url_is_the_upstreams(
    api: InProcess, corpus: Corpus, servers: Servers
):
    ours = {"type": "file_search", "vector_store_ids": [new_id("vs")]}
    answer = await api.create('!CALL file_search {"queries":["one"]}\n!THEN\n!TEXT done', tools=[ours])
    assert corpus.runs == ["file_search one"]
    assert [item["type"] for item in answer["output"]] == ["file_search_call", "message"]
    await api.create("!TEXT done", tools=[ELSEWHERE])
    assert servers.opened == 0
