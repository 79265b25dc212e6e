"""LangChain's `ChatOpenAI` over chat completions and over responses, on the scripted model: tools, schemas, streams."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

from support import tiny_bert
from support.fronted import scripted_model

requirement = pytest.mark.requirement
pytestmark = pytest.mark.requirement("client:langchain")

CALL = '!CALL get_weather {"city": "Oslo"}'


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"Rain in {city}."


@pytest.fixture(params=[False, True], ids=["chat", "responses"])
def model(request: pytest.FixtureRequest, scripted_server: str) -> ChatOpenAI:
    """The scripted model over either API."""
    return client(scripted_server, responses=request.param)


def client(base_url: str, *, responses: bool) -> ChatOpenAI:
    return ChatOpenAI(
        model="scripted",
        base_url=base_url,
        api_key="any",  # type: ignore[arg-type]
        max_retries=0,
        use_responses_api=responses,
        stream_usage=True,
    )


def text_of(message: Any) -> str:
    return message.text


def test_a_question_is_answered_with_its_usage(model: ChatOpenAI) -> None:
    answer = model.invoke([SystemMessage("Be brief."), HumanMessage("!TEXT one two")])
    assert text_of(answer) == "one two"
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] == 2
    assert answer.usage_metadata["total_tokens"] == answer.usage_metadata["input_tokens"] + 2


def test_a_stream_adds_up_to_the_answer(model: ChatOpenAI) -> None:
    whole = model.invoke("!COUNT 6")
    total: AIMessageChunk | None = None
    chunks = 0
    for chunk in model.stream("!COUNT 6"):
        chunks += 1
        total = chunk if total is None else total + chunk  # type: ignore[assignment]
    assert total is not None
    assert chunks > 5
    assert text_of(total) == text_of(whole) == "1 2 3 4 5 6"
    assert total.usage_metadata == whole.usage_metadata


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_output_answered(model: ChatOpenAI, stream: bool) -> None:
    bound = model.bind_tools([get_weather])
    messages: list[Any] = [HumanMessage(f"!REASON A tool is needed.\n{CALL}\n{CALL.replace('Oslo', 'Rome')}")]
    answer: Any = None
    if stream:
        for chunk in bound.stream(messages):
            answer = chunk if answer is None else answer + chunk
    else:
        answer = bound.invoke(messages)
    assert [(call["name"], call["args"]) for call in answer.tool_calls] == [
        ("get_weather", {"city": "Oslo"}),
        ("get_weather", {"city": "Rome"}),
    ]
    messages.append(answer if isinstance(answer, AIMessage) else AIMessage(**answer.model_dump(exclude={"type"})))
    messages += [get_weather.invoke(call) for call in answer.tool_calls]
    assert isinstance(messages[-1], ToolMessage)
    assert text_of(bound.invoke(messages)) == "FINAL: Rain in Rome."


@pytest.mark.parametrize("choice", ["any", "get_weather", "required"])
def test_a_forced_call_comes(model: ChatOpenAI, choice: str) -> None:
    answer = model.bind_tools([get_weather], tool_choice=choice).invoke("Say hello.")
    assert [call["name"] for call in answer.tool_calls] == ["get_weather"]


# What it parses of a stream does not fit the types of its own chunks.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_a_schema_is_kept(model: ChatOpenAI, method: Any) -> None:
    if method == "json_mode":
        structured = model.with_structured_output(None, method=method)
        assert structured.invoke("Who? In JSON.") == {}
        return
    structured = model.with_structured_output(Person, method=method)
    assert structured.invoke("Who?") == Person(name="", age=0)
    assert list(structured.stream("Who?"))[-1] == Person(name="", age=0)


async def test_the_async_calls_do_the_same(scripted_server: str) -> None:
    # In one test, since the package shares its connections between all models, and they belong to an event loop.
    for model in (client(scripted_server, responses=responses) for responses in (False, True)):
        assert text_of(await model.ainvoke("!TEXT one two")) == "one two"
        pieces = [text_of(chunk) async for chunk in model.astream("!TEXT one two")]
        assert "".join(pieces) == "one two"


@pytest.mark.requirement("client:embeddings")
def test_texts_are_embedded(tmp_path: Any) -> None:
    path = tiny_bert.build(tmp_path)
    arguments = ["--embedding-model", str(path), "--store", "memory", "-t", "1"]
    with scripted_model(arguments) as server:
        embeddings = OpenAIEmbeddings(
            model="bert",
            base_url=server.base_url,
            api_key="any",  # type: ignore[arg-type]
            check_embedding_ctx_length=False,
        )
        vectors = embeddings.embed_documents(["hello", "there"])
        assert [len(vector) for vector in vectors] == [tiny_bert.WIDTH] * 2
        assert embeddings.embed_query("hello") == pytest.approx(vectors[0], abs=1e-6)
