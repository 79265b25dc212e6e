"""Approvals of calls of MCP servers: asked for at the end of a response, and run straight at the start of the next."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.fake_tools import Servers
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement

ASKS = {"type": "mcp", "server_label": "here", "server_url": "https://mcp.test"}
CHANGE = '!CALL change {"queries":["it"]}\n!THEN\n!TEXT said once approved'
ECHO = {"type": "message", "role": "user", "content": "!ECHO"}


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture(params=["memory", "sqlite"])
async def api(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> AsyncIterator[InProcess]:
    async with inprocess_app(store=request.param, tmp_path=tmp_path, tools=[servers]) as app:
        yield app


def kinds(answer: dict[str, Any]) -> list[str]:
    return [item["type"] for item in answer["output"]]


def answer_to(asked: dict[str, Any], approve: bool = True, **more: Any) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": approve, **more}


@requirement("loop:approval")
async def test_a_call_that_needs_approval_is_not_run_and_the_response_is_completed(api: InProcess, servers: Servers):
    asked = '!CALL look {"queries":["a"]}\n' + CHANGE
    answer = await api.create(asked, tools=[ASKS])
    assert (answer["status"], kinds(answer)) == ("completed", ["mcp_list_tools", "mcp_call", "mcp_approval_request"])
    request = answer["output"][2]
    assert {**request, "id": request["id"][:5]} == {
        "id": "mcpr_",
        "type": "mcp_approval_request",
        "server_label": "here",
        "name": "change",
        "arguments": '{"queries":["it"]}',
    }
    assert servers.runs == ["look a"]


@requirement("loop:approval:events")
async def test_the_events_of_a_request_and_of_its_approved_run_stand_in_their_order(api: InProcess, servers: Servers):
    events = await api.stream(CHANGE, tools=[ASKS])
    told = [event["type"].removeprefix("response.") for event in events]
    assert told[-3:] == ["output_item.added", "output_item.done", "completed"]
    asked = events[-2]["item"]
    events = await api.stream([answer_to(asked)], previous_response_id=events[-1]["response"]["id"], tools=[ASKS])
    told = [event["type"].removeprefix("response.") for event in events]
    assert told[:12] == [
        "created",
        "in_progress",
        "output_item.added",
        "mcp_list_tools.in_progress",
        "mcp_list_tools.completed",
        "output_item.done",
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
    ]
    assert events[11]["item"]["approval_request_id"] == asked["id"]
    assert servers.runs == ["change it"]
    assert events[-1]["response"]["output_text"] == "said once approved"


@requirement("loop:approval:denied")
async def test_a_denied_call_is_told_to_the_model_and_not_run(api: InProcess, servers: Servers):
    first = await api.create(CHANGE, tools=[ASKS])
    given = [answer_to(first["output"][-1], approve=False, reason="too dear"), ECHO]
    second = await api.create(given, previous_response_id=first["id"], tools=[ASKS])
    assert servers.runs == []
    assert kinds(second) == ["mcp_list_tools", "message"]
    assert "did not approve" in second["output_text"]
    assert "too dear" in second["output_text"]


@requirement("loop:approval")
async def test_approvals_work_in_a_conversation_and_over_a_restart(tmp_path: Path):
    servers = Servers()
    async with inprocess_app(store="sqlite", tmp_path=tmp_path, tools=[servers]) as api:
        talk = (await api.client.post("/conversations", json={})).json()["id"]
        first = await api.create(CHANGE, tools=[ASKS], conversation=talk)
        chained = await api.create(CHANGE, tools=[ASKS])
    async with inprocess_app(store="sqlite", tmp_path=tmp_path, tools=[servers]) as api:
        second = await api.create([answer_to(first["output"][-1]), ECHO], conversation=talk, tools=[ASKS])
        assert servers.runs == ["change it"]
        assert second["output_text"].count("found it") == 1
        third = await api.create("!ECHO", conversation=talk, tools=[ASKS])
        assert third["output_text"].count("found it<|im_end|>") == 2
        given = [answer_to(chained["output"][-1])]
        await api.create(given, previous_response_id=chained["id"], tools=[ASKS])
        assert servers.runs == ["change it", "change it"]


@requirement("loop:approval:inline")
async def test_a_client_that_keeps_the_history_itself_sends_it_all(api: InProcess, servers: Servers):
    history: list[Any] = [{"type": "message", "role": "user", "content": CHANGE}]
    first = await api.create(history, tools=[ASKS], store=False)
    history += [*first["output"], answer_to(first["output"][-1]), ECHO]
    second = await api.create(history, tools=[ASKS], store=False)
    assert servers.runs == ["change it"]
    assert "found it" in second["output_text"]
    history += [*second["output"], ECHO]
    third = await api.create(history, tools=[ASKS], store=False)
    assert servers.runs == ["change it"]
    assert third["status"] == "completed"


@requirement("loop:approval:unknown")
async def test_an_approval_of_nothing_is_a_400_that_names_it(api: InProcess, servers: Servers):
    first = await api.create(CHANGE, tools=[ASKS])
    asked = first["output"][-1]
    unknown = {"type": "mcp_approval_response", "approval_request_id": "mcpr_none", "approve": True}
    place = "input[0].approval_request_id"
    for given, fields in (
        ([unknown], {"previous_response_id": first["id"]}),
        ([answer_to(asked)], {}),
        ([answer_to(asked)], {"tools": []}),
    ):
        error = await api.refused(400, given, **{"tools": [ASKS], **fields})
        assert (error["param"], error["code"]) == (place, "approval_request_not_found")
    error = await api.refused(400, [answer_to(asked), answer_to(asked)], previous_response_id=first["id"], tools=[ASKS])
    assert (error["param"], error["code"]) == (place, "approval_request_answered")
    second = await api.create([answer_to(asked)], previous_response_id=first["id"], tools=[ASKS])
    error = await api.refused(400, [answer_to(asked)], previous_response_id=second["id"], tools=[ASKS])
    assert error["code"] == "approval_request_answered"
    error = await api.refused(
        400, [{**answer_to(asked), "approve": "yes"}], previous_response_id=first["id"], tools=[ASKS]
    )
    assert error["param"] == "input[0].approve"
    assert servers.runs == ["change it"]


@requirement("loop:approval:unknown")
async def test_an_approval_of_another_tenants_call_is_unknown(tmp_path: Path):
    servers = Servers()
    async with inprocess_app(store="memory", tools=[servers]) as api:
        first = await api.create(CHANGE, tools=[ASKS])
        error = await api.refused(400, [answer_to(first["output"][-1]), ECHO], tools=[ASKS])
        assert error["code"] == "approval_request_not_found"


@requirement("loop:approval:gone")
async def test_an_approved_call_whose_tool_is_not_there_any_more_has_failed(api: InProcess, servers: Servers):
    first = await api.create(CHANGE, tools=[ASKS])
    given = [answer_to(first["output"][-1]), ECHO]
    second = await api.create(given, previous_response_id=first["id"])
    call = second["output"][0]
    assert (call["type"], call["status"], call["name"], call["server_label"]) == (
        "mcp_call",
        "failed",
        "change",
        "here",
    )
    assert call["approval_request_id"] == first["output"][-1]["id"]
    assert "There is no tool 'change'" in second["output_text"]
    assert servers.runs == []
