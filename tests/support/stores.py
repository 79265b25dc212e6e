"""Rows for tests of the stores, and a clock that only moves when told."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from antiphon.store.base import EventBatch, FinishedResponse, NewResponse, Scope, Store, StoredItem, StoreLimits
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SQLiteStore

OURS = Scope("ours")
THEIRS = Scope("theirs")


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def make_store(kind: str, folder: Path, limits: StoreLimits, clock: Clock) -> Store:
    """A store of a kind, not opened."""
    return MemoryStore(limits, clock) if kind == "memory" else SQLiteStore(folder / "state" / "a.db", limits, clock)


def writing_connection(store: SQLiteStore) -> sqlite3.Connection:
    """The connection that an open store writes with."""
    opened = store._opened
    assert opened is not None
    return opened.connection


def begun(
    name: str, parent: str | None = None, items: Sequence[StoredItem] | None = None, status: str = "in_progress"
) -> NewResponse:
    """A response that begins, with one input item unless others are given."""
    own = [StoredItem(f"in_{name}", f'"question {name}"'.encode())] if items is None else items
    return NewResponse(name, parent, status, 1000, f'{{"begun":"{name}"}}'.encode(), own)


def ended(
    name: str, status: str = "completed", events: Sequence[EventBatch] = (), items: Sequence[StoredItem] | None = None
) -> FinishedResponse:
    """The end of a response, with one output item unless others are given."""
    own = [StoredItem(f"out_{name}", f'"answer {name}"'.encode())] if items is None else items
    return FinishedResponse(name, status, 1001, f'{{"ended":"{name}"}}'.encode(), own, events)


def batch(first: int, *frames: bytes) -> EventBatch:
    """A batch of these frames."""
    offsets = [sum(map(len, frames[:index])) for index in range(len(frames))]
    return EventBatch(first, b"".join(frames), offsets)


async def add(store: Store, name: str, parent: str | None = None, scope: Scope = OURS) -> None:
    """Store a finished response."""
    await store.create_finished_response(scope, begun(name, parent), ended(name))


async def ids(store: Store, name: str) -> list[str]:
    """The ids of a chain."""
    return [turn.id for turn in await store.chain(OURS, name)]


async def size(store: Store) -> int:
    """The bytes that a store holds."""
    return (await store.status()).bytes
