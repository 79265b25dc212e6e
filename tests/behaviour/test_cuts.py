"""A thousand random cuts of streams: what was read before the cut and what a resume gives are the stored log."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from antiphon.protocol.sse import SSEParser
from antiphon.settings import Settings
from support.inprocess import InProcess, inprocess_app

CUTS = 1_000
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
SAID = (
    "!COUNT 40",
    "!TEXT größer als 一二三 🙂 words",
    "!REASON Let me see.\n!TEXT An answer of several words",
    '!CALL look {"where": "under the table", "deep": {"er": [1, 2, 3]}}',
    '!REASON\n!CALL look {}\n!CALL look {"again": true}',
    "!REFUSE",
    "!INCOMPLETE This is cut off",
    "!FAIL some words before",
)


async def stream(api: InProcess, said: str, background: bool) -> bytes:
    """The bytes of a stream, as they were delivered live."""
    body = {"model": "scripted", "input": said, "stream": True, "tools": [TOOL], "background": background}
    answer = await api.client.post("/responses", json=body)
    assert answer.status_code == 200
    return answer.content


def read(content: bytes) -> list[str]:
    """The data of the events that are whole."""
    return [frame.data for frame in SSEParser().feed(content)]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.requirement("replay:cuts")
async def test_a_thousand_cuts_lose_nothing_and_repeat_nothing(store: str, tmp_path: Path):
    chosen = random.Random(20)
    async with inprocess_app(settings=Settings(), store=store, tmp_path=tmp_path) as api:
        logs: list[tuple[str, bytes]] = []
        for said in SAID:
            for background in (False, True):
                live = await stream(api, said, background)
                name = live.split(b'"id":"', 1)[1].split(b'"', 1)[0].decode()
                logs.append((name, live))
        for _ in range(CUTS):
            await cut(api, *chosen.choice(logs), chosen)


async def cut(api: InProcess, name: str, live: bytes, chosen: random.Random) -> None:
    """Cut the stream at any byte, in a character and in a frame too, and resume after the last whole event."""
    stored = await replay(api, name)
    assert stored == live
    at = chosen.randint(0, len(live))
    # A client keeps whole frames; the `[DONE]` is no event.
    before = live[: live.rfind(b"\n\n", 0, at) + 2] if b"\n\n" in live[:at] else b""
    seen = [data for data in read(before) if data != "[DONE]"]
    after = len(seen) - 1
    rest = await replay(api, name, starting_after=after)
    whole = before.removesuffix(b"data: [DONE]\n\n") + rest
    assert whole == stored
    assert read(before[:0] + whole)[-1] == "[DONE]"


async def replay(api: InProcess, name: str, **query: Any) -> bytes:
    """The bytes of a replay."""
    answer = await api.client.get(f"/responses/{name}", params={"stream": "true", **query})
    assert answer.status_code == 200, answer.text
    return answer.content
