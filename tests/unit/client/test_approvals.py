"""Calls of MCP servers that an endpoint makes only if we approve, in the tool loop and by hand."""

from __future__ import annotations

import threading
from typing import Any

import httpx2
import msgspec
import pytest

from antiphon.client import Context, DriverError, approval, run_tools, run_tools_async, stream_tools
from antiphon.client.client import AsyncClient
from antiphon.client.context import ToolCall
from antiphon.client.decode import decode
from antiphon.client.toolruns import ToolLimits
from unit.client.test_tool_runs import Endpoint, asking, call, said

pytestmark = pytest.mark.requirement("driver:tools:approvals")

Item = dict[str, Any]
MCP: Item = {"type": "mcp", "server_label": "zip", "server_url": "https://zip.example/mcp"}
LISTED: Item = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "zip", "tools": []}


def asks(identity: str = "mcpr_1", name: str = "shorten") -> Item:
    arguments = '{"url":"https://a.example"}'
    return {"type": "mcp_approval_request", "id": identity, "name": name, "server_label": "zip", "arguments": arguments}


def answer(identity: str = "mcpr_1", *, approve: bool, **fields: Any) -> Item:
    return {"type": "mcp_approval_response", "approval_request_id": identity, "approve": approve, **fields}


def test_each_call_is_asked_for_and_the_answers_go_with_the_results_of_our_own_calls() -> None:
    endpoint = Endpoint([LISTED, call("add", '{"n":1}'), asks(), asks("mcpr_2", "drop")], [said("done")])
    seen: list[ToolCall] = []

    def add(n: int) -> int:
        return n + 1

    def approve(asked: ToolCall) -> bool:
        seen.append(asked)
        return asked.name == "shorten"

    with asking(endpoint) as client:
        run = run_tools(client, "go", tools=[add, MCP], approve=approve)
    assert (run.stopped, run.text) == ("answer", "done")
    assert [(asked.id, asked.name, asked.metadata["server_label"]) for asked in seen] == [
        ("mcpr_1", "shorten", "zip"),
        ("mcpr_2", "drop", "zip"),
    ]
    assert seen[0].arguments == asks()["arguments"]
    sent = endpoint.asked[1]["input"]
    assert [item for item in sent if item.get("type") == "mcp_approval_request"] == [asks(), asks("mcpr_2", "drop")]
    assert sent[-3:] == [
        {"type": "function_call_output", "call_id": "call_1", "output": "2"},
        answer(approve=True),
        answer("mcpr_2", approve=False),
    ]
    assert [outcome.output for outcome in run.outcomes] == [2, True, False]


@pytest.mark.parametrize("said_yes", [1, "yes", None, [True]])
def test_anything_but_true_is_no(said_yes: Any) -> None:
    endpoint = Endpoint([asks()], [said("done")])
    with asking(endpoint) as client:
        run_tools(client, "go", tools=[MCP], approve=lambda _: said_yes)
    assert endpoint.asked[1]["input"][-1] == answer(approve=False)


def test_what_is_raised_or_takes_too_long_is_no() -> None:
    endpoint = Endpoint([asks()], [asks("mcpr_2")], [said("done")])
    over = threading.Event()

    def approve(asked: ToolCall) -> bool:
        if asked.id == "mcpr_2":
            return over.wait(20)
        raise PermissionError("not this one")

    with asking(endpoint) as client:
        run = run_tools(client, "go", tools=[MCP], approve=approve, limits=ToolLimits(seconds=0.05))
    over.set()
    assert endpoint.asked[1]["input"][-1] == answer(approve=False, reason="not this one")
    assert endpoint.asked[2]["input"][-1] == answer("mcpr_2", approve=False)
    assert [outcome.error for outcome in run.outcomes] == ["failed", "too_slow"]


def test_streams_and_chains_do_the_same() -> None:
    endpoint = Endpoint([LISTED, asks()], [said("done")])
    with asking(endpoint, "antiphon") as client:
        run = stream_tools(client, "go", tools=[MCP], approve=lambda _: True).result()
    assert run.text == "done"
    assert endpoint.asked[1]["previous_response_id"] == "resp_0"
    assert endpoint.asked[1]["input"] == [answer(approve=True)]


async def test_an_answer_may_be_awaited_and_only_there() -> None:
    async def approve(asked: ToolCall) -> bool:
        return asked.name == "shorten"

    endpoint = Endpoint([asks()], [said("done")])
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(endpoint)) as http:
        client = AsyncClient("http://host/v1", provider="generic", model="m", http=http)
        run = await run_tools_async(client, "go", tools=[MCP], approve=approve)
    assert run.text == "done"
    assert endpoint.asked[1]["input"][-1] == answer(approve=True)
    with asking(endpoint) as waiting, pytest.raises(DriverError, match="asynchronous"):
        run_tools(waiting, "go", tools=[MCP], approve=approve)


def test_without_a_function_they_wait_and_are_answered_by_hand() -> None:
    endpoint = Endpoint([asks()], [said("done")])
    with asking(endpoint) as client:
        run = run_tools(client, "go", tools=[MCP])
        assert run.stopped == "pending"
        (request,) = run.response.approval_requests
        context = run.context.append(approval(request.id, approve=True, reason="It is ours."))
        kept = msgspec.json.decode(msgspec.json.encode(context), type=Context)
        assert client.respond(kept, tools=[MCP]).text == "done"
    assert endpoint.asked[1]["input"][-2:] == [asks(), answer(approve=True, reason="It is ours.")]


def test_a_request_that_has_no_words_is_one_all_the_same() -> None:
    (request,) = decode({"output": [{"type": "mcp_approval_request"}], "status": "completed"}).approval_requests
    assert (request.id, request.name, request.arguments) == ("", "", "{}")
