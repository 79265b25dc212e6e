"""The clients whose packages the other tests have too: `python ours.py URL STORE MCP`."""

from __future__ import annotations

import warnings
from typing import Any

import agents
import openai
from agents import CodeInterpreterTool, FileSearchTool, HostedMCPTool, ModelSettings, OpenAIResponsesModel, Runner
from cases import MODEL, Case, Place, Taken, kinds, names, of_response, run
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticModel
from pydantic_ai.models.openai import OpenAIResponsesModelSettings
from pydantic_ai.native_tools import CodeExecutionTool, MCPServerTool
from pydantic_ai.native_tools import FileSearchTool as PydanticFiles
from pydantic_ai.providers.openai import OpenAIProvider

from antiphon.client import Client

agents.set_tracing_disabled(True)
# The packages have no type for the corpus tool that is echoed, and say so where they copy it.
warnings.filterwarnings("ignore", message="Pydantic serializer warnings")

KEY = "none"


def openai_sdk(place: Place, case: Case, stream: bool) -> Taken:
    """The `openai` package, streamed by its helper."""
    asked: Any = {"model": MODEL, "input": case.asked, "tools": [case.tool], "include": list(case.include)}
    with openai.OpenAI(base_url=place.url, api_key=KEY, max_retries=0) as client:
        if not stream:
            return of_response(client.responses.create(**asked))
        with client.responses.stream(**asked) as events:
            for _ in events:
                pass
            return of_response(events.get_final_response())


def driver(place: Place, case: Case, stream: bool) -> Taken:
    """The driver of this project."""
    asked: Any = {"tools": [case.tool]}
    with Client(place.url, provider="antiphon", model=MODEL, api_key=KEY) as client:
        if stream:
            with client.stream(case.asked, **asked) as chunks:
                for _ in chunks:
                    pass
                answer = chunks.response()
        else:
            answer = client.respond(case.asked, **asked)
    calls = kinds(answer.output)
    beside = kinds(answer.provider_meta.get("hosted_tool_calls"))
    return Taken(answer.text, calls, beside, names(answer.annotations))


async def agents_sdk(place: Place, case: Case, stream: bool) -> Taken:
    """The Agents SDK, with tools of its own where it has them; a second turn sends the whole history."""
    tool: Any = case.tool
    native: dict[str, Any] = {
        "file_search": lambda: FileSearchTool([place.store], include_search_results=True),
        "mcp": lambda: HostedMCPTool(tool_config=tool),
        "code_interpreter": lambda: CodeInterpreterTool(tool_config=tool),
    }
    tools = [native[case.name]()] if case.name in native else []
    extra = {} if tools else {"extra_body": {"tools": [tool]}}
    async with openai.AsyncOpenAI(base_url=place.url, api_key=KEY, max_retries=0) as client:
        model = OpenAIResponsesModel(MODEL, openai_client=client)
        agent = agents.Agent("a", model=model, tools=tools, model_settings=ModelSettings(**extra))
        if stream:
            result: Any = Runner.run_streamed(agent, case.asked)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, case.asked)
        history = result.to_input_list()
        again = await Runner.run(agent, [*history, {"role": "user", "content": "!TEXT again"}])
    assert again.final_output == "again", again
    items = kinds(item.raw_item for item in result.new_items)
    said = [part for item in result.new_items if item.type == "message_output_item" for part in item.raw_item.content]
    return Taken(
        result.final_output,
        items,
        citations=[name for part in said for name in names(part.annotations)],
        notes=["history"],
    )


async def pydantic_ai(place: Place, case: Case, stream: bool) -> Taken:
    """pydantic-ai, with tools of its own where it has them; a second turn sends the whole history."""
    native: dict[str, Any] = {
        "file_search": lambda: PydanticFiles(file_store_ids=[place.store]),
        "mcp": lambda: MCPServerTool(id="stub", url=place.mcp),
        "code_interpreter": CodeExecutionTool,
    }
    async with openai.AsyncOpenAI(base_url=place.url, api_key=KEY, max_retries=0) as client:
        model = PydanticModel(MODEL, provider=OpenAIProvider(openai_client=client))
        if case.name in native:
            agent = Agent(model, capabilities=[NativeTool(native[case.name]())])
        else:
            agent = Agent(model, model_settings=OpenAIResponsesModelSettings(extra_body={"tools": [case.tool]}))
        if stream:
            async with agent.run_stream(case.asked) as result:
                text = await result.get_output()
        else:
            result = await agent.run(case.asked)
            text = result.output
        again = await agent.run("!TEXT again", message_history=result.all_messages())
    assert again.output == "again", again
    parts = [part for message in result.all_messages() for part in message.parts]
    calls = [str(part.tool_name) for part in parts if "tool-call" in part.part_kind]
    items = (
        None
        if case.beside
        else [{"code_execution": "code_interpreter"}.get(c, c).split(":")[0] + "_call" for c in calls]
    )
    items = None if items is None else [item.replace("mcp_server", "mcp") for item in items]
    return Taken(text, items, notes=["history"])


def langchain(place: Place, case: Case, stream: bool) -> Taken:
    """LangChain; a second turn sends the whole history."""
    chat: Any = ChatOpenAI(
        model=MODEL,
        use_responses_api=True,
        base_url=place.url,
        api_key=KEY,  # type: ignore[arg-type]
        max_retries=0,
        include=list(case.include) or None,
    )
    # It takes tools whose types it does not know only as they are.
    chat = chat.bind(tools=[case.tool])
    if stream:
        message: Any = None
        for chunk in chat.stream(case.asked):
            message = chunk if message is None else message + chunk
    else:
        message = chat.invoke(case.asked)
    again = chat.invoke([("user", case.asked), message, ("user", "!TEXT again")])
    assert again.text == "again", again
    blocks = [block for block in message.content if isinstance(block, dict)]
    cited = [name for block in blocks for name in names(block.get("annotations"))]
    return Taken(str(message.text), kinds(blocks), citations=cited, notes=["history"])


if __name__ == "__main__":
    run(
        {
            "openai for Python": ("openai", openai_sdk),
            "antiphon.client": ("antiphon", driver),
            "OpenAI Agents SDK for Python": ("openai-agents", agents_sdk),
            "pydantic-ai": ("pydantic-ai-slim", pydantic_ai),
            "LangChain": ("langchain-openai", langchain),
        }
    )
