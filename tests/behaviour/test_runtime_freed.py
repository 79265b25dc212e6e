"""What a request held is freed when it has ended, and does not wait for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.http.app import create_app
from antiphon.runtime.completions import CompletionRun
from antiphon.runtime.runner import Run
from support.asgi import ManualExchange
from support.inprocess import InProcess

requirement = pytest.mark.requirement

SAID = {"messages": [{"role": "user", "content": "hi"}]}
LONGER = "!SLOW 20\n!COUNT 5"
"""Takes so long that its client is watched, which may go away."""

REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "whole": ("/v1/responses", {"input": "hi"}),
    "stream": ("/v1/responses", {"input": "hi", "stream": True}),
    "unstored": ("/v1/responses", {"input": "hi", "store": False}),
    "background": ("/v1/responses", {"input": "hi", "background": True}),
    "summary": ("/v1/responses", {"input": "!THINK a\n!TEXT b", "reasoning": {"summary": "auto"}}),
    "watched": ("/v1/responses", {"input": LONGER}),
    "watched stream": ("/v1/responses", {"input": LONGER, "stream": True}),
    "watched chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONGER}]}),
    "refused": ("/v1/responses", {"input": "!HTTP_ERROR 500"}),
    "chat": ("/v1/chat/completions", SAID),
    "several": ("/v1/chat/completions", {**SAID, "n": 3, "stream": True}),
}


@pytest.fixture
def uncollected() -> Iterator[None]:
    """The garbage collector does nothing."""
    gc.disable()
    yield
    gc.enable()


async def freed(before: set[int]) -> None:
    """Wait until no run is left but those of before."""
    async with asyncio.timeout(60):
        while left := [
            found for found in gc.get_objects() if isinstance(found, Run | CompletionRun) and id(found) not in before
        ]:
            del left
            await asyncio.sleep(0.01)


@requirement("runs:freed")
@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("name", REQUESTS)
async def test_nothing_refers_to_a_run_that_has_ended(api: InProcess, name: str) -> None:
    path, body = REQUESTS[name]
    before = {id(found) for found in gc.get_objects() if isinstance(found, Run | CompletionRun)}
    await ManualExchange(create_app(api.service), {"model": "scripted", **body}, path).finished()
    await freed(before)


LEFT: dict[str, tuple[str, dict[str, Any]]] = {
    "response": ("/v1/responses", {"input": "!SLOW 5\n!COUNT 100000", "stream": True}),
    "unstored": ("/v1/responses", {"input": "!SLOW 5\n!COUNT 100000", "stream": True, "store": False}),
    "chat": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "!SLOW 5\n!COUNT 100000"}], "stream": True},
    ),
}


@requirement("runs:freed")
@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("name", LEFT)
async def test_nothing_refers_to_a_run_that_was_left(api: InProcess, name: str) -> None:
    path, body = LEFT[name]
    before = {id(found) for found in gc.get_objects() if isinstance(found, Run | CompletionRun)}
    exchange = ManualExchange(create_app(api.service), {"model": "scripted", **body}, path)
    for _ in range(5):
        await exchange.next()
    exchange.leave()
    await exchange.finished()
    await freed(before)
