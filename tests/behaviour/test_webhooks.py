"""Webhooks over each store and a real receiver: signed, tried again, sent once, never to where they may not go."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import InvalidWebhookSignatureError, OpenAI
from openai.types.webhooks import ResponseCompletedWebhookEvent
from standardwebhooks import Webhook

from antiphon.http.telemetry import Telemetry
from antiphon.protocol.response import Response
from antiphon.runtime.observer import Observer
from antiphon.runtime.webhooks import MAX_OF_ONE, MAX_PARALLEL, Schedule, Webhooks
from antiphon.settings import Settings, WebhookConfig
from antiphon.store.base import FinishedResponse, Rooms, Store, StoreLimits
from support.receiver import Receiver, receiver, reply
from support.stores import OURS, Clock, begun, make_store

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
QUICK = Schedule(first=0.01, poll=0.02, request=5.0)
PATIENCE = 60.0
LATER = 10e9


class Outcomes(Observer):
    """How attempts ended, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.faults: list[str] = []
        self._told = asyncio.Event()

    def webhook_attempt(self, outcome: str) -> None:
        self.seen.append(outcome)
        self._told.set()

    def fault(self, message: str, error: BaseException) -> None:
        self.faults.append(message)

    async def wait(self, count: int) -> list[str]:
        """All of them, once there are so many."""
        async with asyncio.timeout(PATIENCE):
            while len(self.seen) < count:
                self._told.clear()
                await self._told.wait()
        return self.seen


def settings(url: str, secret: str = SECRET, allow: tuple[str, ...] = ("127.0.0.1",)) -> Settings:
    return Settings(webhooks=(WebhookConfig(f"{url}/hook?token=hidden", secret),), allow_outbound=allow)


@pytest.fixture
async def target() -> AsyncIterator[Receiver]:
    async with receiver() as found:
        yield found


@pytest.fixture
def outcomes() -> Outcomes:
    return Outcomes()


async def end(store: Store, webhooks: Webhooks, name: str = "resp_1") -> str:
    """End a background response; the id of its event."""
    ended = Response(name, 1000, "m", status="completed", background=True)
    await store.create_response(OURS, begun(name))
    (delivery,) = found = webhooks.deliveries(ended)
    finished = FinishedResponse(name, "completed", 1001, b"{}", [], [], deliveries=found)
    assert await store.finish_response(OURS, finished)
    return delivery.id


async def end_for_all(store: Store, webhooks: Webhooks, name: str) -> None:
    """End a background response that all endpoints are to be told of."""
    found = webhooks.deliveries(Response(name, 1000, "m", status="completed", background=True))
    await store.create_response(OURS, begun(name))
    assert await store.finish_response(OURS, FinishedResponse(name, "completed", 1001, b"{}", [], [], deliveries=found))


def client(secret: str = SECRET) -> OpenAI:
    return OpenAI(api_key="none", webhook_secret=secret)


async def left(store: Store) -> list[str]:
    return [delivery.id for delivery in await store.due_deliveries(LATER, 1.0, 1_000)]


@pytest.mark.requirement("webhooks:signature")
@pytest.mark.parametrize("secret", [SECRET, "a plain sentence as the secret"])
async def test_an_event_is_delivered_and_verified_by_the_sdk(
    store: Store, target: Receiver, outcomes: Outcomes, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhooks = Webhooks(settings(target.url, secret), store, outcomes, schedule=QUICK)
    webhooks.start()
    identity = await end(store, webhooks)
    (request,) = await target.wait(1)
    assert await outcomes.wait(1) == ["delivered"]
    await webhooks.stop()

    assert (request.method, request.path) == ("POST", "/hook?token=hidden")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["webhook-id"] == identity
    event = client(secret).webhooks.unwrap(request.body, request.headers)
    assert isinstance(event, ResponseCompletedWebhookEvent)
    assert (event.id, event.data.id, event.object) == (identity, "resp_1", "event")
    assert abs(event.created_at - time.time()) < 60
    if secret == SECRET:
        assert Webhook(secret).verify(request.body, request.headers)["type"] == "response.completed"
    with pytest.raises(InvalidWebhookSignatureError):
        client(secret).webhooks.unwrap(request.body.replace(b"resp_1", b"resp_2"), request.headers)
    with pytest.raises(InvalidWebhookSignatureError):
        client("another secret").webhooks.unwrap(request.body, request.headers)
    sent_at = time.time()
    monkeypatch.setattr("openai.lib._webhooks.time.time", lambda: sent_at + 301)
    with pytest.raises(InvalidWebhookSignatureError, match="too old"):
        client(secret).webhooks.unwrap(request.body, request.headers)
    assert await left(store) == []
    assert outcomes.faults == []


@pytest.mark.requirement("webhooks:retries")
async def test_all_but_success_is_tried_again_under_the_same_id(
    store: Store, target: Receiver, outcomes: Outcomes
) -> None:
    target.answers = [
        reply(500),
        reply(302, b"", f"location: {target.url}/elsewhere"),
        reply(429, b"", "retry-after: 3600"),
        reply(404),
        b"",
        reply(200, b"x" * 1_000_000),
    ]
    webhooks = Webhooks(settings(target.url), store, outcomes, schedule=QUICK)
    webhooks.start()
    identity = await end(store, webhooks)
    assert await outcomes.wait(6) == ["failed"] * 5 + ["delivered"]
    await webhooks.stop()
    assert [request.path for request in target.requests] == ["/hook?token=hidden"] * 6
    assert {request.headers["webhook-id"] for request in target.requests} == {identity}
    assert len({request.body for request in target.requests}) == 1
    for request in target.requests:
        client().webhooks.unwrap(request.body, request.headers)
    assert await left(store) == []


@pytest.mark.requirement("webhooks:retries")
@pytest.mark.parametrize("status", [200, 201, 204, 299])
async def test_every_2xx_is_success(store: Store, target: Receiver, outcomes: Outcomes, status: int) -> None:
    target.answers = [reply(status)]
    webhooks = Webhooks(settings(target.url), store, outcomes, schedule=QUICK)
    webhooks.start()
    await end(store, webhooks)
    assert await outcomes.wait(1) == ["delivered"]
    await webhooks.stop()
    assert await left(store) == []


@pytest.mark.requirement("webhooks:retries")
async def test_an_endpoint_that_says_gone_is_not_asked_again(
    store: Store, target: Receiver, outcomes: Outcomes
) -> None:
    target.answers = [reply(410)]
    webhooks = Webhooks(settings(target.url), store, outcomes, schedule=QUICK)
    webhooks.start()
    await end(store, webhooks)
    assert await outcomes.wait(1) == ["gone"]
    await webhooks.stop()
    assert await left(store) == []


@pytest.mark.requirement("webhooks:retries")
async def test_after_three_days_an_event_is_given_up(store: Store, target: Receiver, outcomes: Outcomes) -> None:
    clock = Clock()
    target.answers = [reply(500), reply(500)]
    webhooks = Webhooks(settings(target.url), store, outcomes, schedule=QUICK, clock=clock)
    identity = await end(store, webhooks)
    webhooks.start()
    await outcomes.wait(1)
    await webhooks.stop()
    clock.now += QUICK.total
    again = Webhooks(settings(target.url), store, outcomes, schedule=QUICK, clock=clock)
    again.start()
    assert await outcomes.wait(2) == ["failed", "expired"]
    await again.stop()
    assert [request.headers["webhook-id"] for request in target.requests] == [identity] * 2
    assert await left(store) == []


@pytest.mark.requirement("webhooks:restart")
async def test_retries_go_on_after_a_restart_under_the_same_id(
    tmp_path: Path, target: Receiver, outcomes: Outcomes
) -> None:
    target.answers = [reply(503)]
    first = make_store("sqlite", tmp_path, StoreLimits(), Clock())
    await first.open()
    webhooks = Webhooks(settings(target.url), first, outcomes, schedule=QUICK)
    webhooks.start()
    identity = await end(first, webhooks)
    await outcomes.wait(1)
    await webhooks.stop()
    await first.close()

    second = make_store("sqlite", tmp_path, StoreLimits(), Clock())
    await second.open()
    again = Webhooks(settings(target.url), second, outcomes, schedule=QUICK)
    again.start()
    assert await outcomes.wait(2) == ["failed", "delivered"]
    await again.stop()
    assert [request.headers["webhook-id"] for request in target.requests] == [identity] * 2
    assert target.requests[0].body == target.requests[1].body
    assert await left(second) == []
    await second.close()


@pytest.mark.requirement("webhooks:restart")
async def test_what_a_server_held_when_it_died_is_sent_by_another(
    store: Store, target: Receiver, outcomes: Outcomes
) -> None:
    target.answers = [None]
    short = Schedule(first=0.01, poll=0.02, hold=0.2, request=60.0)
    dying = Webhooks(settings(target.url), store, outcomes, schedule=short)
    dying.start()
    identity = await end(store, dying)
    await target.wait(1)
    for task in [*dying._sending, dying._task]:
        assert task is not None
        task.cancel()
    assert outcomes.seen == []

    other = Webhooks(settings(target.url), store, outcomes, schedule=short)
    other.start()
    assert await outcomes.wait(1) == ["delivered"]
    await other.stop()
    await dying.stop()
    assert [request.headers["webhook-id"] for request in target.requests] == [identity] * 2
    assert await left(store) == []


@pytest.mark.requirement("webhooks:replicas")
async def test_several_servers_share_the_work(store: Store, target: Receiver, outcomes: Outcomes) -> None:
    servers = [Webhooks(settings(target.url), store, outcomes, schedule=QUICK) for _ in range(3)]
    for server in servers:
        server.start()
    sent = {await end(store, servers[number % 3], f"resp_{number}") for number in range(40)}
    await outcomes.wait(40)
    for server in servers:
        await server.stop()
    assert outcomes.seen == ["delivered"] * 40
    assert sorted(request.headers["webhook-id"] for request in target.requests) == sorted(sent)


@pytest.mark.requirement("webhooks:bounded")
async def test_only_so_many_are_sent_to_one_endpoint_at_a_time(
    store: Store, target: Receiver, outcomes: Outcomes
) -> None:
    count = 3 * MAX_OF_ONE
    target.answers = [None] * count
    webhooks = Webhooks(settings(target.url), store, outcomes, schedule=QUICK)
    for number in range(count):
        await end(store, webhooks, f"resp_{number}")
    webhooks.start()
    await target.wait(MAX_OF_ONE)
    target.release.set()
    await outcomes.wait(count)
    await webhooks.stop()
    assert outcomes.seen == ["delivered"] * count
    assert target.most_open <= MAX_OF_ONE


@pytest.mark.requirement("webhooks:bounded")
async def test_only_so_many_are_sent_at_a_time(store: Store, target: Receiver, outcomes: Outcomes) -> None:
    endpoints = tuple(WebhookConfig(f"{target.url}/{number}", SECRET) for number in range(6))
    target.answers = [None] * (6 * MAX_OF_ONE)
    webhooks = Webhooks(Settings(webhooks=endpoints, allow_outbound=("127.0.0.1",)), store, outcomes, schedule=QUICK)
    for number in range(MAX_OF_ONE):
        await end_for_all(store, webhooks, f"resp_{number}")
    webhooks.start()
    await target.wait(MAX_PARALLEL)
    target.release.set()
    await outcomes.wait(6 * MAX_OF_ONE)
    await webhooks.stop()
    assert outcomes.seen == ["delivered"] * 6 * MAX_OF_ONE
    assert target.most_open == MAX_PARALLEL


@pytest.mark.requirement("webhooks:fair")
async def test_an_endpoint_that_hangs_does_not_hold_up_another(
    store: Store, target: Receiver, outcomes: Outcomes
) -> None:
    async with receiver() as hanging:
        hanging.answers = [None] * 100
        both = (WebhookConfig(f"{hanging.url}/hook", SECRET), WebhookConfig(f"{target.url}/hook", SECRET))
        webhooks = Webhooks(Settings(webhooks=both, allow_outbound=("127.0.0.1",)), store, outcomes, schedule=QUICK)
        response = Response("resp_0", 1000, "m", status="completed", background=True)
        held = [one for _ in range(100) for one in webhooks.deliveries(response)[:1]]
        await store.create_response(OURS, begun("resp_0"))
        assert await store.finish_response(
            OURS, FinishedResponse("resp_0", "completed", 1001, b"{}", [], [], deliveries=held)
        )
        webhooks.start()
        await hanging.wait(MAX_OF_ONE)

        await end_for_all(store, webhooks, "resp_1")
        async with asyncio.timeout(20):
            await target.wait(1)
        assert await outcomes.wait(1) == ["delivered"]
        assert len(hanging.requests) == MAX_OF_ONE
        hanging.release.set()
        await outcomes.wait(102)
        await webhooks.stop()
    assert hanging.most_open == MAX_OF_ONE
    assert outcomes.seen == ["delivered"] * 102
    assert await left(store) == []


@pytest.mark.requirement("webhooks:fair")
async def test_an_endpoint_that_fails_is_tried_by_one_at_a_time_until_it_is_well(
    store: Store, target: Receiver, outcomes: Outcomes
) -> None:
    target.answers = [reply(500), None, None]
    webhooks = Webhooks(settings(target.url), store, outcomes, schedule=QUICK)
    webhooks.start()
    await end(store, webhooks)
    await outcomes.wait(1)
    for number in range(2 * MAX_OF_ONE):
        await end(store, webhooks, f"later_{number}")
    await target.wait(2)
    assert target.open == 1
    assert webhooks._rooms().of(next(iter(webhooks._endpoints))) == 0
    target.release.set()
    assert await outcomes.wait(2 + 2 * MAX_OF_ONE) == ["failed"] + ["delivered"] * (1 + 2 * MAX_OF_ONE)
    await webhooks.stop()
    assert webhooks._rooms() == Rooms({}, MAX_OF_ONE)


@pytest.mark.requirement("webhooks:bounded")
async def test_a_server_that_stops_lets_what_it_sends_end(store: Store, target: Receiver, outcomes: Outcomes) -> None:
    target.answers = [None]
    webhooks = Webhooks(settings(target.url), store, outcomes, schedule=QUICK)
    webhooks.start()
    await end(store, webhooks)
    await target.wait(1)
    stopping = asyncio.create_task(webhooks.stop())
    await asyncio.wait({stopping}, timeout=0.05)
    target.release.set()
    await stopping
    assert outcomes.seen == ["delivered"]
    assert await left(store) == []


@pytest.mark.requirement("webhooks:guarded")
@pytest.mark.parametrize("allow", [(), ("127.0.0.2", "10.0.0.0/8", "localhost")])
async def test_an_endpoint_that_is_not_public_is_not_asked_unless_it_is_named(
    store: Store, target: Receiver, outcomes: Outcomes, allow: tuple[str, ...]
) -> None:
    webhooks = Webhooks(settings(target.url, allow=allow), store, outcomes, schedule=QUICK)
    webhooks.start()
    identity = await end(store, webhooks)
    assert set(await outcomes.wait(2)) == {"refused"}
    await webhooks.stop()
    assert target.connections == 0
    assert await left(store) == [identity]


@pytest.mark.requirement("webhooks:settings")
async def test_what_another_configuration_left_waits_for_its_endpoint(
    store: Store, target: Receiver, outcomes: Outcomes
) -> None:
    webhooks = Webhooks(settings(target.url), store, outcomes, schedule=QUICK)
    identity = await end(store, webhooks)
    without = Webhooks(Settings(), store, outcomes, schedule=QUICK)
    without.start()
    assert await outcomes.wait(1) == ["unknown"]
    await without.stop()
    webhooks.start()
    await outcomes.wait(2)
    await webhooks.stop()
    assert outcomes.seen[-1] == "delivered"
    assert [request.headers["webhook-id"] for request in target.requests] == [identity]


class Failing:
    """A store that cannot be asked for webhooks at first."""

    def __init__(self, store: Store, failures: int) -> None:
        self._store = store
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def due_deliveries(self, now: float, hold_seconds: float, most: int, rooms: Rooms) -> Any:
        if self._failures:
            self._failures -= 1
            raise OSError("the disk is away")
        return await self._store.due_deliveries(now, hold_seconds, most, rooms)


@pytest.mark.requirement("webhooks:restart")
async def test_a_store_that_is_away_for_a_while_loses_nothing(
    store: Store, target: Receiver, outcomes: Outcomes
) -> None:
    failing: Any = Failing(store, 3)
    webhooks = Webhooks(settings(target.url), failing, outcomes, schedule=QUICK)
    webhooks.start()
    await end(store, webhooks)
    assert await outcomes.wait(1) == ["delivered"]
    await webhooks.stop()
    assert outcomes.faults == ["webhooks that are due could not be read"] * 3


@pytest.mark.requirement("webhooks:metrics")
async def test_attempts_are_counted_and_no_secret_is_told(
    store: Store, target: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    target.answers = [reply(500), reply(200)]
    telemetry = Telemetry()
    outcomes = Outcomes()

    class Both(Observer):
        def webhook_attempt(self, outcome: str) -> None:
            telemetry.webhook_attempt(outcome)
            outcomes.webhook_attempt(outcome)

    webhooks = Webhooks(settings(target.url), store, Both(), schedule=QUICK)
    webhooks.start()
    await end(store, webhooks)
    await outcomes.wait(2)
    await webhooks.stop()
    for outcome in ("refused", "unknown", "expired"):
        telemetry.webhook_attempt(outcome)
    told = telemetry.exposition().decode()
    for outcome in ("failed", "delivered", "refused", "unknown", "expired"):
        assert f'antiphon:webhook_attempts_total{{outcome="{outcome}"}} 1.0' in told
    said = "".join(capsys.readouterr())
    assert "webhook refused" in said
    assert not any(word in text for text in (told, said) for word in ("hidden", SECRET, "127.0.0.1", "resp_1"))
