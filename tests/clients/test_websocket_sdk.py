"""The WebSocket mode through the `openai` package and the Agents SDK, every frame held against the package's types."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from openai.resources.responses.responses import AsyncResponsesConnection, ResponsesConnection
from openai.types.responses.responses_server_event import ResponsesServerEvent
from pydantic import TypeAdapter

from clients.strict import compact, known, strict_events, strict_response

KEY = "sk-local"
TERMINAL = ("response.completed", "response.incomplete", "response.failed")
TOOLS: Any = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}]

_server_event: TypeAdapter[Any] = TypeAdapter(ResponsesServerEvent)


def check(frames: list[bytes], stream_id: str | None = None) -> dict[str, Any]:
    """The response at the end of the frames of one response: typed each by itself, and lawful as a stream."""
    plain: list[bytes] = []
    for frame in frames:
        value = compact(frame)
        typed = _server_event.validate_json(frame, strict=True)
        assert (typed.type, typed.stream_id) == (value["type"], stream_id)
        known(typed)
        if stream_id is not None:
            assert list(value)[-1] == "stream_id"
            del value["stream_id"]
        data = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        plain.append(f"event: {value['type']}\ndata: {data}\n\n".encode())
    strict_events(b"".join([*plain, b"data: [DONE]\n\n"]), whole=True)
    last = json.loads(frames[-1])["response"]
    strict_response(json.dumps(last, ensure_ascii=False))
    return last


@contextmanager
def connected(base_url: str, **options: Any) -> Iterator[ResponsesConnection]:
    """A connection of the sync client."""
    with (
        openai.OpenAI(base_url=base_url, api_key=KEY, max_retries=0) as client,
        client.responses.connect(**options) as connection,
    ):
        yield connection


def frames_of(connection: ResponsesConnection) -> list[bytes]:
    """The frames up to a terminal event."""
    frames = [connection.recv_bytes()]
    while json.loads(frames[-1])["type"] not in TERMINAL:
        frames.append(connection.recv_bytes())
    return frames


@pytest.mark.requirement("websocket:sdk", "websocket:event:bytes", "websocket:stream-id:echo")
@pytest.mark.parametrize("stream_id", [None, "a.lane-1"])
@pytest.mark.parametrize(
    "said", ["hi", "!REASON because\n!TEXT so", '!CALL look {"at": "it"}', "!REFUSE", "!INCOMPLETE", "!FAIL"]
)
def test_every_frame_is_of_its_type(scripted_server: str, said: str, stream_id: str | None):
    named: Any = {} if stream_id is None else {"stream_id": stream_id}
    with connected(scripted_server) as connection:
        connection.response.create(model="scripted", input=said, tools=TOOLS, **named)
        check(frames_of(connection), stream_id)


@pytest.mark.requirement("websocket:sdk", "websocket:cache:latest", "websocket:warmup")
def test_a_chain_without_a_store(scripted_server: str):
    with connected(scripted_server) as connection:
        connection.response.create(model="scripted", input="!TEXT warm", store=False, generate=False)
        warm = check(frames_of(connection))
        assert warm["output"] == []
        connection.response.create(model="scripted", input="!TEXT one", store=False, previous_response_id=warm["id"])
        one = check(frames_of(connection))
        connection.response.create(model="scripted", input="!ECHO", previous_response_id=one["id"])
        two = check(frames_of(connection))
        for words in ("!TEXT warm", "!TEXT one", "\none<|im_end|>"):
            assert words in two["output_text"]


@pytest.mark.requirement("websocket:sdk", "websocket:error:frame")
def test_errors_are_events_of_the_package(scripted_server: str):
    with connected(scripted_server) as connection:
        connection.response.create(model="scripted", input="hi", background=True)
        event = connection.recv()
        assert event.type == "error"
        assert (event.status, event.error.code, event.error.param) == (400, "unsupported_parameter", "background")
        connection.response.create(model="nobody", input="hi")
        event = connection.recv()
        assert event.type == "error"
        assert (event.status, event.error.code) == (404, "model_not_found")


@pytest.mark.requirement("websocket:sdk", "websocket:steer:successor", "websocket:steer:frames")
def test_a_steered_response(scripted_server: str):
    with connected(scripted_server) as connection:
        connection.response.create(model="scripted", input="!SLOW 5\n!COUNT 10000", store=False, stream_id="s")
        seen: list[str] = []
        ended: list[Any] = []
        for event in connection:
            assert event.stream_id == "s"
            seen.append(event.type)
            if event.type == "response.created" and not ended:
                connection.response.steer(previous_response_id=event.response.id, input="!TEXT as you wish")
            if event.type in TERMINAL:
                ended.append(event.response)
            if event.type == "response.completed":
                break
        steered, successor = ended
        assert (steered.status, steered.incomplete_details.reason) == ("incomplete", "steered")
        assert (successor.previous_response_id, successor.output_text) == (steered.id, "as you wish")
        assert seen.count("response.steer.accepted") == 1


async def events_of(connection: AsyncResponsesConnection, ends: int) -> AsyncIterator[Any]:
    """The events until so many responses have ended."""
    async for event in connection:
        yield event
        ends -= event.type in TERMINAL
        if not ends:
            break


@pytest.mark.requirement("websocket:sdk", "websocket:lanes:parallel")
async def test_lanes_of_the_async_client(scripted_server: str):
    async with (
        openai.AsyncOpenAI(base_url=scripted_server, api_key=KEY, max_retries=0) as client,
        client.responses.connect() as connection,
    ):
        for lane in ("one", "two"):
            await connection.response.create(
                model="scripted", input=f"!SLOW 10\n!COUNT 10\n!TEXT {lane}", stream_id=lane
            )
        order: list[str | None] = []
        texts: dict[str | None, str] = {}
        async for event in events_of(connection, 2):
            order.append(event.stream_id)
            if event.type in TERMINAL:
                texts[event.stream_id] = event.response.output_text
        assert {lane: text.removeprefix("1 2 3 4 5 6 7 8 9 10") for lane, text in texts.items()} == {
            "one": "one",
            "two": "two",
        }
        assert order != sorted(order, key=lambda lane: lane or ""), "they run side by side"


@pytest.mark.requirement("websocket:sdk")
async def test_the_agents_sdk_runs_a_tool_over_a_websocket(scripted_server: str):
    from agents import Agent, Runner, function_tool, set_tracing_disabled
    from agents.models.openai_responses import OpenAIResponsesWSModel

    set_tracing_disabled(True)

    @function_tool
    def get_weather(city: str) -> str:
        """The weather."""
        return f"12C in {city}"

    async with openai.AsyncOpenAI(base_url=scripted_server, api_key=KEY, max_retries=0) as client:
        model = OpenAIResponsesWSModel(model="scripted", openai_client=client)
        agent = Agent(name="A", model=model, tools=[get_weather])
        result = await Runner.run(agent, '!CALL get_weather {"city": "Oslo"}')
        assert result.final_output == "FINAL: 12C in Oslo"
        await model.close()
