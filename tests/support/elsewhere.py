"""The application in the test's process, over an upstream with a Responses endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from antiphon.settings import ModelConfig, Settings
from support.inprocess import InProcess, inprocess_app

__all__ = ["serving"]


@asynccontextmanager
async def serving(url: str, **fields: Any) -> AsyncIterator[InProcess]:
    """The application over that upstream; the model is named `scripted` for the helpers of the client."""
    given = {"name": "scripted", "engine": "responses", "profile": "antiphon", "base_url": url, **fields}
    async with inprocess_app(settings=Settings(models=(ModelConfig(**given),))) as app:
        yield app
