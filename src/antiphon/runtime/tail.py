"""The tail of a response in the store: its events from a number on, and then those that are still written.

For whatever does not run in this process: what has ended, what another server runs, and what waits to go on.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from antiphon.protocol.response import TERMINAL_STATUSES
from antiphon.runtime.bells import Bells
from antiphon.store.base import EventBatch, Scope, Store

__all__ = ["BATCHES_A_STEP", "stored_batches", "stored_tail"]

POLL_SECONDS = 0.2
"""A ring can be missed, so a reader looks by itself this often."""

BATCHES_A_STEP = 32
"""Batches of events that a reader holds at once, however long the log is."""


async def stored_batches(store: Store, scope: Scope, response_id: str, after: int) -> AsyncGenerator[list[EventBatch]]:
    """The batches with events after a number that are there, some at a time; they may begin before it."""
    while batches := await store.events(scope, response_id, after, BATCHES_A_STEP):
        yield batches
        if len(batches) < BATCHES_A_STEP:
            return
        after = batches[-1].last_sequence


async def stored_tail(
    store: Store,
    bells: Bells,
    scope: Scope,
    response_id: str,
    after: int,
    *,
    silence_seconds: float,
    stopped: Callable[[], bool],
) -> AsyncGenerator[list[EventBatch]]:
    """The batches with events after a number, to the terminal event; an empty list for each so long silence.

    Batches may begin before `after`. It ends early where the response is gone or `stopped` says so.
    """
    heard = time.monotonic()
    while True:
        # First the state, then the events: all events of what has ended by now are there.
        row = await store.get_response(scope, response_id)
        silent = True
        async with aclosing(stored_batches(store, scope, response_id, after)) as found:
            async for batches in found:
                after = batches[-1].last_sequence
                silent = False
                yield batches
                heard = time.monotonic()
        if row is None or stopped():
            return
        if row.status in TERMINAL_STATUSES:
            return
        if silent:
            await bells.wait(scope.tenant, response_id, POLL_SECONDS)
            if time.monotonic() - heard >= silence_seconds:
                heard = time.monotonic()
                yield []
