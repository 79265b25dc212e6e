"""Frameworks over the `openai` package, whole and streamed, with hosted items under `output` and beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import agents
import httpx2
import openai
import pytest
from agents import ModelSettings, OpenAIResponsesModel, Runner
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticModel
from pydantic_ai.models.openai import OpenAIResponsesModelSettings
from pydantic_ai.providers.openai import OpenAIProvider

from antiphon.http.app import create_app
from support.fake_tools import Corpus
from support.inprocess import BASE_URL, inprocess_app

pytestmark = [
    pytest.mark.requirement("hosted:libraries"),
    # The package has no type for the corpus tool that is echoed, and says so where it is copied.
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),
    pytest.mark.parametrize("stream", [False, True]),
    pytest.mark.parametrize(
        "tool",
        [{"type": "file_search", "vector_store_ids": ["vs_1"]}, {"type": "search_corpus"}],
        ids=["file", "corpus"],
    ),
]

agents.set_tracing_disabled(True)


@pytest.fixture
async def client() -> AsyncIterator[openai.AsyncOpenAI]:
    async with inprocess_app(tools=[Corpus()]) as api:
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(create_app(api.service)))
        async with openai.AsyncOpenAI(base_url=BASE_URL, api_key="k", max_retries=0, http_client=http) as sdk:
            yield sdk


def asks(tool: dict[str, Any]) -> str:
    return f'!CALL {tool["type"]} {{"queries":["q"]}}\n!THEN\n!TEXT so'


async def test_the_agents_sdk(client: openai.AsyncOpenAI, tool: dict[str, Any], stream: bool) -> None:
    model = OpenAIResponsesModel("scripted", openai_client=client)
    agent = agents.Agent("a", model=model, model_settings=ModelSettings(extra_body={"tools": [tool]}))
    if stream:
        run = Runner.run_streamed(agent, asks(tool))
        assert [event async for event in run.stream_events()]
        assert run.final_output == "so"
    else:
        assert (await Runner.run(agent, asks(tool))).final_output == "so"


async def test_pydantic_ai(client: openai.AsyncOpenAI, tool: dict[str, Any], stream: bool) -> None:
    model = PydanticModel("scripted", provider=OpenAIProvider(openai_client=client))
    agent = Agent(model, model_settings=OpenAIResponsesModelSettings(extra_body={"tools": [tool]}))
    if stream:
        async with agent.run_stream(asks(tool)) as run:
            assert await run.get_output() == "so"
    else:
        assert (await agent.run(asks(tool))).output == "so"


async def test_langchain(client: openai.AsyncOpenAI, tool: dict[str, Any], stream: bool) -> None:
    model = ChatOpenAI(
        model="scripted",
        use_responses_api=True,
        api_key="k",  # type: ignore[arg-type]
        base_url=BASE_URL,
        root_async_client=client,
        async_client=client.chat.completions,
    ).bind(tools=[tool])
    if not stream:
        assert (await model.ainvoke(asks(tool))).text == "so"
        return
    chunks = [chunk async for chunk in model.astream(asks(tool))]
    assert "".join(chunk.text for chunk in chunks) == "so"
