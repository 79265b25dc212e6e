"""Rows for tests of the stores, and a clock that only moves when told."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from antiphon.store.base import (
    EventBatch,
    FinishedResponse,
    NewConversation,
    NewResponse,
    Scope,
    Store,
    StoredItem,
    StoredResponse,
    StoreLimits,
)
from antiphon.store.memory import MemoryStore
from antiphon.store.sealed import SealedStore
from antiphon.store.sealing import DataKey, MasterKey
from antiphon.store.sqlite import SQLiteStore

Make = Callable[..., Awaitable[Store]]
"""Opens a store with the limits that are given by name."""

OURS = Scope("ours")
THEIRS = Scope("theirs")


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def _memory(folder: Path, limits: StoreLimits, clock: Clock) -> Store:
    del folder
    return MemoryStore(limits, clock, clock)


def _sqlite(folder: Path, limits: StoreLimits, clock: Clock) -> Store:
    return SQLiteStore(folder / "state" / "a.db", limits, clock)


MASTER = MasterKey(bytes(range(32)))
"""The key of the stores that are sealed."""


class _Turned(DataKey):
    """Turns bits over instead of sealing, so that a body keeps its size."""

    _TABLE = bytes(255 - byte for byte in range(256))

    def seal(self, kind: str, identity: str, body: bytes) -> bytes:
        return body.translate(self._TABLE)

    open = seal

    def seal_named(self, kind: str, identity: str, body: bytes) -> bytes:
        return self.seal(kind, identity, body)

    def open_named(self, kind: str, sealed: bytes, identity: str | None = None) -> bytes:
        return self.seal(kind, "", sealed)


class _TurningMaster(MasterKey):
    def unwrap(self, tenant: str, wrapped: bytes) -> DataKey:
        super().unwrap(tenant, wrapped)
        return _Turned(tenant, b"")


def _postgres(folder: Path, limits: StoreLimits, clock: Clock) -> Store:
    # Only here: other tests need no database.
    from antiphon.store.postgres import PostgresStore
    from support.postgres import database_for

    return PostgresStore(database_for(folder), limits, clock)


def _sealed(within: Callable[[Path, StoreLimits, Clock], Store]) -> Callable[[Path, StoreLimits, Clock], Store]:
    return lambda folder, limits, clock: SealedStore(within(folder, limits, clock), MASTER, clock)


MAKERS: dict[str, Callable[[Path, StoreLimits, Clock], Store]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgres": _postgres,
    "sealed-memory": _sealed(_memory),
    "sealed-sqlite": _sealed(_sqlite),
}
"""How to make a store of each kind, empty and not opened; the tests that all stores share run for each of them."""

KINDS = tuple(MAKERS)


def make_store(kind: str, folder: Path, limits: StoreLimits, clock: Clock) -> Store:
    """A store of a kind, not opened; what it keeps lies in the folder, or is its own by the folder's name."""
    return MAKERS[kind](folder, limits, clock)


def make_exact_store(kind: str, folder: Path, limits: StoreLimits, clock: Clock) -> Store:
    """The same for tests that count bytes: one that is sealed keeps the size of what it seals."""
    store = make_store(kind, folder, limits, clock)
    if isinstance(store, SealedStore):
        return SealedStore(store.inner, _TurningMaster(bytes(range(32))), clock)
    return store


def wrapped_key(tenant: str) -> bytes:
    """A key of a tenant as a store keeps it, which a store that is sealed can use."""
    return MASTER.new_data_key(tenant)


def writing_connection(store: SQLiteStore) -> sqlite3.Connection:
    """The connection that an open store writes with."""
    opened = store._opened
    assert opened is not None
    return opened.connection


def begun(
    name: str,
    parent: str | None = None,
    items: Sequence[StoredItem] | None = None,
    status: str = "in_progress",
    **fields: Any,
) -> NewResponse:
    """A response that begins, with one input item unless others are given."""
    own = [StoredItem(f"in_{name}", f'"question {name}"'.encode())] if items is None else items
    return NewResponse(name, parent, status, 1000, f'{{"begun":"{name}"}}'.encode(), own, **fields)


def ended(
    name: str,
    status: str = "completed",
    events: Sequence[EventBatch] = (),
    items: Sequence[StoredItem] | None = None,
    **fields: Any,
) -> FinishedResponse:
    """The end of a response, with one output item unless others are given."""
    own = [StoredItem(f"out_{name}", f'"answer {name}"'.encode())] if items is None else items
    return FinishedResponse(name, status, 1001, f'{{"ended":"{name}"}}'.encode(), own, events, **fields)


def batch(first: int, *frames: bytes, sampled: bytes = b"") -> EventBatch:
    """A batch of these frames."""
    offsets = [sum(map(len, frames[:index])) for index in range(len(frames))]
    return EventBatch(first, b"".join(frames), offsets, sampled)


async def add(store: Store, name: str, parent: str | None = None, scope: Scope = OURS) -> None:
    """Store a finished response."""
    await store.create_finished_response(scope, begun(name, parent), ended(name))


async def look_up(store: Store, name: str) -> StoredResponse:
    """A response that is there."""
    response = await store.get_response(OURS, name)
    assert response is not None
    return response


async def frames(store: Store, name: str, scope: Scope = OURS) -> bytes:
    """All events of a response."""
    return b"".join([one.body for one in await store.events(scope, name)])


def talk(name: str, *items: StoredItem) -> NewConversation:
    """A conversation that begins with these items."""
    return NewConversation(name, 1000, b'{"topic":"%s"}' % name.encode(), items)


def item(name: str, size: int = 1) -> StoredItem:
    """An item with a body of so many bytes."""
    return StoredItem(name, b"i" * size)


async def ids(store: Store, name: str) -> list[str]:
    """The ids of a chain."""
    return [turn.id for turn in await store.chain(OURS, name)]


async def size(store: Store) -> int:
    """The bytes that a store holds."""
    return (await store.status()).bytes
