"""The tail of a response in the store: its events from a number on, and then those that are still written.

For whatever does not run in this process: what has ended, what another server runs, and what waits to go on.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable

from antiphon.protocol.response import TERMINAL_STATUSES
from antiphon.runtime.bells import Bells
from antiphon.store.base import EventBatch, Scope, Store

__all__ = ["stored_tail"]

POLL_SECONDS = 0.2
"""A ring can be missed, so a reader looks by itself this often."""


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
        batches = await store.events(scope, response_id, after)
        if batches:
            after = batches[-1].last_sequence
            heard = time.monotonic()
            yield batches
        if row is None or stopped():
            return
        if row.status in TERMINAL_STATUSES:
            return
        if not batches:
            await bells.wait(scope.tenant, response_id, POLL_SECONDS)
            if time.monotonic() - heard >= silence_seconds:
                heard = time.monotonic()
                yield []
