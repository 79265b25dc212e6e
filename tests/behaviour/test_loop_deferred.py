"""Tools of MCP servers that wait for a search."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.fake_tools import Servers
from support.inprocess import InProcess, inprocess_app

pytestmark = pytest.mark.requirement("mcp:defer")

LATER = {
    "type": "mcp",
    "server_label": "here",
    "server_url": "https://mcp.test",
    "require_approval": "never",
    "defer_loading": True,
}
SEARCH = {"type": "tool_search"}


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
async def api(servers: Servers) -> AsyncIterator[InProcess]:
    async with inprocess_app(store="memory", tools=[servers]) as app:
        yield app


async def test_tools_of_a_server_wait_for_a_search_and_are_called_once_it_found_them(api: InProcess, servers: Servers):
    asked = '!CALL tool_search {"query":"look"}\n!THEN\n!CALL look {"queries":["sea"]}\n!THEN\n!ECHO'
    answer = await api.create(asked, tools=[LATER, SEARCH])
    assert [item["type"] for item in answer["output"]] == [
        "mcp_list_tools",
        "tool_search_call",
        "tool_search_output",
        "mcp_call",
        "message",
    ]
    (found,) = answer["output"][2]["tools"]
    assert (found["type"], found["server_label"], [tool["name"] for tool in found["tools"]]) == (
        "mcp",
        "here",
        ["look"],
    )
    assert (answer["output"][3]["name"], answer["output"][3]["status"]) == ("look", "completed")
    assert servers.runs == ["look sea"]
    assert "These tools can be called now: look" in answer["output_text"]
    again = await api.create(
        '!CALL look {"queries":["land"]}\n!THEN\n!TEXT x', tools=[LATER, SEARCH], previous_response_id=answer["id"]
    )
    assert [item["type"] for item in again["output"]] == ["mcp_list_tools", "mcp_call", "message"]
    assert servers.runs == ["look sea", "look land"]


async def test_without_a_search_they_are_told_from_the_start(api: InProcess, servers: Servers):
    await api.create('!CALL look {"queries":["sea"]}\n!THEN\n!TEXT x', tools=[LATER])
    assert servers.runs == ["look sea"]
