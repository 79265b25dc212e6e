"""Schemas and tools of the `openai` package, of LangChain and of pydantic-ai on the default model.

Whatever a small model has to say, it is an object of the class or a call of the tool.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

import httpx2
import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from clients.conftest import Target
from clients.strict import AsyncRecorder

pytestmark = pytest.mark.requirement("client:real:libraries")

TOKENS = 400
ASKED = "Ada Lovelace, 36, is an admin."
SAID: Any = [{"role": "user", "content": ASKED}]


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=40)
    age: int = Field(ge=0, le=150)
    role: Literal["admin", "guest"] | None
    tags: list[str] = Field(max_length=2)


def test_the_sdk_parses_completions_whole_and_streamed(real: Target) -> None:
    asked: Any = {"model": "smollm", "messages": SAID, "max_tokens": TOKENS, "response_format": Person}
    whole = real.client.chat.completions.parse(**asked)
    assert isinstance(whole.choices[0].message.parsed, Person)
    with real.client.chat.completions.stream(**asked) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert final.choices[0].message.content == deltas
    assert isinstance(final.choices[0].message.parsed, Person)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "Person"}}])
def test_the_sdk_parses_the_arguments_of_forced_calls(real: Target, choice: Any) -> None:
    asked: Any = {"model": "smollm", "messages": SAID, "max_tokens": TOKENS, "tool_choice": choice}
    asked["tools"] = [openai.pydantic_function_tool(Person)]
    for stream in (False, True):
        if stream:
            with real.client.chat.completions.stream(**asked) as events:
                message: Any = events.get_final_completion().choices[0].message
        else:
            message = real.client.chat.completions.parse(**asked).choices[0].message
        assert message.content is None
        assert message.tool_calls
        assert all(isinstance(call.function.parsed_arguments, Person) for call in message.tool_calls)


def test_the_sdk_parses_responses_whole_and_streamed(real: Target) -> None:
    asked: Any = {"model": "smollm", "input": ASKED, "max_output_tokens": TOKENS}
    assert isinstance(real.responses.parse(**asked, text_format=Person).output_parsed, Person)
    with real.responses.stream(**asked, text_format=Person) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds.count("response.output_text.delta") > 3
    assert isinstance(final.output_parsed, Person)
    called = real.responses.parse(
        **asked, tools=[openai.pydantic_function_tool(Person)], tool_choice="required", parallel_tool_calls=False
    )
    (call,) = [item for item in called.output if item.type == "function_call"]
    assert isinstance(call.parsed_arguments, Person)


@tool
def get_weather(city: Literal["Oslo", "Rome"]) -> str:
    """The weather in a city."""
    return f"Rain in {city}."


@pytest.fixture(params=[False, True], ids=["chat", "responses"])
def chat(request: pytest.FixtureRequest, real_server: str) -> ChatOpenAI:
    """LangChain's client over either API."""
    return ChatOpenAI(
        model="smollm",
        base_url=real_server,
        api_key="any",  # type: ignore[arg-type]
        max_retries=0,
        max_tokens=TOKENS,  # type: ignore[call-arg]
        use_responses_api=request.param,
    )


# What it parses of a stream does not fit the types of its own chunks.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_gives_objects_of_the_class(chat: ChatOpenAI, method: Any) -> None:
    structured = chat.with_structured_output(Person, method=method)
    assert isinstance(structured.invoke(ASKED), Person)
    assert isinstance(list(structured.stream(ASKED))[-1], Person)


@pytest.mark.parametrize("choice", ["any", "get_weather"])
def test_langchain_forces_calls_and_answers_them(chat: ChatOpenAI, choice: str) -> None:
    messages: list[Any] = [HumanMessage("Say hello.")]
    bound = chat.bind_tools([get_weather], tool_choice=choice, parallel_tool_calls=False)
    answer = bound.invoke(messages)
    assert [call["name"] for call in answer.tool_calls] == ["get_weather"]
    assert answer.tool_calls[0]["args"]["city"] in ("Oslo", "Rome")
    messages += [answer, get_weather.invoke(answer.tool_calls[0])]
    assert isinstance(messages[-1], ToolMessage)
    again = chat.bind_tools([get_weather], tool_choice="none").invoke(messages)
    assert again.tool_calls == []


@pytest.fixture(params=["chat", "responses"])
async def model(request: pytest.FixtureRequest, real_server: str) -> AsyncIterator[Any]:
    """The model of pydantic-ai over either API; what goes over the wire is held against the types of `openai`."""
    recorder = AsyncRecorder()
    http = httpx2.AsyncClient(transport=recorder, timeout=90)
    async with openai.AsyncOpenAI(base_url=real_server, api_key="any", max_retries=0, http_client=http) as client:
        kind = OpenAIChatModel if request.param == "chat" else OpenAIResponsesModel
        yield kind("smollm", provider=OpenAIProvider(openai_client=client), settings={"max_tokens": TOKENS})
    recorder.verify()


@pytest.mark.parametrize("kind", [ToolOutput, NativeOutput])
async def test_pydantic_ai_gives_objects_of_the_class(model: Any, kind: Any) -> None:
    agent: Agent[None, Person] = Agent(model, output_type=kind(Person))
    assert isinstance((await agent.run(ASKED)).output, Person)
    async with agent.run_stream(ASKED) as streamed:
        assert isinstance(await streamed.get_output(), Person)
