"""Webhooks: tells endpoints of the settings that a background response has ended, until they say that they know.

The delivery is written in the transaction that ends the response, so that none is lost and none is sent for an end that
is not kept. Any server over the same store may send it: it takes a delivery for a while, and whoever finds it unsettled
after that takes it again. An endpoint therefore gets each event at least once, always under the same id.

Signed as Standard Webhooks say, which is what the OpenAI SDKs verify (faults B1 and B2 20; responses-api 1.4).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import Struct

from antiphon import __version__
from antiphon.errors import ConfigurationError, OutboundError, OutboundRefusedError
from antiphon.outbound.client import OutboundClient
from antiphon.outbound.target import parse_target
from antiphon.protocol.ids import new_id
from antiphon.protocol.json import encode
from antiphon.protocol.response import Response
from antiphon.runtime.observer import Observer
from antiphon.settings import Settings, WebhookConfig
from antiphon.store.base import Delivery, NewDelivery, Rooms, Store

__all__ = ["EVENTS", "Endpoint", "ForwardClock", "Schedule", "Webhooks", "read_endpoints", "sign"]

EVENTS: Final = ("response.completed", "response.failed", "response.incomplete", "response.cancelled")
"""The types of events, one for each way in which a response ends."""

MAX_PARALLEL: Final = 32
"""Deliveries that one server sends at the same time."""

MAX_OF_ONE: Final = 8
"""Those of them that go to one endpoint. It is one at a time while the last attempt at it has failed."""

IDLE_POLL: Final = 60.0
"""How often a server without endpoints looks for deliveries that an earlier configuration left."""

STOP_SECONDS: Final = 5.0
FIRST_IDLE_SHARE: Final = 64
MAX_DOUBLINGS: Final = 30
_ENCODED: Final = "whsec_"
_NAME_DIGITS: Final = 32
_GONE: Final = 410

DELIVERED, GONE, FAILED, REFUSED, UNKNOWN, EXPIRED = "delivered", "gone", "failed", "refused", "unknown", "expired"


class Endpoint(Struct, frozen=True):
    """Where events go. `name` stands for it in the store, which keeps no URLs since they may hold secrets."""

    name: str
    url: str
    secret: bytes
    events: frozenset[str]


class Schedule(Struct, frozen=True):
    """When deliveries are tried, in seconds: at first, `first` later, then in twice the time, at most `longest`.

    After `total` an event is given up. `hold` is for how long a server takes a delivery, `request` how long an attempt
    may take, `poll` how often it is looked whether one is due.
    """

    first: float = 5.0
    longest: float = 6 * 3600.0
    total: float = 72 * 3600.0
    hold: float = 60.0
    request: float = 15.0
    poll: float = 2.0

    def delay(self, attempts: int) -> float:
        """The time to the next attempt after so many, shortened by chance so that not all come together."""
        full = min(self.longest, self.first * 2.0 ** min(attempts, MAX_DOUBLINGS))
        return full * random.uniform(0.75, 1.0)  # noqa: S311 - spreads the load, keeps no secret


class ForwardClock:
    """Seconds since the epoch that never go back and never stand still, whatever is done to the wall clock.

    A clock that is set forward is followed; one that is set back is overtaken by the time that has really passed.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._now = wall()
        self._at = monotonic()

    def __call__(self) -> float:
        """The time."""
        at = self._monotonic()
        self._now = max(self._wall(), self._now + at - self._at)
        self._at = at
        return self._now


class Webhooks:
    """Makes the deliveries of ended responses, and sends what is due in the store. One per process.

    Raises:
        ConfigurationError: an endpoint of the settings, or --allow-outbound, cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store | None,
        observer: Observer,
        *,
        schedule: Schedule | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._endpoints = {endpoint.name: endpoint for endpoint in read_endpoints(settings.webhooks)}
        self._store = store
        self._observer = observer
        self._schedule = schedule or Schedule()
        self._clock = clock or ForwardClock()
        self._client = OutboundClient(settings.allow_outbound)
        self._sending: set[asyncio.Task[None]] = set()
        self._under_way: Counter[str] = Counter()
        self._ailing: set[str] = set()
        self._wake = asyncio.Event()
        self._longest_idle = self._schedule.poll if self._endpoints else IDLE_POLL
        self._idle = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to send; it goes on in the background."""
        if self._store is not None:
            self._task = asyncio.create_task(self._run(self._store))

    async def stop(self) -> None:
        """Send nothing more; what is under way has a moment to end, and else is sent again by the next server."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._sending:
            await asyncio.wait(self._sending, timeout=STOP_SECONDS)
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        await self._client.close()

    def deliveries(self, response: Response) -> list[NewDelivery]:
        """What is to be sent for a response that ends, to be written in the transaction that ends it.

        Only background responses have any: of the others someone waits for the end.
        """
        kind = f"response.{response.status}"
        if not response.background:
            return []
        found = [
            _delivery(endpoint, kind, response.id, int(self._clock()))
            for endpoint in self._endpoints.values()
            if kind in endpoint.events
        ]
        if found:
            # They are not in the store yet: look soon, and then ever less often.
            self._idle = 0.0
            self._wake.set()
        return found

    async def _run(self, store: Store) -> None:
        longest = self._longest_idle
        while True:
            self._wake.clear()
            self._idle = min(longest, max(2 * self._idle, longest / FIRST_IDLE_SHARE))
            room = MAX_PARALLEL - len(self._sending)
            found = await self._take(store, room) if room else []
            for delivery in found:
                self._under_way[delivery.endpoint] += 1
                task = asyncio.create_task(self._attempt(store, delivery))
                self._sending.add(task)
                task.add_done_callback(partial(self._sent, delivery.endpoint))
            if not found or len(found) < room:
                await self._sleep(self._idle)

    async def _take(self, store: Store, most: int) -> list[Delivery]:
        try:
            return await store.due_deliveries(self._clock(), self._schedule.hold, most, self._rooms())
        except Exception as error:  # noqa: BLE001 - the store may be back at the next look
            self._observer.fault("webhooks that are due could not be read", error)
            return []

    def _rooms(self) -> Rooms:
        """How many more may be sent to each endpoint: one that hangs must not hold what the others need."""
        rooms = {name: (1 if name in self._ailing else MAX_OF_ONE) for name in self._ailing | self._under_way.keys()}
        return Rooms({name: room - self._under_way[name] for name, room in rooms.items()}, MAX_OF_ONE)

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _sent(self, endpoint: str, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._under_way[endpoint] -= 1
        if not self._under_way[endpoint]:
            del self._under_way[endpoint]
        self._wake.set()

    async def _attempt(self, store: Store, delivery: Delivery) -> None:
        endpoint = self._endpoints.get(delivery.endpoint)
        outcome = UNKNOWN if endpoint is None else await self._send(endpoint, delivery)
        if outcome == FAILED:
            self._ailing.add(delivery.endpoint)
        else:
            self._ailing.discard(delivery.endpoint)
        again_at: float | None = None
        if outcome not in (DELIVERED, GONE):
            again_at = self._clock() + self._schedule.delay(delivery.attempts)
            if again_at > delivery.created_at + self._schedule.total:
                outcome, again_at = EXPIRED, None
        self._observer.webhook_attempt(outcome)
        try:
            await store.settle_delivery(delivery.scope, delivery.id, again_at)
        except Exception as error:  # noqa: BLE001 - it is due again when nobody holds it any more
            self._observer.fault("the attempt at a webhook could not be noted", error)

    async def _send(self, endpoint: Endpoint, delivery: Delivery) -> str:
        timestamp = str(int(time.time()))
        headers = {
            "content-type": "application/json",
            "user-agent": f"antiphon/{__version__}",
            "webhook-id": delivery.id,
            "webhook-timestamp": timestamp,
            "webhook-signature": sign(endpoint.secret, delivery.id, timestamp, delivery.body),
        }
        try:
            answer = await self._client.request(
                "POST", endpoint.url, seconds=self._schedule.request, headers=headers, body=delivery.body
            )
        except OutboundRefusedError:
            return REFUSED
        except OutboundError:
            return FAILED
        except Exception as error:  # noqa: BLE001 - one that cannot be sent must not be held for ever
            self._observer.fault("a webhook could not be sent", error)
            return FAILED
        if answer.status == _GONE:
            return GONE
        return DELIVERED if 200 <= answer.status < 300 else FAILED


def _delivery(endpoint: Endpoint, kind: str, response_id: str, due_at: int) -> NewDelivery:
    identity = new_id("evt")
    event = {
        "id": identity,
        "object": "event",
        "created_at": int(time.time()),
        "type": kind,
        "data": {"id": response_id},
    }
    return NewDelivery(identity, endpoint.name, encode(event), due_at)


def sign(secret: bytes, identity: str, timestamp: str, body: bytes) -> str:
    """The signature header of Standard Webhooks: HMAC-SHA256 over id, timestamp and body."""
    signed = b".".join((identity.encode(), timestamp.encode(), body))
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


def read_endpoints(tables: tuple[WebhookConfig, ...]) -> list[Endpoint]:
    """The endpoints of the [[webhooks]] tables.

    Raises:
        ConfigurationError: a URL, a secret or an event cannot be used, or two tables have one URL.
    """
    found: dict[str, Endpoint] = {}
    for number, table in enumerate(tables, 1):
        where = f"Table {number} of [[webhooks]]"
        try:
            parse_target(table.url)
        except OutboundRefusedError as error:
            raise ConfigurationError(f"{where} has a url that cannot be used: {error}") from None
        unknown = sorted(set(table.events).difference(EVENTS))
        if unknown:
            raise ConfigurationError(f"{where} names '{unknown[0]}'; events are {', '.join(EVENTS)}.")
        name = hashlib.sha256(table.url.encode()).hexdigest()[:_NAME_DIGITS]
        if name in found:
            raise ConfigurationError(f"{where} has the url of another one: name all its events in one table.")
        found[name] = Endpoint(name, table.url, _secret(table.secret, where), frozenset(table.events or EVENTS))
    return list(found.values())


def _secret(text: str, where: str) -> bytes:
    if not text.startswith(_ENCODED):
        if not text.strip():
            raise ConfigurationError(f"{where} has no secret: its receiver could not tell who sends.")
        return text.encode()
    try:
        secret = base64.b64decode(text.removeprefix(_ENCODED), validate=True)
    except binascii.Error:
        secret = b""
    if not secret:
        raise ConfigurationError(f"{where} has a secret that begins with whsec_ and goes on with no base64.")
    return secret
