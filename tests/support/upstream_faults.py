"""What a server makes of every fault of an upstream, whichever way that is asked."""

from __future__ import annotations

import time
from typing import Any

from support.inprocess import InProcess, sse_events
from support.upstream import (
    FAULTS,
    KEY,
    REFUSALS,
    FakeUpstream,
    dies,
    dies_in_a_chunk,
    error_in_a_200,
    half_a_frame,
    said,
    stalls,
)

__all__ = ["IDLE", "fails_in_every_way"]

IDLE = 0.5
"""Seconds after which the upstream of the server is to count as gone."""

_HIDDEN = ("10.1.2.3", "/srv", KEY, "127.0.0.1", "html")


async def fails_in_every_way(app: InProcess, fake: FakeUpstream) -> None:
    """Each fault ends in a failed response that is stored, or in its status, in time and in words of ours."""
    for fault, code in FAULTS.items():
        # An answer between two faults, so that the upstream does not count as gone.
        fake.behave = said("Hello")
        assert (await app.create("Hi"))["output_text"] == "Hello"
        fake.behave = fault
        began = time.monotonic()
        answer = await app.client.post("/responses", json={"model": "scripted", "input": "Hi", "stream": True})
        elapsed = time.monotonic() - began
        assert answer.status_code == REFUSALS.get(fault, 200), fault
        output: list[Any] = []
        if fault in REFUSALS:
            error = answer.json()["error"]
        else:
            last = sse_events(answer.content)[-1]
            assert last["type"] == "response.failed", fault
            error = last["response"]["error"]
            stored = (await app.client.get(f"/responses/{last['response']['id']}")).json()
            assert stored["status"] == "failed"
            output = stored["output"]
        assert error["code"] == code, (fault, error)
        assert not [hidden for hidden in _HIDDEN if hidden in error["message"]]
        if fault in (dies, dies_in_a_chunk, half_a_frame, stalls, error_in_a_200):
            assert output[0]["content"][0]["text"] == "Half"
            assert output[0]["status"] == "incomplete"
        assert elapsed < 20 * IDLE, fault
