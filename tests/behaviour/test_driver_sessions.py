"""Sessions of the driver with the running server: one WebSocket, and the same answers as over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import httpx2
import pytest

from antiphon.client.chunks import ContentChunk
from antiphon.client.client import AsyncClient, Client, Limits
from antiphon.client.context import Context, tool_result, user
from antiphon.client.errors import DriverError, EndpointError, StreamCutError, TransportError
from antiphon.http.app import create_app
from support.breaking import Cut, breaking_proxy
from support.inprocess import inprocess_app
from support.server import wait_until

requirement = pytest.mark.requirement
PROGRAMS = ["!TEXT hello there", "!REASON hm\n!TEXT yes", "!REFUSE", "!INCOMPLETE", "!FAIL", "!STREAMERR"]
LONG = "!SLOW 20\n!COUNT 1000"


@pytest.fixture(scope="module")
def client(scripted_server: str) -> Iterator[Client]:
    with Client(scripted_server, provider="antiphon", model="scripted") as client:
        yield client


@requirement("driver:sessions")
def test_answers_are_those_that_are_stored(client: Client) -> None:
    with client.session() as session:
        for words in PROGRAMS:
            answer = session.respond(words)
            assert client.retrieve(answer.response_id or "") == answer
            assert (answer.problem is not None) == (words in ("!FAIL", "!STREAMERR"))


@requirement("driver:sessions", "driver:E20")
def test_a_conversation_goes_on_though_nothing_is_stored(client: Client) -> None:
    look = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
    with client.session() as session:
        context = Context([user('!REASON where\n!CALL look {"at":"sky"}\n!THEN\n!TEXT blue')])
        first = session.respond(context, store=False, tools=[look])
        context.append(first.message, tool_result(first.local_tool_calls[0].id, "blue"))
        second = session.respond(context, store=False, tools=[look])
        assert second.text == "blue"
        context.append(second.message, user("!ECHO"))
        assert "where" in session.respond(context, store=False, tools=[look]).text
        with pytest.raises(EndpointError, match="404"):
            client.retrieve(first.response_id or "")
    with client.session() as another:
        assert "where" in another.respond(context, store=False, tools=[look]).text


@requirement("driver:sessions", "driver:cancel")
def test_an_answer_that_is_left_ends_and_the_next_one_comes(client: Client) -> None:
    with client.session() as session:
        with session.stream(LONG) as stream:
            next(stream)
        wait_until(lambda: client.retrieve(stream.response_id or "").status == "cancelled")
        assert session.respond("!COUNT 3").text == "1 2 3"
        with pytest.raises(EndpointError) as caught:
            session.respond("!ERR429")
        assert caught.value.status == 429
        assert session.respond("!COUNT 2").text == "1 2"


@requirement("driver:sessions")
async def test_the_asynchronous_session_does_the_same(scripted_server: str) -> None:
    async with AsyncClient(scripted_server, provider="antiphon", model="scripted") as client:
        async with client.session() as session:
            stream = session.stream("!COUNT 3")
            assert [chunk.text async for chunk in stream if isinstance(chunk, ContentChunk)] == ["1 ", "2 ", "3"]
            async with session.stream(LONG) as left:
                await anext(left)
            assert (await session.respond("!COUNT 2")).text == "1 2"
            with anyio.move_on_after(0.2):
                await session.respond(LONG)
            answer = await session.respond("!TEXT on")
            assert await client.retrieve(answer.response_id or "") == answer
            with pytest.raises(EndpointError):
                await session.respond("!ERR400")
        with pytest.raises(DriverError, match="async with"):
            await client.session().respond("hi")


@requirement("driver:sessions")
async def test_broken_connections_are_opened_anew_or_told(scripted_server: str) -> None:
    with breaking_proxy(scripted_server) as proxy:
        for how in ("reset", "close"):
            http = httpx2.Client(timeout=10)
            with http, Client(proxy.base_url, provider="antiphon", model="scripted", http=http) as client:
                proxy.cuts.append(Cut(3000, how))
                with client.session() as session:
                    with pytest.raises(StreamCutError):
                        session.respond(LONG)
                    assert session.respond("!COUNT 2").text == "1 2"
            async with AsyncClient(proxy.base_url, provider="antiphon", model="scripted") as other:
                proxy.cuts.append(Cut(3000, how))
                async with other.session() as own:
                    with pytest.raises(StreamCutError):
                        await own.respond(LONG)
                    assert (await own.respond("!COUNT 2")).text == "1 2"


@requirement("driver:sessions", "driver:timeouts")
def test_an_endpoint_that_refuses_the_socket_or_says_nothing_is_told(scripted_server: str) -> None:
    with Client(f"{scripted_server}/nowhere") as lost, lost.session() as session, pytest.raises(EndpointError):
        session.respond("hi")
    limits = Limits(silence=0.3, max_retries=0)
    with breaking_proxy(scripted_server) as proxy, Client(proxy.base_url, provider="antiphon", limits=limits) as client:
        proxy.cuts.append(Cut(400, "stall"))
        with client.session() as session, pytest.raises(TransportError):
            session.respond("!COUNT 2", model="scripted")


@requirement("driver:sessions", "driver:in-process")
async def test_an_application_in_this_process_has_sessions_too() -> None:
    async with (
        inprocess_app() as served,
        AsyncClient(provider="antiphon", model="scripted", app=create_app(served.service)) as client,
    ):
        async with client.session() as session:
            for words in PROGRAMS:
                answer = await session.respond(words)
                assert await client.retrieve(answer.response_id or "") == answer
            context = Context([user("first")])
            first = await session.respond(context, store=False)
            context.append(first.message, user("!ECHO"))
            assert "first" in (await session.respond(context, store=False)).text
            async with session.stream(LONG) as stream:
                await anext(stream)
            with anyio.fail_after(20):
                while (await client.retrieve(stream.response_id or "")).status != "cancelled":
                    await anyio.sleep(0.01)
            # More than waits to be read, over a connection of its own.
            assert (await session.respond("!COUNT 300")).text.endswith(" 300")
        async with client.session() as session:
            left = session.stream(LONG)
            await anext(left)
    # The client is gone, and with it the connection.


@requirement("driver:sessions", "driver:in-process")
async def test_what_an_application_does_to_a_session_is_told() -> None:
    async def refuses(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.http.response.start", "status": 401, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b'{"error": {"message": "no key"}}'})

    async def closes(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.close", "code": 1000})

    async def leaves(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await receive()
        await receive()
        await send({"type": "websocket.close"})

    async def breaks(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        raise RuntimeError("inside")

    async def stalls(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass

    limits = Limits(silence=0.2, max_retries=0)
    for application, kind in (
        (refuses, EndpointError),
        (closes, EndpointError),
        (leaves, TransportError),
        (breaks, TransportError),
        (stalls, TransportError),
    ):
        client = AsyncClient("http://host/v1", provider="antiphon", app=application, limits=limits)
        async with client, client.session() as session:
            with pytest.raises(kind):
                await session.respond("hi", model="m")
