"""The ruler: a raw ASGI application that does as little as a Python server can, under the same server as ours.

`POST /post` decodes a typed body and encodes an answer of about 0.8 KB; `GET /stream?count=&size=&pause=&join=` sends
frames that were encoded before, `join` of them in one write, and sleeps `pause` seconds after each write. With
`handed=1` a task of its own makes them, and hands them over to the one that sends, as any server must that lets a
response outlive its client.
Prints its port when it listens.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import uvicorn

_FILLER = {"id": "resp_0", "object": "response", "status": "completed", "output": [{"text": "x" * 600}], "tools": []}


class _Body(msgspec.Struct):
    model: str
    input: str


_decode = msgspec.json.Decoder(_Body).decode
_encode = msgspec.json.Encoder().encode


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer one request."""
    if scope["path"] == "/post":
        body = _decode((await receive())["body"])
        answer = _encode({**_FILLER, "model": body.model})
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})
        return
    query = dict(parse_qsl(scope["query_string"].decode()))
    count, size, pause, join = int(query["count"]), int(query["size"]), float(query["pause"]), int(query["join"])
    frame = b"event: " + b"x" * (size - 9) + b"\n\n"
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if "handed" in query:
        await _hand_over(send, frame, count, pause)
        count = 0
    for _ in range(0, count, join):
        await send({"type": "http.response.body", "body": frame * join, "more_body": True})
        if pause:
            await asyncio.sleep(pause)
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def _hand_over(send: Any, frame: bytes, count: int, pause: float) -> None:
    loop = asyncio.get_running_loop()
    made = sent = 0
    waiting: asyncio.Future[None] | None = None

    async def make() -> None:
        nonlocal made, waiting
        for _ in range(count):
            made += 1
            if waiting is not None:
                waiting.set_result(None)
                waiting = None
            await asyncio.sleep(pause)

    task = asyncio.create_task(make())
    while sent < count:
        if sent == made:
            waiting = loop.create_future()
            await waiting
        await send({"type": "http.response.body", "body": frame * (made - sent), "more_body": True})
        sent = made
    await task


def main() -> None:
    """Listen on a free port."""
    import uvloop

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(
        application, http="httptools", ws="none", lifespan="off", access_log=False, log_config=None, server_header=False
    )
    uvloop.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
