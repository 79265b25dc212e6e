"""Sandboxes for tests: bubblewrap where it is installed, and small limits."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from antiphon.tools.code.bubblewrap import Bubblewrap, find_bubblewrap
from antiphon.tools.code.sandbox import Box, BoxLimits, NoSandboxError

__all__ = ["SMALL", "bubblewrap", "small_box"]

SMALL = BoxLimits(memory=128 * 1024 * 1024, disk=8 * 1024 * 1024, processes=24)

_found: list[Bubblewrap] = []


async def bubblewrap() -> Bubblewrap:
    """Bubblewrap as it works here; skips the test where it does not, unless ANTIPHON_REQUIRE_BWRAP=1 asks for it."""
    if not _found:
        try:
            _found.append(await find_bubblewrap())
        except NoSandboxError as error:
            if os.environ.get("ANTIPHON_REQUIRE_BWRAP") == "1":
                pytest.fail(f"bubblewrap is required: {error}")
            pytest.skip(str(error))
    return _found[0]


@asynccontextmanager
async def small_box(limits: BoxLimits = SMALL) -> AsyncIterator[Box]:
    """A box that is ended with the block."""
    box = await (await bubblewrap()).start(limits)
    try:
        yield box
    finally:
        await box.close()
