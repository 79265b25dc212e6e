"""Fixtures of the behaviour tests: the application in process over each store, and the stores themselves."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from antiphon.store.base import Store, StoreLimits
from support.stores import KINDS, Clock, Make, make_exact_store, make_store

if TYPE_CHECKING:
    from support.inprocess import InProcess


@pytest.fixture(params=["memory", "sqlite"])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcess]:
    """The scripted model over the memory and the SQLite store."""
    # Here, since the tests of the stores need no server.
    from support.inprocess import inprocess_app

    async with inprocess_app(store=request.param, tmp_path=tmp_path) as app:
        yield app


@pytest.fixture
def clock() -> Clock:
    """The time of the stores that `make` opens."""
    return Clock()


@pytest.fixture(params=KINDS)
async def make(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Make]:
    """Opens a store of each kind with the given limits; it is closed after the test."""
    async with _maker(functools.partial(make_store, request.param, tmp_path), clock) as open_one:
        yield open_one


@pytest.fixture(params=KINDS)
async def make_exact(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Make]:
    """The same for tests that count bytes."""
    async with _maker(functools.partial(make_exact_store, request.param, tmp_path), clock) as open_one:
        yield open_one


@asynccontextmanager
async def _maker(make_one: Callable[[StoreLimits, Clock], Store], clock: Clock) -> AsyncGenerator[Make]:
    async with AsyncExitStack() as opened:

        async def open_one(**limits: float) -> Store:
            store = make_one(StoreLimits(**limits), clock)
            await store.open()
            opened.push_async_callback(store.close)
            return store

        yield open_one


@pytest.fixture
async def store(make: Make) -> Store:
    """A store of each kind, without limits."""
    return await make()
