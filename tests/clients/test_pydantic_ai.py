"""pydantic-ai over chat completions and over responses: tools, schemas and streams, on the scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.messages import ThinkingPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from clients.strict import AsyncRecorder

pytestmark = pytest.mark.requirement("client:pydantic-ai")

CALL = '!CALL get_weather {"city": "Oslo"}'


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@pytest.fixture(params=["chat", "responses"])
async def model(request: pytest.FixtureRequest, scripted_server: str) -> AsyncIterator[Any]:
    """The scripted model over either API; what goes over the wire is held against the types of `openai`."""
    recorder = AsyncRecorder()
    async with openai.AsyncOpenAI(
        base_url=scripted_server, api_key="any", max_retries=0, http_client=httpx2.AsyncClient(transport=recorder)
    ) as client:
        kind = OpenAIChatModel if request.param == "chat" else OpenAIResponsesModel
        yield kind("scripted", provider=OpenAIProvider(openai_client=client))
    recorder.verify()


def weather(agent: Agent[None, Any]) -> list[str]:
    """Give the agent a tool; the cities that it is asked for."""
    asked: list[str] = []

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather in a city."""
        asked.append(city)
        return f"Rain in {city}."

    return asked


async def test_a_question_is_answered_with_its_usage(model: Any) -> None:
    result = await Agent(model, instructions="Be brief.").run("!TEXT one two")
    assert result.output == "one two"
    assert result.usage.output_tokens == 2
    again = await Agent(model).run("!ECHO", message_history=result.all_messages())
    assert "<|im_start|>assistant\none two<|im_end|>" in again.output


async def test_a_tool_is_called_and_its_output_answered(model: Any) -> None:
    agent = Agent(model)
    asked = weather(agent)
    result = await agent.run(f"!REASON A tool is needed.\n{CALL}")
    assert (result.output, asked) == ("FINAL: Rain in Oslo.", ["Oslo"])
    thoughts = [part for message in result.all_messages() for part in message.parts if isinstance(part, ThinkingPart)]
    # Of a response it takes the summary of the thinking for its text, which was not asked for.
    assert [part.content for part in thoughts] == (
        ["A tool is needed."] if isinstance(model, OpenAIChatModel) else [""]
    )


async def test_a_streamed_run_says_the_same(model: Any) -> None:
    agent = Agent(model)
    asked = weather(agent)
    async with agent.run_stream(CALL) as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    assert ("".join(pieces), asked) == ("FINAL: Rain in Oslo.", ["Oslo"])
    assert len(pieces) > 1


@pytest.mark.parametrize("kind", [ToolOutput, NativeOutput])
async def test_a_schema_is_kept(model: Any, kind: Any) -> None:
    result = await Agent(model, output_type=kind(Person)).run("Who?")
    assert result.output == Person(name="", age=0)
    async with Agent(model, output_type=kind(Person)).run_stream("Who?") as streamed:
        assert await streamed.get_output() == Person(name="", age=0)


async def test_a_tool_and_a_schema_go_together(model: Any) -> None:
    agent: Agent[None, Person] = Agent(model, output_type=NativeOutput(Person))
    asked = weather(agent)
    result = await agent.run(CALL)
    assert (result.output, asked) == (Person(name="", age=0), ["Oslo"])
