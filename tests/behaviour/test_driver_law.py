"""Server and driver against each other: streamed, whole and stored are one answer, over every transport."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import example, given, settings
from hypothesis import strategies as st

from antiphon.client.chunks import ContentChunk, thinking_text
from antiphon.client.client import AsyncClient, Client
from antiphon.client.sockets import Session
from antiphon.http.app import create_app
from support.driver_law import LOOK, NOTE, nameless, scripts
from support.inprocess import inprocess_app

requirement = pytest.mark.requirement
TOOLS = [LOOK, NOTE]
EXAMPLES = int(os.environ.get("ANTIPHON_LAW_EXAMPLES", "15"))
law = settings(max_examples=EXAMPLES)
backgrounds = st.sampled_from([None, False])
tokens = st.none() | st.integers(1, 60)


@pytest.fixture(scope="module")
def client(scripted_server: str) -> Iterator[Client]:
    with Client(scripted_server, provider="antiphon", model="scripted") as client:
        yield client


@pytest.fixture(scope="module")
def session(client: Client) -> Iterator[Session]:
    with client.session() as session:
        yield session


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="module")
def near(portal: BlockingPortal) -> Iterator[AsyncClient]:
    """A client of an application in this process, in the portal's event loop."""
    with portal.wrap_async_context_manager(_client_of_an_application()) as client:
        yield client


@asynccontextmanager
async def _client_of_an_application() -> AsyncGenerator[AsyncClient]:
    async with inprocess_app() as served:
        application = create_app(served.service)
        async with AsyncClient(provider="antiphon", model="scripted", app=application) as client:
            yield client


@requirement("driver:law:http")
@law
@given(scripts, backgrounds, tokens)
@example("!STREAMERR", None, None)
@example("!TEXT a b\n!CUT", False, None)
def test_over_http(client: Client, script: str, background: bool | None, limit: int | None) -> None:
    options = {"tools": TOOLS, "max_output_tokens": limit}
    with client.stream(script, background=background, **options) as stream:
        chunks = list(stream)
    streamed = stream.response()
    assert client.retrieve(streamed.response_id or "") == streamed
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, ContentChunk)) == streamed.text
    assert thinking_text(chunks) == streamed.thinking
    if "!STREAMERR" in script or "!CUT" in script:
        assert streamed.problem is not None
        return
    whole = client.respond(script, **options)
    assert client.retrieve(whole.response_id or "") == whole
    assert nameless(whole) == nameless(streamed)


@requirement("driver:law:websocket")
@law
@given(scripts, tokens)
def test_over_a_websocket(client: Client, session: Session, script: str, limit: int | None) -> None:
    options = {"tools": TOOLS, "max_output_tokens": limit}
    with session.stream(script, **options) as stream:
        chunks = list(stream)
    streamed = stream.response()
    assert client.retrieve(streamed.response_id or "") == streamed
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, ContentChunk)) == streamed.text
    assert nameless(client.respond(script, **options)) == nameless(streamed)


@requirement("driver:law:in-process")
@law
@given(scripts, backgrounds, tokens)
def test_in_process(
    portal: BlockingPortal, near: AsyncClient, script: str, background: bool | None, limit: int | None
) -> None:
    options = {"tools": TOOLS, "max_output_tokens": limit}

    async def compare() -> None:
        async with near.stream(script, background=background, **options) as stream:
            chunks = [chunk async for chunk in stream]
        streamed = await stream.response()
        assert await near.retrieve(streamed.response_id or "") == streamed
        assert "".join(chunk.text for chunk in chunks if isinstance(chunk, ContentChunk)) == streamed.text
        whole = await near.respond(script, **options)
        assert await near.retrieve(whole.response_id or "") == whole
        assert nameless(whole) == nameless(streamed)

    portal.call(compare)
