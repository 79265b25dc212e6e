"""A stand-in for a Responses server on loopback: it streams what a test tells it and records what it was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.http_thread import serving

__all__ = ["ResponsesStub", "answer", "responses_stub"]

Event = dict[str, Any]


def answer(response_id: str, *deltas: str, thinking: str = "", status: str = "completed", **final: Any) -> list[Event]:
    """The events of one response."""
    events: list[Event] = [{"type": "response.created", "response": {"id": response_id, "status": "in_progress"}}]
    if thinking:
        events.append({"type": "response.reasoning_text.delta", "delta": thinking})
    events.extend({"type": "response.output_text.delta", "delta": delta} for delta in deltas)
    events.append({"type": f"response.{status}", "response": {"id": response_id, "status": status, **final}})
    return events


@dataclass
class ResponsesStub:
    """What the server answers with, one entry of `answers` a request, and what it was asked."""

    base_url: str = ""
    models: list[str] = field(default_factory=lambda: ["first", "second"])
    refuse: tuple[int, Any] | None = None
    answers: list[list[Event]] = field(default_factory=list[list[Event]])
    done: bool = True
    requests: list[Event] = field(default_factory=list[Event])
    keys: list[str | None] = field(default_factory=list["str | None"])
    posted_keys: list[str | None] = field(default_factory=list["str | None"])


def _handler(stub: ResponsesStub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stub.keys.append(self.headers["authorization"])
            self._json(200, {"object": "list", "data": [{"id": name} for name in stub.models]})

        def do_POST(self) -> None:
            stub.posted_keys.append(self.headers["authorization"])
            stub.requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            if stub.refuse is not None:
                self._json(*stub.refuse)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            frames = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in stub.answers.pop(0)]
            # In one write: a client that leaves after the first event would break the next.
            self.wfile.write("".join([*frames, "data: [DONE]\n\n" if stub.done else ""]).encode())

        def _json(self, status: int, body: Any) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def responses_stub() -> Iterator[ResponsesStub]:
    """A running stand-in; change its fields to change its answers."""
    stub = ResponsesStub()
    with serving(_handler(stub)) as port:
        stub.base_url = f"http://127.0.0.1:{port}/v1"
        yield stub
