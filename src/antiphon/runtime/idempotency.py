"""Idempotency keys: a request that is sent again gets the response of the first one (operations C1).

A key belongs to a tenant and to the first body that comes with it, for 24 hours. It stands for a response that its
client was told of, however that ended. A request that was refused, or whose answer was an error, has none: its key is
free, and it is made again when it is sent again. So is one that a restart cut off before its answer, and what is not
stored. Stripe keeps errors of 500 too once it has begun to work; that would make a moment's trouble last a day.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

import msgspec
from msgspec import Struct

from antiphon.errors import ConflictError, InvalidRequestError, NotFoundError, UnavailableError
from antiphon.protocol.request import decode_create_response
from antiphon.protocol.response import TERMINAL_STATUSES
from antiphon.runtime.recovery import RESTARTED
from antiphon.runtime.replays import Replay
from antiphon.runtime.runner import Run
from antiphon.runtime.service import Service
from antiphon.store.base import Scope

__all__ = ["MAX_KEY", "Earlier", "Idempotency", "Idempotent", "idempotent"]

MAX_KEY = 256
"""The longest idempotency key, in characters."""

_CONFLICTS = frozenset({"idempotency_key_in_use", "conversation_locked"})
"""What a request can run into that came at the same time as another one with its key."""


class Idempotent(Struct, frozen=True):
    """A key, and the digest of the request that it came with."""

    key: str
    digest: bytes


def idempotent(key: str | None, method: str, path: str, body: bytes) -> Idempotent | None:
    """What an `Idempotency-Key` stands for; None without one. The path is the same with and without `/v1`.

    Raises:
        InvalidRequestError: the key is empty, too long, or has other characters than printable ASCII.
    """
    if key is None:
        return None
    if not 0 < len(key) <= MAX_KEY or not (key.isascii() and key.isprintable()):
        raise InvalidRequestError(
            f"Invalid 'Idempotency-Key': 1 to {MAX_KEY} printable ASCII characters are expected.",
            param="Idempotency-Key",
            code="invalid_idempotency_key",
        )
    head = f"{method} {path.removeprefix('/v1')}\n".encode()
    return Idempotent(key, hashlib.sha256(head + body).digest())


class Earlier(Struct, frozen=True):
    """The response of an earlier request, and how this one asks for it."""

    response_id: str
    stream: bool
    background: bool
    key: str


class _Fault(Struct):
    code: str


class _End(Struct):
    status: str
    error: _Fault | None = None


_end_of = msgspec.json.Decoder(_End).decode


class _Door(Struct):
    """Lets requests with one key through one by one; `users` counts those at it."""

    lock: asyncio.Lock
    users: int = 0


class Idempotency:
    """Begins each response once. Requests with the same key that come together wait for each other's beginning."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._begun: dict[tuple[str, str], _Door] = {}

    async def create(self, scope: Scope, body: bytes, once: Idempotent, dialect: str | None = None) -> Run | Earlier:
        """Begin the response of a request, unless one with its key was there before; `again` gives that one's.

        `dialect` stands for that of the settings.

        Raises:
            ConflictError: `idempotency_key_reused`, the key came with another request before.
            APIError: the request is refused; nothing of it is kept.
        """
        async with self._door((scope.tenant, once.key)):
            earlier = await self._find(scope, body, once)
            if earlier is not None:
                return earlier
            try:
                given = (once.key, once.digest)
                return await self._service.create(scope, body, idempotency=given, dialect=dialect)
            except ConflictError as error:
                # Another server may have begun it in between.
                earlier = await self._find(scope, body, once) if error.code in _CONFLICTS else None
                if earlier is None:
                    raise
                return earlier

    async def again(self, scope: Scope, earlier: Earlier) -> Replay | bytes:
        """The response of the first request: its events from the beginning where a stream is asked for, else its JSON.

        The JSON is that of its end, which is waited for; of one in the background it is how it stands.

        Raises:
            ConflictError: `idempotency_response_gone`, it is not there any more, or `idempotency_unanswered`, it turned
                out that nobody was told of it, so that the request can be sent once more.
            GoneError: its events are not there any more.
            UnavailableError: the server stops before the response has ended.
        """
        try:
            if earlier.stream:
                return await self._service.replay(scope, earlier.response_id, -1)
            body = await self._service.retrieve(scope, earlier.response_id)
            if not earlier.background and not _has_ended(body):
                await _end(await self._service.replay(scope, earlier.response_id, -1))
                body = await self._service.retrieve(scope, earlier.response_id)
                await self._refuse_unanswered(scope, earlier, body)
                if not _has_ended(body):
                    raise UnavailableError("The server is shutting down. Please try again later.", retry_after=5.0)
        except NotFoundError:
            raise ConflictError(
                "The response of this idempotency key is not there any more. Use a new key to make it anew.",
                code="idempotency_response_gone",
                retry=False,
            ) from None
        return body

    async def _find(self, scope: Scope, body: bytes, once: Idempotent) -> Earlier | None:
        store = self._service.store
        if store is None:
            return None
        record = await store.find_idempotent(scope, once.key, time.time())
        if record is None:
            return None
        if record.digest != once.digest:
            raise ConflictError(
                "This idempotency key came with another request before. Use a new key for a new request.",
                code="idempotency_key_reused",
                retry=False,
            )
        request = decode_create_response(body)
        earlier = Earlier(record.response_id, request.stream, request.background, once.key)
        if self._service.unanswered(scope, record.response_id) or await self._cut_off(scope, earlier):
            await store.free_idempotent(scope, once.key, record.response_id)
            return None
        return earlier

    async def _cut_off(self, scope: Scope, earlier: Earlier) -> bool:
        """Whether a restart has ended a response before its client could be told anything of it."""
        if earlier.stream or earlier.background or self._service.store is None:
            return False
        row = await self._service.store.get_response(scope, earlier.response_id)
        return row is not None and row.status in TERMINAL_STATUSES and _was_cut_off(row.snapshot)

    async def _refuse_unanswered(self, scope: Scope, earlier: Earlier, body: bytes) -> None:
        """Not to give the end of a response that nobody was told of, for which this request has waited.

        Raises:
            ConflictError: it is such an end.
        """
        store = self._service.store
        if store is None or not _has_ended(body):
            return
        record = await store.find_idempotent(scope, earlier.key, time.time())
        if record is None or record.response_id != earlier.response_id or _was_cut_off(body):
            raise ConflictError(
                "The first request with this idempotency key came to no answer. Please send it again.",
                code="idempotency_unanswered",
                retry=True,
            )

    @asynccontextmanager
    async def _door(self, key: tuple[str, str]) -> AsyncGenerator[None]:
        door = self._begun.setdefault(key, _Door(asyncio.Lock()))
        door.users += 1
        try:
            async with door.lock:
                yield
        finally:
            door.users -= 1
            if not door.users:
                del self._begun[key]


async def _end(replay: Replay) -> None:
    """Wait until a response has ended, wherever it runs, or the server stops."""
    live = replay.live
    while live is not None and not live.closed:
        await live.wait()
    if live is None or live.moved:
        async with aclosing(replay.tail(-1)) as tail:
            async for _ in tail:
                pass


def _has_ended(body: bytes) -> bool:
    return _end_of(body).status in TERMINAL_STATUSES


def _was_cut_off(body: bytes) -> bool:
    error = _end_of(body).error
    return error is not None and error.code == RESTARTED.code
