"""A client in a thread of its own that reads one stream, while the test does other things."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx2

from antiphon.protocol.json import loads

__all__ = ["Follower"]

DEADLINE = 60.0


class Follower:
    """Reads a stream to its end; `frames` are the whole events that have come, as they are on the wire."""

    def __init__(self, base_url: str, method: str, path: str, body: Any = None) -> None:
        self.frames: list[bytes] = []
        self.status = 0
        self.done = False
        """Whether `[DONE]` has come."""
        self.error: Exception | None = None
        self._request = (method, f"{base_url}{path}", body)
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events that have come."""
        return [loads(frame.split(b"\ndata: ", 1)[1]) for frame in list(self.frames)]

    @property
    def id(self) -> str:
        """The response's id, from its first event."""
        return self.events[0]["response"]["id"]

    def wait_for(self, count: int) -> None:
        """Wait until so many events have come."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.frames) >= count or not self._thread.is_alive(), DEADLINE)
        assert came, f"{len(self.frames)} events in {DEADLINE} s"
        assert len(self.frames) >= count, (self.status, self.error, self.events[-1:])

    def end(self, seconds: float = DEADLINE) -> list[bytes]:
        """All events, once the stream has come to its end."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"the stream goes on after {seconds} s; {len(self.frames)} events"
        assert self.done, (self.status, self.error, self.events[-1:])
        return self.frames

    def quiet_for(self, seconds: float) -> int:
        """The number of events, once none has come for so long."""
        with self._changed:
            while True:
                before, since = len(self.frames), time.monotonic()
                self._changed.wait_for(lambda before=before: len(self.frames) > before, seconds)
                if len(self.frames) == before and time.monotonic() - since >= seconds:
                    return before

    def _read(self) -> None:
        method, url, body = self._request
        try:
            with httpx2.Client(timeout=DEADLINE) as client, client.stream(method, url, json=body) as answer:
                self.status = answer.status_code
                rest = b""
                for chunk in answer.iter_bytes():
                    *frames, rest = (rest + chunk).split(b"\n\n")
                    self._take(frames)
        except Exception as error:  # noqa: BLE001 - the test that waits is told
            self.error = error
        with self._changed:
            self._changed.notify_all()

    def _take(self, frames: list[bytes]) -> None:
        with self._changed:
            for frame in frames:
                if frame.startswith(b"event: "):
                    self.frames.append(frame + b"\n\n")
                elif frame == b"data: [DONE]":
                    self.done = True
            self._changed.notify_all()
