"""Responses that another server goes on with: writes that are held back, and what a stream told in the end."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec

from support.inprocess import InProcess, sse_events
from support.unsteady import Call

__all__ = ["Stalls", "replay", "told"]

_IDS = re.compile(
    rb'"(?:id|item_id|call_id|approval_request_id|previous_response_id)":"[a-z]+_[0-9a-f]{44}"|"(?:created_at|completed_at)":\d+'
)


class Stalls:
    """Lets so many writes through, and holds those after them back until it is opened."""

    def __init__(self, writes: int) -> None:
        self.left = writes
        self.stalled = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, call: Call) -> Any:
        """Make the call, now or once it is let through."""
        if self.left <= 0:
            self.stalled.set()
            await self.opened.wait()
        self.left -= 1
        return await call()


def told(events: list[dict[str, Any]]) -> list[bytes]:
    """The events without ids and times; deltas of one part as one, since they may be cut anew."""
    plain: list[dict[str, Any]] = []
    for event in events:
        event = msgspec.json.decode(_IDS.sub(b'"x":0', msgspec.json.encode(event)))
        event.pop("sequence_number")
        if plain and "delta" in event and plain[-1]["type"] == event["type"]:
            plain[-1]["delta"] += event["delta"]
        else:
            plain.append(event)
    return [msgspec.json.encode(event) for event in plain]


async def replay(api: InProcess, name: str) -> list[dict[str, Any]]:
    """The events of a stored response."""
    return sse_events((await api.client.get(f"/responses/{name}?stream=true")).content)
