"""Fixtures of the behaviour tests: the application in process, over each store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.inprocess import InProcess, inprocess_app


@pytest.fixture(params=["memory", "sqlite"])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcess]:
    """The scripted model over the memory and the SQLite store."""
    async with inprocess_app(store=request.param, tmp_path=tmp_path) as app:
        yield app
