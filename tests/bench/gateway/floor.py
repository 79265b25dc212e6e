"""The floor: the least that a server in Python can do for a stored response in front of a chat-completions upstream.

It checks nothing, knows no history and mends no fault. A request is a typed body; a delta is bytes around its text; one
read of the upstream is one write to the client; a row is committed with an fsync, many together, before its response is
told to have ended. What our server takes beyond this is what its care costs.

Arguments: the file of its store and the upstream's URL up to `/v1`. Prints its port when it listens.
"""

from __future__ import annotations

import asyncio
import queue
import secrets
import socket
import sqlite3
import sys
import threading
import time
from typing import Any

import aiohttp
import msgspec
import uvicorn


class _Text(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Text | None = None
    message: _Text | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice]


class _Request(msgspec.Struct):
    model: str
    input: str
    stream: bool = False


_encode = msgspec.json.Encoder().encode
_chunk = msgspec.json.Decoder(_Chunk).decode
_request = msgspec.json.Decoder(_Request).decode
_DEFAULTS: dict[str, Any] = {
    "object": "response", "background": False, "error": None, "incomplete_details": None, "instructions": None,
    "max_output_tokens": None, "max_tool_calls": None, "parallel_tool_calls": True, "previous_response_id": None,
    "prompt_cache_key": None, "reasoning": {"effort": None, "summary": None}, "safety_identifier": None,
    "service_tier": "default", "store": True, "temperature": 1.0, "text": {"format": {"type": "text"}},
    "tool_choice": "auto", "tools": [], "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled", "metadata": {},
    "presence_penalty": 0.0, "frequency_penalty": 0.0,
}  # fmt: skip


class _Rows:
    """A thread that commits what waits, all of it in one transaction."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._jobs: queue.SimpleQueue[tuple[str, tuple[Any, ...], asyncio.Future[None] | None]] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, statement: str, *values: Any, wait: bool = True) -> asyncio.Future[None]:
        done = self._loop.create_future()
        self._jobs.put((statement, values, done if wait else None))
        return done

    def _run(self) -> None:
        rows = sqlite3.connect(self._path, isolation_level=None)
        rows.execute("PRAGMA journal_mode = WAL")
        rows.execute("PRAGMA synchronous = FULL")
        rows.execute("CREATE TABLE responses (id PRIMARY KEY, body)")
        rows.execute("CREATE TABLE events (id, body)")
        while True:
            jobs = [self._jobs.get()]
            while not self._jobs.empty():
                jobs.append(self._jobs.get())
            rows.execute("BEGIN")
            for statement, values, _ in jobs:
                rows.execute(statement, values)
            rows.execute("COMMIT")
            self._loop.call_soon_threadsafe(self._tell, [done for _, _, done in jobs if done is not None])

    @staticmethod
    def _tell(waiting: list[asyncio.Future[None]]) -> None:
        for done in waiting:
            if not done.done():
                done.set_result(None)


_RESPONSE = "INSERT OR REPLACE INTO responses VALUES (?, ?)"
_EVENTS = "INSERT INTO events VALUES (?, ?)"


class _Floor:
    """The application."""

    def __init__(self, path: str, upstream: str) -> None:
        self._path = path
        self._url = f"{upstream}/chat/completions"
        self._rows: Any = None
        self._session: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._session is None:
            self._rows = _Rows(self._path)
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        message = await receive()
        data = message["body"]
        while message.get("more_body"):
            message = await receive()
            data += message["body"]
        request = _request(data)
        identity, item = "resp_" + secrets.token_hex(16), "msg_" + secrets.token_hex(16)
        messages = [{"role": "user", "content": request.input}]
        asked = _encode({"model": "dummy", "stream": request.stream, "messages": messages})
        headers = {"content-type": "application/json"}
        async with self._session.post(self._url, data=asked, headers=headers) as answer:
            if request.stream:
                await self._stream(answer, send, identity, item)
            else:
                await self._whole(await answer.read(), send, identity, item)

    async def _whole(self, data: bytes, send: Any, identity: str, item: str) -> None:
        message = _chunk(data).choices[0].message
        assert message is not None
        body = _encode(_response(identity, "completed", [_message(item, message.content or "")]))
        await self._rows.put(_RESPONSE, identity, body)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, answer: Any, send: Any, identity: str, item: str) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        begun = _response(identity, "in_progress", [])
        await self._rows.put(_RESPONSE, identity, _encode(begun))
        part = {"item_id": item, "output_index": 0, "content_index": 0}
        opened = {"type": "message", "id": item, "role": "assistant", "status": "in_progress", "content": []}
        empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        log = [
            _event("response.created", 0, {"response": begun}),
            _event("response.in_progress", 1, {"response": begun}),
            _event("response.output_item.added", 2, {"output_index": 0, "item": opened}),
            _event("response.content_part.added", 3, {**part, "part": empty}),
        ]
        await send({"type": "http.response.body", "body": b"".join(log), "more_body": True})
        text = await self._deltas(answer, send, identity, part, log)
        done = _message(item, text)
        ended = _response(identity, "completed", [done])
        number = len(log)
        last = [
            _event("response.output_text.done", number, {**part, "text": text, "logprobs": []}),
            _event("response.content_part.done", number + 1, {**part, "part": done["content"][0]}),
            _event("response.output_item.done", number + 2, {"output_index": 0, "item": done}),
            _event("response.completed", number + 3, {"response": ended}),
        ]
        self._rows.put(_EVENTS, identity, b"".join(last), wait=False)
        await self._rows.put(_RESPONSE, identity, _encode(ended))
        await send({"type": "http.response.body", "body": b"".join(last) + b"data: [DONE]\n\n"})

    async def _deltas(self, answer: Any, send: Any, identity: str, part: Any, log: list[bytes]) -> str:
        head = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta",'
        head += _encode({**part, "logprobs": []})[1:-1] + b',"sequence_number":'
        text: list[str] = []
        rest, kept = b"", 0
        async for data in answer.content.iter_any():
            *events, rest = (rest + data).split(b"\n\n")
            first = len(log)
            for event in events:
                if event[6:12] == b"[DONE]":
                    continue
                choices = _chunk(event[6:]).choices
                delta = choices[0].delta if choices else None
                if delta is not None and delta.content:
                    text.append(delta.content)
                    log.append(head + b'%d,"delta":%b}\n\n' % (len(log), _encode(delta.content)))
            if len(log) > first:
                await send({"type": "http.response.body", "body": b"".join(log[first:]), "more_body": True})
            if len(log) - kept >= 64:
                self._rows.put(_EVENTS, identity, b"".join(log[kept:]), wait=False)
                kept = len(log)
        self._rows.put(_EVENTS, identity, b"".join(log[kept:]), wait=False)
        return "".join(text)


def _response(identity: str, status: str, output: list[Any]) -> dict[str, Any]:
    now = int(time.time())
    ended = now if status == "completed" else None
    usage = {"input_tokens": 7, "output_tokens": 16, "total_tokens": 23} if ended else None
    own = {"id": identity, "created_at": now, "completed_at": ended, "status": status, "model": "dummy"}
    return {**own, **_DEFAULTS, "output": output, "usage": usage}


def _message(item: str, text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"type": "message", "id": item, "role": "assistant", "status": "completed", "content": content}


def _event(name: str, number: int, fields: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode({"type": name, "sequence_number": number, **fields}))


def _main() -> None:
    import uvloop

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    print(listener.getsockname()[1], flush=True)
    floor = _Floor(sys.argv[1], sys.argv[2])
    config = uvicorn.Config(
        floor, http="httptools", ws="none", lifespan="off", access_log=False, log_config=None, server_header=False
    )
    uvloop.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    _main()
