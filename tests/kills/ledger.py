"""What clients were told, and whether it is still so: the rules of issue 3, section Crash, as checks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2

from antiphon.protocol.json import loads

__all__ = ["BrokenPromiseError", "Deed", "Ledger", "frames_of"]

TERMINAL = frozenset({"completed", "failed", "incomplete", "cancelled"})
STUCK_SECONDS = 5.0


class BrokenPromiseError(AssertionError):
    """A promise that was not kept."""


@dataclass
class Deed:
    """One response as its client knows it.

    `frames` are the SSE frames that were read, `body` the object that was acknowledged, `expected` the text that the
    script must come to, `deleted` and `cancelled` what was acknowledged of those.
    """

    kind: str
    id: str = ""
    background: bool = False
    frames: list[bytes] = field(default_factory=list)
    body: dict[str, Any] | None = None
    expected: str | None = None
    deleted: bool = False
    deleting: bool = False
    cancelled: dict[str, Any] | None = None
    cancelling: bool = False
    conversation: str = ""

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.kind} {self.id}"


def frames_of(content: bytes) -> list[bytes]:
    """The whole frames of a stream, comments and the `[DONE]` left out."""
    whole, _, _ = content.rpartition(b"\n\n")
    frames = [frame + b"\n\n" for frame in whole.split(b"\n\n")] if whole else []
    return [frame for frame in frames if frame.startswith(b"event: ")]


def event_of(frame: bytes) -> dict[str, Any]:
    """The event of a frame."""
    return loads(frame.split(b"\ndata: ", 1)[1])


class Ledger:
    """All deeds, and the checks of each. `client` asks a server that is up; `restarted_at` is when it was."""

    def __init__(self) -> None:
        self.open: list[Deed] = []
        self.checked = 0
        self.resumed = 0
        self.restarted = 0
        self.slowest = 0.0
        self._again: list[Deed] = []

    def add(self, deed: Deed) -> Deed:
        """Keep a deed from its beginning."""
        self.open.append(deed)
        return deed

    async def check(self, ask: Callable[[], httpx2.AsyncClient], restarted_at: float) -> None:
        """Check every deed that is open, each against a server that `ask` names; what was checked stays true.

        Raises:
            BrokenPromiseError: a promise was not kept.
        """
        deeds, self.open = self.open, []
        for deed in [*deeds, *self._again]:
            if deed.id:
                await self._check(ask, deed, restarted_at)
                self.checked += 1
        # A few are looked at again after later kills: what was checked must stay so.
        self._again = ([deed for deed in deeds if deed.id][-4:] + self._again)[:40]

    async def _check(self, ask: Callable[[], httpx2.AsyncClient], deed: Deed, restarted_at: float) -> None:
        if deed.deleted:
            answer = await ask().get(f"/responses/{deed.id}")
            _must(answer.status_code == 404, deed, f"was deleted and answers {answer.status_code}")
            return
        final = await self._terminal(ask, deed, restarted_at)
        if final is None:
            _must(deed.deleting, deed, "is lost")
            deed.deleted = True
            return
        if deed.cancelled is not None:
            _must(final == deed.cancelled, deed, "is not as it was cancelled")
        if deed.body is not None:
            _must(final == deed.body, deed, "is not as it was acknowledged")
        await self._check_log(ask, deed, final)
        if deed.background:
            _must(
                final["status"] == "completed" or deed.cancelling,
                deed,
                f"ended as {final['status']} ({final.get('error')})",
            )
        else:
            lost = final["status"] == "failed" and final["error"]["code"] == "server_restarted"
            self.restarted += lost
            _must(lost or final["status"] in ("completed", "cancelled"), deed, f"ended as {final['status']}")
        if final["status"] == "completed" and deed.expected is not None:
            _must(final["output_text"] == deed.expected, deed, f"says {final['output_text'][:60]!r}")

    async def _terminal(
        self, ask: Callable[[], httpx2.AsyncClient], deed: Deed, restarted_at: float
    ) -> dict[str, Any] | None:
        """The response once it has ended, which must not take long; None where it is gone."""
        while True:
            answer = await ask().get(f"/responses/{deed.id}")
            if answer.status_code == 404:
                return None
            _must(answer.status_code == 200, deed, f"answers {answer.status_code}: {answer.text[:200]}")
            body = answer.json()
            if body["status"] in TERMINAL:
                return body
            waited = time.monotonic() - restarted_at
            self.slowest = max(self.slowest, waited)
            _must(waited < STUCK_SECONDS + 10, deed, f"is {body['status']} {waited:.1f} s after the restart")
            await asyncio.sleep(0.05)

    async def _check_log(self, ask: Callable[[], httpx2.AsyncClient], deed: Deed, final: dict[str, Any]) -> None:
        answer = await ask().get(f"/responses/{deed.id}?stream=true")
        _must(answer.status_code == 200, deed, f"its log answers {answer.status_code}")
        whole = frames_of(answer.content)
        numbers = [event_of(frame)["sequence_number"] for frame in whole]
        _must(numbers == list(range(len(whole))), deed, f"its log is numbered {numbers[:5]}…{numbers[-5:]}")
        _must(event_of(whole[-1])["response"] == final, deed, "its terminal event is not what GET returns")
        seen = deed.frames
        if not seen:
            return
        if deed.background or event_of(seen[-1])["type"] in TERMINAL_EVENTS:
            _must(whole[: len(seen)] == seen, deed, "its log is not what was delivered")
        else:
            # A foreground stream: the durable prefix, then what closes it.
            shared = 0
            while shared < min(len(whole), len(seen)) and whole[shared] == seen[shared]:
                shared += 1
            closing = {event_of(frame)["type"] for frame in whole[shared:]} if shared < len(seen) else set()
            _must(closing <= CLOSING_EVENTS, deed, f"goes on after its durable prefix with {sorted(closing)}")
        after = len(seen) - 1
        if deed.background:
            rest = await ask().get(f"/responses/{deed.id}?stream=true&starting_after={after}")
            _must(seen + frames_of(rest.content) == whole, deed, "what was delivered and the rest are not the log")
            self.resumed += 1


CLOSING_EVENTS = frozenset(
    {
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "error",
        "response.failed",
    }
)
TERMINAL_EVENTS = frozenset({"response.completed", "response.failed", "response.incomplete"})


def _must(kept: bool, deed: Deed, what: str) -> None:
    if not kept:
        raise BrokenPromiseError(f"{deed.name} {what}")
