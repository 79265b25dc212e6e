"""The driver behind a proxy that breaks connections: its caller sees every chunk once, and nothing of the breaks."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import httpx2
import pytest

from antiphon.client.chunks import Chunk, ContentChunk
from antiphon.client.client import AsyncClient, Client, Limits
from antiphon.client.errors import StreamCutError, TransportError
from support.breaking import BreakingProxy, Cut, breaking_proxy
from support.server import wait_until

requirement = pytest.mark.requirement
STREAMS = 100 if os.environ.get("ANTIPHON_HEAVY") == "1" else 3
CUTS = 5
COUNT = "!COUNT 60"
WORDS = [f"{number} " for number in range(1, 60)] + ["60"]
PATIENT = Limits(max_retries=8)


@pytest.fixture(scope="module")
def proxy(scripted_server: str) -> Iterator[BreakingProxy]:
    with breaking_proxy(scripted_server) as proxy:
        yield proxy


def client(url: str, **options: object) -> Client:
    # Each connection is new, so that each takes a cut of its own.
    http = httpx2.Client(timeout=10, limits=httpx2.Limits(max_keepalive_connections=0))
    return Client(url, provider="antiphon", model="scripted", http=http, limits=PATIENT, **options)  # type: ignore[arg-type]


def words(chunks: list[Chunk]) -> list[str]:
    return [chunk.text for chunk in chunks if isinstance(chunk, ContentChunk)]


def some_cuts(seed: int) -> list[Cut]:
    chance = random.Random(seed)
    return [Cut(chance.randrange(1500, 2800), chance.choice(("reset", "close"))) for _ in range(CUTS)]


@requirement("driver:resume")
@pytest.mark.parametrize("seed", range(STREAMS))
def test_every_chunk_comes_once_wherever_connections_break(proxy: BreakingProxy, seed: int) -> None:
    proxy.cuts.extend(some_cuts(seed))
    with client(proxy.base_url) as asked, asked.stream(COUNT) as stream:
        chunks = list(stream)
        answer = stream.response()
        assert words(chunks) == WORDS
        assert answer.text == "".join(WORDS)
        assert answer.response_id is not None
        assert not proxy.cuts
        assert asked.retrieve(answer.response_id).output == answer.output


@requirement("driver:resume")
async def test_the_asynchronous_client_does_the_same(proxy: BreakingProxy) -> None:
    for seed in range(1000, 1000 + STREAMS):
        proxy.cuts.extend(some_cuts(seed))
        http = httpx2.AsyncClient(timeout=10, limits=httpx2.Limits(max_keepalive_connections=0))
        async with http, AsyncClient(proxy.base_url, provider="antiphon", http=http, limits=PATIENT) as asked:
            stream = asked.stream(COUNT, model="scripted")
            assert words([chunk async for chunk in stream]) == WORDS
            assert (await stream.response()).text == "".join(WORDS)
            assert not proxy.cuts


@requirement("driver:resume")
def test_a_request_that_broke_before_its_answer_makes_one_response_only(
    proxy: BreakingProxy, scripted_server: str
) -> None:
    sent: list[httpx2.Request] = []
    proxy.cuts.extend([Cut(20), Cut(250, "close")])
    http = httpx2.Client(limits=httpx2.Limits(max_keepalive_connections=0), event_hooks={"request": [sent.append]})
    with http, Client(proxy.base_url, provider="antiphon", model="scripted", http=http, limits=PATIENT) as asked:
        stream = asked.stream(COUNT)
        assert words(list(stream)) == WORDS
    posts = [request for request in sent if request.method == "POST"]
    assert len(posts) >= 3
    assert len({request.headers["idempotency-key"] for request in posts}) == 1
    # Sent once more, it is still that response.
    headers = {"idempotency-key": posts[0].headers["idempotency-key"], "content-type": "application/json"}
    again = httpx2.post(f"{scripted_server}/responses", headers=headers, content=posts[0].content)
    assert f'"id":"{stream.response_id}"' in again.text


@requirement("driver:timeouts", "driver:resume")
def test_a_connection_that_stalls_is_left_for_another(proxy: BreakingProxy) -> None:
    proxy.cuts.extend([Cut(2500, "stall"), Cut(700, "stall")])
    http = httpx2.Client(timeout=0.2, limits=httpx2.Limits(max_keepalive_connections=0))
    with http, Client(proxy.base_url, provider="antiphon", model="scripted", http=http, limits=PATIENT) as asked:
        begun = time.monotonic()
        assert words(list(asked.stream(COUNT))) == WORDS
        assert time.monotonic() - begun < 8


@requirement("driver:timeouts")
def test_an_endpoint_that_says_nothing_is_given_up(proxy: BreakingProxy) -> None:
    proxy.cuts.append(Cut(0, "stall"))
    limits = Limits(silence=0.2, max_retries=0)
    with (
        Client(proxy.base_url, provider="antiphon", limits=limits) as asked,
        pytest.raises(TransportError) as caught,
    ):
        asked.respond("hi", model="scripted")
    assert caught.value.timeout


@requirement("driver:streams")
def test_a_cut_in_the_foreground_is_told(proxy: BreakingProxy) -> None:
    proxy.cuts.append(Cut(2500))
    with client(proxy.base_url, resume=False) as asked, pytest.raises(StreamCutError) as caught:
        list(asked.stream(COUNT))
    assert caught.value.response_id is not None


@requirement("driver:retries")
def test_a_server_that_is_not_there_is_told_after_some_tries() -> None:
    limits = Limits(max_retries=1)
    with Client("http://127.0.0.1:9/v1", limits=limits) as asked, pytest.raises(TransportError, match="reached"):
        asked.respond("hi")


@requirement("driver:cancel")
def test_who_leaves_a_stream_ends_the_answer(scripted_server: str) -> None:
    def left(name: str | None) -> str | None:
        assert name is not None
        return asked.retrieve(name).status

    with client(scripted_server) as asked:
        with asked.stream("!SLOW 50\n!COUNT 1000") as stream:
            next(stream)
            name = stream.response_id
        assert left(name) == "cancelled"
        assert list(stream) == []
        for _ in (loop := asked.stream("!SLOW 50\n!COUNT 1000")):
            name = loop.response_id
            break
        del loop
        assert left(name) == "cancelled"
        with client(scripted_server, resume=False) as foreground, foreground.stream("!SLOW 50\n!COUNT 1000") as stream:
            next(stream)
            name = stream.response_id
        wait_until(lambda: left(name) == "cancelled")
        with asked.stream("!SLOW 1\n!COUNT 100", background=True) as stream:
            next(stream)
            name = stream.response_id
        assert asked.wait(name or "").status == "completed"
