"""The driver against the running server: whole, streamed and stored are the same answer, and a conversation goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.client import connection
from antiphon.client.chunks import ContentChunk, ThinkingChunk
from antiphon.client.client import AsyncClient, Client, Limits
from antiphon.client.context import Context, tool_result, user
from antiphon.client.errors import BodyError, DriverError, EndpointError, StreamCutError, TransportError
from antiphon.client.profiles import ANTIPHON
from antiphon.http.app import create_app
from support.driver_law import LOOK, nameless
from support.inprocess import inprocess_app

requirement = pytest.mark.requirement
PROGRAMS = [
    "!TEXT hello there",
    "!REASON hm hm\n!TEXT yes",
    '!REASON which\n!CALL look {"at":"sky"}',
    '!TEXT both\n!CALL look {"at":"sky"}\n!CALL look {"at":"sea"}',
    "!REFUSE",
    "!INCOMPLETE",
    "!FAIL",
    "!STREAMERR",
]


@pytest.fixture(scope="module")
def client(scripted_server: str) -> Iterator[Client]:
    with Client(scripted_server, provider="antiphon", model="scripted") as client:
        yield client


@requirement("driver:streams", "driver:requests")
@pytest.mark.parametrize("words", PROGRAMS)
@pytest.mark.parametrize("background", [None, False])
def test_streamed_whole_and_stored_are_the_same(client: Client, words: str, background: bool | None) -> None:
    with client.stream(words, tools=[LOOK], background=background) as stream:
        chunks = list(stream)
    streamed = stream.response()
    assert streamed.response_id is not None
    assert client.retrieve(streamed.response_id) == streamed
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, ContentChunk)) == streamed.text
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, ThinkingChunk)) == streamed.thinking
    if words != "!STREAMERR":
        assert nameless(client.respond(words, tools=[LOOK])) == nameless(streamed)


ITEMS = [
    {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
    {"type": "file_search_call", "status": "completed", "queries": ["q"], "results": None},
    {"type": "code_interpreter_call", "status": "completed", "code": "1", "container_id": "c", "outputs": []},
    {"type": "acme:thing", "status": "completed", "of": "theirs"},
]
words = st.lists(st.text('ab ü\U0001f600.,"', min_size=1, max_size=8), min_size=1, max_size=4).map(" ".join)
lines = st.one_of(
    words.map(lambda text: f"!TEXT {text}"),
    words.map(lambda text: f"!REASON {text}"),
    words.map(lambda text: "!CALL look " + msgspec.json.encode({"at": text}).decode()),
    words.map(lambda text: f"!CUSTOM patch {text}"),
    st.sampled_from(ITEMS).map(lambda item: "!ITEM " + msgspec.json.encode(item).decode()),
    st.integers(1, 30).map(lambda number: f"!COUNT {number}"),
    st.sampled_from(["!REFUSE", "!INCOMPLETE", "!FAIL"]),
)
programs = st.lists(lines, min_size=1, max_size=6).map("\n".join)


@requirement("driver:streams", "driver:requests", "driver:sessions")
@settings(max_examples=10)
@given(programs)
def test_of_any_program_streamed_whole_stored_and_over_a_socket_are_the_same(
    scripted_server: str, program: str
) -> None:
    tools = [LOOK, {"type": "custom", "name": "patch"}]
    with Client(scripted_server, provider="antiphon", model="scripted") as client, client.session() as session:
        with client.stream(program, tools=tools) as stream:
            streamed = stream.response()
        assert client.retrieve(streamed.response_id or "") == streamed
        over_socket = session.respond(program, tools=tools)
        assert client.retrieve(over_socket.response_id or "") == over_socket
        whole = client.respond(program, tools=tools)
        assert nameless(whole) == nameless(streamed) == nameless(over_socket)


@requirement("driver:E19", "driver:E10")
@pytest.mark.parametrize("store", [True, False])
def test_a_conversation_of_calls_and_thoughts_goes_on(client: Client, store: bool) -> None:
    context = Context([user('!REASON where\n!CALL look {"at":"sky"}\n!THEN\n!REASON so\n!TEXT blue')])
    first = client.respond(context, tools=[LOOK], store=store)
    assert first.finish_reason == "tool_calls"
    [call] = first.local_tool_calls
    context.append(first.message, tool_result(call.id, {"colour": "blue"}))
    second = client.respond(context, tools=[LOOK], store=store)
    assert (second.text, second.thinking) == ("blue", "so")
    context.append(second.message, user("!ECHO"))
    seen = client.respond(context, tools=[LOOK], store=store).text
    for word in ("where", '"colour":"blue"', "so", "blue", "!ECHO"):
        assert seen.count(word) >= 1, word
    assert seen.count('{"colour":"blue"}') == 1


@requirement("driver:fallbacks")
def test_a_conversation_goes_on_although_its_answers_were_deleted(client: Client) -> None:
    context = Context([user("!TEXT one")])
    answer = client.respond(context)
    client.delete(answer.response_id or "")
    context.append(answer.message, user("!ECHO"))
    assert "!TEXT one" in client.respond(context).text
    with client.stream(context) as stream:
        assert "!TEXT one" in stream.response().text


class Place(msgspec.Struct):
    name: str
    size: int


@requirement("driver:objects")
def test_an_answer_is_of_the_type_that_was_asked_for(client: Client) -> None:
    assert isinstance(client.respond("where?", text_format=Place).object, Place)
    with client.stream("where?", text_format=Place) as stream:
        assert isinstance(stream.response().object, Place)


@requirement("driver:background")
def test_a_response_in_the_background_is_begun_waited_for_and_cancelled(client: Client) -> None:
    assert client.respond("!COUNT 3", background=True).text == "1 2 3"
    begun = client.start("!SLOW 20\n!COUNT 1000")
    assert begun.status in ("queued", "in_progress")
    assert begun.response_id is not None
    assert client.cancel(begun.response_id).status == "cancelled"
    assert client.wait(begun.response_id).status == "cancelled"


@requirement("driver:requests")
def test_a_whole_answer_is_whole_whatever_was_said_of_streams(client: Client) -> None:
    assert client.respond("!COUNT 3", stream=True).text == "1 2 3"
    with client.stream("!COUNT 3", stream=False) as stream:
        assert len([chunk for chunk in stream if isinstance(chunk, ContentChunk)]) == 3


@requirement("driver:requests")
def test_an_answer_that_is_too_large_is_not_taken(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_BODY", 1000)
    with pytest.raises(BodyError, match="1000"):
        client.respond("!COUNT 300")


@requirement("driver:retries")
def test_refusals_come_with_their_words(client: Client) -> None:
    with pytest.raises(EndpointError) as caught:
        client.respond("!ERR429")
    assert (caught.value.status, caught.value.type) == (429, "rate_limit_error")
    with pytest.raises(EndpointError), client.stream("!ERR400") as stream:
        next(stream)


@requirement("driver:cancel")
async def test_a_task_that_is_cancelled_ends_the_answer(scripted_server: str) -> None:
    async with AsyncClient(scripted_server, provider="antiphon", model="scripted") as client:
        stream = client.stream("!SLOW 20\n!COUNT 1000")
        begun = anyio.Event()

        async def read() -> None:
            async for _ in stream:
                begun.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await begun.wait()
            tasks.cancel_scope.cancel()
        assert (await client.retrieve(stream.response_id or "")).status == "cancelled"
        async with client.stream("!SLOW 20\n!COUNT 1000") as left:
            await anext(left)
        assert (await client.retrieve(left.response_id or "")).status == "cancelled"
        assert [chunk async for chunk in left] == []


@requirement("driver:in-process", "driver:requests")
async def test_the_asynchronous_client_asks_an_application_in_this_process() -> None:
    async with inprocess_app() as served:
        application = create_app(served.service)
        async with AsyncClient(provider=ANTIPHON, model="scripted", app=application) as client:
            answer = await client.respond("!TEXT near")
            assert answer.text == "near"
            async with client.stream([user("!REASON hm\n!COUNT 3")]) as stream:
                assert [chunk.text async for chunk in stream if isinstance(chunk, ContentChunk)] == ["1 ", "2 ", "3"]
            streamed = await stream.response()
            assert await client.retrieve(streamed.response_id or "") == streamed
            begun = await client.start("!COUNT 3")
            assert (await client.wait(begun.response_id or "")).text == "1 2 3"
            made = await client.compact([user("one"), answer.message, user("two")])
            assert "SUMMARY" in (await client.respond([made.message, user("!ECHO")])).text
            await client.delete(answer.response_id or "")
            with pytest.raises(EndpointError, match="404"):
                await client.retrieve(answer.response_id or "")
            running = await client.start("!SLOW 20\n!COUNT 1000")
            assert (await client.cancel(running.response_id or "")).status == "cancelled"


@requirement("driver:in-process", "driver:cancel")
async def test_its_answers_come_as_they_are_sent_and_end_when_they_are_left() -> None:
    async with inprocess_app() as served:
        application = create_app(served.service)
        async with AsyncClient(provider=ANTIPHON, model="scripted", app=application, resume=False) as client:
            async with client.stream("!SLOW 20\n!COUNT 1000") as stream:
                await anext(stream)
            name = stream.response_id or ""
            with anyio.fail_after(20):
                while (await client.retrieve(name)).status != "cancelled":
                    await anyio.sleep(0.01)
            assert (await client.respond("!COUNT 300")).text.endswith(" 300")
            async with client.stream("!COUNT 300") as stream:
                assert (await stream.response()).text.endswith(" 300")
        async with AsyncClient(provider=ANTIPHON, model="scripted", app=application) as client:
            running = client.stream("!SLOW 20\n!COUNT 1000")
            await anext(running)
        # The client is gone, and with it what it had asked for is left.
        with pytest.raises(DriverError, match="async with"):
            await AsyncClient(provider=ANTIPHON, app=application).respond("hi")


@requirement("driver:in-process")
async def test_an_application_that_fails_is_told() -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        await receive()

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b": hi\n\n", "more_body": True})
        raise RuntimeError("inside")

    for application in (silent, broken):
        async with AsyncClient("http://host/v1", app=application, limits=Limits(max_retries=0)) as client:
            with pytest.raises((TransportError, StreamCutError)):
                await client.stream("hi").response()


@requirement("driver:profiles")
def test_a_client_needs_to_know_where_to_ask_and_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DriverError, match="base_url"):
        Client(provider="azure")
    with pytest.raises(DriverError, match="provider"):
        Client(provider="nobody")
    with Client("https://me.openai.azure.com/openai/v1") as client:
        assert client.profile.name == "azure"
    with Client("http://127.0.0.1:1/v1") as client:
        assert client.profile.name == "generic"
