"""Chat and text completions in process: requests, and what a client gathers from chunks."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.protocol.sse import SSEParser
from support.inprocess import InProcess

__all__ = ["chat", "chat_refused", "chunks_of", "gathered", "said", "streamed"]


def said(text: str) -> list[dict[str, Any]]:
    """A user's message."""
    return [{"role": "user", "content": text}]


async def chat(api: InProcess, messages: Any, **fields: Any) -> dict[str, Any]:
    """The whole answer of the scripted model; anything but a 200 fails the test."""
    body = {"model": "scripted", "messages": said(messages) if isinstance(messages, str) else messages, **fields}
    answer = await api.client.post("/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def chat_refused(api: InProcess, status: int, messages: Any, **fields: Any) -> dict[str, Any]:
    """The error of a request that is refused with that status, streamed or not."""
    found: list[dict[str, Any]] = []
    for stream in (False, True):
        body = {"model": "scripted", "messages": said(messages) if isinstance(messages, str) else messages}
        answer = await api.client.post("/chat/completions", json={**body, "stream": stream, **fields})
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json"
        assert set(answer.json()) == {"error"}
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        found.append(answer.json()["error"])
    assert found[0] == found[1]
    return found[0]


async def streamed(api: InProcess, messages: Any, **fields: Any) -> list[dict[str, Any]]:
    """The chunks of a streamed answer of the scripted model."""
    body = {"model": "scripted", "messages": said(messages) if isinstance(messages, str) else messages, **fields}
    answer = await api.client.post("/chat/completions", json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return chunks_of(answer.content)


def chunks_of(content: bytes) -> list[dict[str, Any]]:
    """The chunks of a whole stream, whose events have no names; `[DONE]` ends them."""
    frames = SSEParser().feed(content)
    assert frames.pop().data == "[DONE]"
    assert {frame.event for frame in frames} <= {"message"}
    assert b"event:" not in content
    return [msgspec.json.decode(frame.data) for frame in frames]


def gathered(chunks: list[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """The choice that its chunks make up, as it stands in a whole answer."""
    message: dict[str, Any] = {"refusal": None}
    calls: list[dict[str, Any]] = []
    entries: list[Any] = []
    reason: str | None = None
    for choice in (choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index):
        assert reason is None, "something came after the end"
        reason = choice["finish_reason"]
        if choice["logprobs"] is not None:
            entries += choice["logprobs"]["content"]
        delta = dict(choice["delta"])
        for more in delta.pop("tool_calls", ()):
            if more["index"] == len(calls):
                calls.append({"id": more["id"], "type": more["type"], more["type"]: {}})
            call = calls[more["index"]]
            _add(call[call["type"]], more[call["type"]])
        _add(message, delta)
    if calls:
        message["tool_calls"] = calls
    return {"index": index, "message": message, "logprobs": entries, "finish_reason": reason}


def _add(whole: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        whole[key] = value if whole.get(key) is None else whole[key] + value
