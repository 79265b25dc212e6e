"""Hosted MCP tools and web search by the Agents SDK and pydantic-ai: their approvals, streams and histories."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import agents
import httpx2
import openai
import pytest
from agents import Agent, HostedMCPTool, OpenAIResponsesModel, Runner, WebSearchTool
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticModel
from pydantic_ai.native_tools import MCPServerTool
from pydantic_ai.providers.openai import OpenAIProvider

from antiphon.http.app import create_app
from antiphon.settings import Settings
from support.inprocess import BASE_URL, inprocess_app
from support.mcp_stub import McpStub, mcp_stub

pytest.importorskip("mcp")

agents.set_tracing_disabled(True)
requirement = pytest.mark.requirement

CALL = '!CALL echo {"text":"a"}\n!THEN\n!TEXT done'


@pytest.fixture
async def stub() -> AsyncIterator[McpStub]:
    async with mcp_stub() as found:
        yield found


@pytest.fixture
async def client() -> AsyncIterator[openai.AsyncOpenAI]:
    async with inprocess_app(settings=Settings(allow_outbound=("127.0.0.1",))) as api:
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(create_app(api.service)))
        async with openai.AsyncOpenAI(base_url=BASE_URL, api_key="k", max_retries=0, http_client=http) as sdk:
            yield sdk


def hosted(stub: McpStub, approval: str, decide: Any = None) -> HostedMCPTool:
    config: Any = {"type": "mcp", "server_label": "stub", "server_url": stub.url, "require_approval": approval}
    return HostedMCPTool(tool_config=config, on_approval_request=decide)


def agent(client: openai.AsyncOpenAI, *tools: Any) -> Agent[Any]:
    return Agent(name="A", model=OpenAIResponsesModel(model="scripted", openai_client=client), tools=list(tools))


@requirement("client:agents:mcp")
@pytest.mark.parametrize("streamed", [False, True])
async def test_the_agents_sdk_runs_a_hosted_tool(client: openai.AsyncOpenAI, stub: McpStub, streamed: bool) -> None:
    asking = agent(client, hosted(stub, "never"))
    if streamed:
        running = Runner.run_streamed(asking, CALL)
        async for _ in running.stream_events():
            pass
        result: Any = running
    else:
        result = await Runner.run(asking, CALL)
    assert result.final_output == "done"
    assert stub.methods().count("tools/call") == 1
    # The whole history goes back as items, with the list among them.
    again = await Runner.run(asking, [*result.to_input_list(), {"role": "user", "content": "!TEXT again"}])
    assert again.final_output == "again"
    assert stub.methods().count("tools/list") == 1


@requirement("client:agents:mcp")
@pytest.mark.parametrize("approve", [True, False])
async def test_the_agents_sdk_decides_on_a_call(client: openai.AsyncOpenAI, stub: McpStub, approve: bool) -> None:
    asked: list[Any] = []

    def decide(request: Any) -> Any:
        asked.append((request.data.name, request.data.arguments))
        return {"approve": approve, "reason": "because"}

    await Runner.run(agent(client, hosted(stub, "always", decide)), CALL, max_turns=3)
    assert asked[0] == ("echo", '{"text":"a"}')
    assert stub.methods().count("tools/call") == (1 if approve else 0)


@requirement("client:agents:mcp")
async def test_the_agents_sdk_takes_a_search_that_failed(client: openai.AsyncOpenAI) -> None:
    asked = '!CALL web_search {"queries":["q"]}\n!THEN\n!TEXT done'
    assert (await Runner.run(agent(client, WebSearchTool()), asked)).final_output == "done"


@requirement("client:pydantic-ai:mcp")
async def test_pydantic_ai_runs_a_hosted_tool(client: openai.AsyncOpenAI, stub: McpStub) -> None:
    model = PydanticModel("scripted", provider=OpenAIProvider(openai_client=client))
    asking = PydanticAgent(model, capabilities=[NativeTool(MCPServerTool(id="stub", url=stub.url))])
    result = await asking.run(CALL)
    assert result.output == "done"
    assert stub.methods().count("tools/call") == 1
    assert (await asking.run("!TEXT again", message_history=result.all_messages())).output == "again"
