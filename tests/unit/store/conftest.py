"""A SQLite store in a folder of its own, and PostgreSQL stores over a database of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from antiphon.store.base import StoreLimits
from antiphon.store.postgres import PostgresStore
from antiphon.store.sqlite import SQLiteStore
from support.postgres import Cluster, Server, cluster
from support.stores import Clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store lies; the folders are not there yet."""
    return tmp_path / "deep" / "state" / "a.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    """An open store without limits."""
    store = SQLiteStore(path, StoreLimits(), Clock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def postgres() -> Cluster:
    """The PostgreSQL cluster of the session."""
    return cluster()


@pytest.fixture
def database(postgres: Cluster) -> Iterator[str]:
    """The name of a database with the schema of the store and nothing in it."""
    name = postgres.create_database()
    yield name
    postgres.drop_database(name)


@pytest.fixture
async def server(postgres: Cluster, database: str) -> AsyncIterator[Server]:
    """Opens stores over one database, as many servers would; each is closed after the test."""
    async with AsyncExitStack() as opened:

        async def open_one(clock: Clock | None = None, **limits: float) -> PostgresStore:
            store = PostgresStore(postgres.url(database), StoreLimits(**limits), clock or Clock())
            await store.open()
            opened.push_async_callback(store.close)
            return store

        yield open_one
