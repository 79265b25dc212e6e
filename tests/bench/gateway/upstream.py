"""The dummy upstream: chat completions of any length and pace, from a process that does next to nothing for them.

What it answers stands in the request's text: `deltas:200;` how many words, `pause:5;` milliseconds between two of
them, `wait:50;` milliseconds before the first. `GET /stats` tells how many clients left in the middle of an answer, and
when the last one did, on the machine's monotonic clock. Prints its port when it listens.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any, Final

import httptools
import msgspec

__all__ = ["asking"]

_KNOB: Final = re.compile(rb"(deltas|pause|wait):(\d+);")
_STREAMED: Final = re.compile(rb'"stream"\s*:\s*true')
_ASKED: Final = 64
"""Bytes in which all that `asking` says stands."""

_DELTAS: Final = 16
_TOGETHER: Final = 32
"""Words in one write of a stream without pauses."""

_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LAST: Final = b"0\r\n\r\n"


def asking(deltas: int = _DELTAS, pause: int = 0, wait: int = 0) -> str:
    """The text that asks for such an answer."""
    return f"Please answer. deltas:{deltas};pause:{pause};wait:{wait};"


def _event(choices: str, more: str = "") -> bytes:
    data = (
        f'{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"dummy","choices":{choices}{more}}}'
    )
    return _framed(b"data: " + data.encode() + b"\n\n")


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _delta(delta: str, finish: str = "null") -> bytes:
    return _event(f'[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]')


_FIRST: Final = _delta('{"role":"assistant","content":""}')
_WORDS: Final = [_delta(f'{{"content":"w{number:03d} "}}') for number in range(512)]
_STOP: Final = _delta("{}", '"stop"')


def _usage(deltas: int) -> str:
    return f'{{"prompt_tokens":7,"completion_tokens":{deltas},"total_tokens":{deltas + 7}}}'


class _Stats:
    """What `GET /stats` tells."""

    def __init__(self) -> None:
        self.answers = 0
        self.left = 0
        self.left_at = 0.0


class _Connection(asyncio.Protocol):
    def __init__(self, stats: _Stats) -> None:
        self._stats = stats
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._answering: asyncio.Task[None] | None = None
        self._path = b""
        self._body = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answering is not None and not self._answering.done():
            self._stats.left += 1
            self._stats.left_at = time.monotonic()
            self._answering.cancel()

    def on_url(self, url: bytes) -> None:
        self._path, self._body = url, bytearray()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._path.endswith(b"/chat/completions"):
            # The last ones are sought from behind, so that a long history costs this process nothing.
            told = self._body.rfind(b"deltas:")
            knobs = {name: int(value) for name, value in _KNOB.findall(self._body, max(told, 0), told + _ASKED)}
            answer = self._stream if _STREAMED.search(self._body) else self._whole
            self._answering = asyncio.ensure_future(
                answer(knobs.get(b"deltas", _DELTAS), knobs.get(b"pause", 0) / 1000, knobs.get(b"wait", 0) / 1000)
            )
        elif self._path.endswith(b"/stats"):
            self._json(vars(self._stats))
        else:
            self._json({"object": "list", "data": [{"id": "dummy", "object": "model", "created": 1, "owned_by": "us"}]})

    def _json(self, value: Any) -> None:
        body = msgspec.json.encode(value)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % len(body) + body)

    async def _whole(self, deltas: int, pause: float, wait: float) -> None:
        if wait or pause:
            await asyncio.sleep(wait + deltas * pause)
        self._stats.answers += 1
        message = {"role": "assistant", "content": "".join(f"w{number:03d} " for number in range(deltas))}
        usage = msgspec.Raw(_usage(deltas).encode())
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        told = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "dummy"}
        self._json({**told, "choices": [choice], "usage": usage})

    async def _stream(self, deltas: int, pause: float, wait: float) -> None:
        write = self._transport.write
        self._stats.answers += 1
        write(_HEAD)
        if wait:
            await asyncio.sleep(wait)
        write(_FIRST)
        step = 1 if pause else _TOGETHER
        for first in range(0, deltas, step):
            write(b"".join([_WORDS[number & 511] for number in range(first, min(first + step, deltas))]))
            await asyncio.sleep(pause)
        write(_STOP + _event("[]", f',"usage":{_usage(deltas)}') + _framed(b"data: [DONE]\n\n") + _LAST)


async def _serve() -> None:
    stats = _Stats()
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(stats), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve())
