"""A SQLite store in a folder of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.store.base import StoreLimits
from antiphon.store.sqlite import SQLiteStore
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
