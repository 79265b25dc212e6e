"""The time that a whole call of the driver may take, over real sockets: it ends in time, and at the endpoint too."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx2
import pytest

from antiphon.client import AsyncClient, Client, DeadlineError, Limits
from support.server import wait_until

pytestmark = pytest.mark.requirement("driver:deadline")

SECONDS = 0.4
LONG = "!SLOW 50\n!COUNT 200"


@contextmanager
def ends_in_time() -> Iterator[None]:
    began = time.monotonic()
    with pytest.raises(DeadlineError, match=r"longer than 0\.4 seconds"):
        yield
    assert SECONDS <= time.monotonic() - began < 5


@asynccontextmanager
async def asking(base_url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(base_url, "k", "antiphon", "scripted", limits=Limits(total=SECONDS)) as client:
        yield client


def ended(base_url: str, response_id: str | None) -> None:
    assert response_id is not None
    with Client(base_url, "k", "antiphon", "scripted") as client:
        wait_until(lambda: client.retrieve(response_id).status == "cancelled")


def test_a_synchronous_call_ends(scripted_server: str) -> None:
    with Client(scripted_server, "k", "antiphon", "scripted", limits=Limits(total=SECONDS)) as client:
        with ends_in_time():
            client.respond(LONG)
        with client.stream(LONG) as stream, ends_in_time():
            for _ in stream:
                pass
        assert "1 2" in stream.snapshot().text
        with client.session() as session:
            with ends_in_time():
                session.respond(LONG)
            assert session.respond("!COUNT 2").text == "1 2"
        assert client.respond("!COUNT 2").text == "1 2"
    ended(scripted_server, stream.response_id)


async def test_an_asynchronous_call_ends(scripted_server: str) -> None:
    async with asking(scripted_server) as client:
        with ends_in_time():
            await client.respond(LONG)
        async with client.stream(LONG) as stream:
            with ends_in_time():
                async for _ in stream:
                    pass
        assert "1 2" in stream.snapshot().text
        async with client.session() as session:
            with ends_in_time():
                await session.respond(LONG)
            assert (await session.respond("!COUNT 2")).text == "1 2"
        assert (await client.respond("!COUNT 2")).text == "1 2"
    ended(scripted_server, stream.response_id)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_is_waited_between_two_tries_counts(asynchronous: bool) -> None:
    def busy(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(503, headers={"retry-after": "60"}, json={"error": {"message": "later"}})

    transport = httpx2.MockTransport(busy)
    limits = Limits(total=SECONDS)
    if asynchronous:
        async with httpx2.AsyncClient(transport=transport) as http:
            client = AsyncClient("http://host/v1", "k", "generic", "m", http=http, limits=limits)
            with ends_in_time():
                await client.respond("hi")
        return
    with httpx2.Client(transport=transport) as http, ends_in_time():
        Client("http://host/v1", "k", "generic", "m", http=http, limits=limits).respond("hi")
