"""What went over the wire between a client and the server, held strictly against the types of the `openai` package.

The SDK builds its objects leniently: a missing or wrong field becomes None or stays as it is. So a recorder keeps the
bytes below the SDK, and `verify` reads them with the package's own pydantic types in strict mode, together with the
laws of a stream that its types cannot say.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import httpx2
from openai._streaming import SSEDecoder
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.conversations import (
    Conversation,
    ConversationDeletedResource,
    ConversationItem,
    ConversationItemList,
)
from openai.types.file_deleted import FileDeleted
from openai.types.file_object import FileObject
from openai.types.model import Model
from openai.types.responses import Response, ResponseInputMessageItem, ResponseItemList, ResponseStreamEvent
from openai.types.responses.compacted_response import CompactedResponse
from openai.types.responses.input_token_count_response import InputTokenCountResponse
from openai.types.shared import ErrorObject
from pydantic import BaseModel, ConfigDict, TypeAdapter

__all__ = ["AsyncRecorder", "Exchange", "Recorder", "strict_events", "strict_response", "verify"]

TERMINAL = {"response.completed", "response.failed", "response.incomplete"}
LIFECYCLE = TERMINAL | {"response.created", "response.queued", "response.in_progress"}

DONE = b"data: [DONE]\n\n"
OURS = {
    "Response": {"output_text", "store", "presence_penalty", "frequency_penalty", "title"},
    "ResponseError": {"type"},
    "ResponseErrorEvent": {"error"},
    "ResponseFunctionCallArgumentsDoneEvent": {"name"},
    "ResponseFunctionCallArgumentsWsDone": {"name"},
    "ResponseWsError": {"code", "message", "param"},
    "ResponseCustomToolCall": {"status"},
    "LocalShellCallOutput": {"call_id"},
    # Where words alone were searched.
    "ResponseFileSearchToolCall": {"note"},
    "Result": {"vector_store_id"},
    "ResponseCodeInterpreterToolCall": {"error"},
    "ResponseFunctionShellToolCall": {"error"},
    "ChatCompletionMessage": {"reasoning_content", "reasoning"},
    "ChoiceDelta": {"reasoning_content", "reasoning"},
}
"""Fields that these types do not have: OpenAI's OpenAPI document or Open Responses has them (responses-api 5, 8.4).

Thinking in chat completions is what others call it (M49). A call of a hosted tool that failed says why.
"""


class _PatchDiff(BaseModel):
    """What OpenAI's streams have of a patch, although the package has no types for it (hosted-tools A2)."""

    model_config = ConfigDict(extra="forbid")

    item_id: str
    output_index: int
    sequence_number: int


class PatchDiffDelta(_PatchDiff):
    """More of a diff."""

    type: Literal["response.apply_patch_call_operation_diff.delta"]
    delta: str


class PatchDiffDone(_PatchDiff):
    """The whole of it."""

    type: Literal["response.apply_patch_call_operation_diff.done"]
    diff: str


_item_type: TypeAdapter[Any] = TypeAdapter(ConversationItem)
_event_type: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_patch_type: TypeAdapter[Any] = TypeAdapter(PatchDiffDelta | PatchDiffDone)


class Exchange:
    """One request and the bytes of its answer; `whole` says whether the client read it to the end."""

    def __init__(self, request: httpx2.Request, response: httpx2.Response) -> None:
        self.method = request.method
        self.path = request.url.path
        self.starting_after = int(request.url.params.get("starting_after", "-1"))
        self.status = response.status_code
        self.headers = response.headers
        self.chunks: list[bytes] = []
        self.whole = False

    @property
    def body(self) -> bytes:
        """The answer's bytes, as far as they were read."""
        return b"".join(self.chunks)

    def __repr__(self) -> str:
        return f"{self.method} {self.path} → {self.status}"


class _Tee(httpx2.SyncByteStream):
    def __init__(self, stream: Any, exchange: Exchange) -> None:
        self._stream = stream
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            self._exchange.chunks.append(chunk)
            yield chunk
        self._exchange.whole = True

    def close(self) -> None:
        self._stream.close()


class _AsyncTee(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, exchange: Exchange) -> None:
        self._stream = stream
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._exchange.chunks.append(chunk)
            yield chunk
        self._exchange.whole = True

    async def aclose(self) -> None:
        await self._stream.aclose()


class Recorder(httpx2.BaseTransport):
    """A transport that keeps every exchange."""

    def __init__(self) -> None:
        self._inner = httpx2.HTTPTransport()
        self.exchanges: list[Exchange] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = self._inner.handle_request(request)
        exchange = Exchange(request, response)
        self.exchanges.append(exchange)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Tee(response.stream, exchange),
            extensions=response.extensions,
        )

    def close(self) -> None:
        self._inner.close()

    def verify(self) -> None:
        """Check all that was recorded, and forget it."""
        for exchange in self.exchanges:
            verify(exchange)
        self.exchanges.clear()


class AsyncRecorder(httpx2.AsyncBaseTransport):
    """The same for the async client."""

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self.exchanges: list[Exchange] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        exchange = Exchange(request, response)
        self.exchanges.append(exchange)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_AsyncTee(response.stream, exchange),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()

    def verify(self) -> None:
        """Check all that was recorded, and forget it."""
        for exchange in self.exchanges:
            verify(exchange)
        self.exchanges.clear()


def verify(exchange: Exchange) -> None:
    """Check one answer by what it should be: an error, a stream of events, or the object of its route."""
    assert exchange.headers["x-request-id"].startswith("req_")
    assert int(exchange.headers["openai-processing-ms"]) >= 0
    if exchange.headers["content-type"].startswith("text/event-stream"):
        assert exchange.status == 200
        if exchange.path.endswith("/completions"):
            strict_chunks(exchange.body, whole=exchange.whole, text=not exchange.path.endswith("/chat/completions"))
            return
        strict_events(exchange.body, whole=exchange.whole, after=exchange.starting_after)
        return
    if exchange.headers["content-type"] == "application/octet-stream":
        assert (exchange.status, exchange.path.rpartition("/")[2]) == (200, "content")
        return
    assert exchange.headers["content-type"] == "application/json"
    assert exchange.whole, f"{exchange} was not read to its end"
    value = compact(exchange.body)
    if exchange.status >= 400:
        assert set(value) == {"error"}
        assert set(value["error"]) == {"message", "type", "param", "code"}
        ErrorObject.model_validate_json(json.dumps(value["error"]), strict=True)
    elif exchange.path.endswith("/input_items"):
        page = ResponseItemList.model_validate_json(exchange.body, strict=True)
        known(page.data)
        assert [page.data[0].id, page.data[-1].id] == [page.first_id, page.last_id]
    elif "/files" in exchange.path:
        _verify_files(value)
    elif "/conversations" in exchange.path:
        _verify_conversation(exchange, value)
    elif exchange.path.endswith("/compact"):
        strict_compacted(value)
    elif exchange.path.endswith("/input_tokens"):
        known(InputTokenCountResponse.model_validate_json(exchange.body, strict=True))
    elif "/models" in exchange.path:
        for model in value["data"] if value["object"] == "list" else [value]:
            Model.model_validate_json(json.dumps(model), strict=True)
    elif exchange.path.endswith("/chat/completions"):
        strict_chat(value)
    elif exchange.path.endswith("/completions"):
        strict_usage(known(Completion.model_validate_json(exchange.body, strict=True)).usage)
    elif exchange.path.endswith("/embeddings"):
        _verify_embeddings(value)
    elif exchange.method == "DELETE":
        assert value == {"id": exchange.path.rpartition("/")[2], "object": "response", "deleted": True}
    else:
        strict_response(exchange.body)


def _verify_files(value: Any) -> None:
    if "deleted" in value:
        known(FileDeleted.model_validate(value, strict=True))
        return
    files = value["data"] if value["object"] == "list" else [value]
    for file in files:
        known(FileObject.model_validate_json(json.dumps(file), strict=True))
    if value["object"] == "list":
        ends = [files[0]["id"], files[-1]["id"]] if files else [None, None]
        assert [value["first_id"], value["last_id"]] == ends


def _verify_conversation(exchange: Exchange, value: Any) -> None:
    kind = Conversation
    if value.get("object") == "list":
        kind = ConversationItemList if value["data"] else None
    elif value.get("object") == "conversation.deleted":
        kind = ConversationDeletedResource
    elif value.get("object") != "conversation":
        item = _item_type.validate_json(exchange.body, strict=True)
        known(item)
        return
    if kind is None:
        assert value == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
        return
    found = kind.model_validate_json(exchange.body, strict=True)
    known(found)
    if isinstance(found, ConversationItemList):
        assert [found.data[0].id, found.data[-1].id] == [found.first_id, found.last_id]


def compact(data: bytes | str) -> Any:
    """The value of JSON that must be written without spaces."""
    value = json.loads(data)
    text = data if isinstance(data, str) else data.decode()
    assert json.dumps(value, separators=(",", ":"), ensure_ascii=False) == text
    return value


def known(value: Any) -> Any:
    """Check that nothing in an object, at any depth, has a field that its type does not know; the object."""
    if isinstance(value, BaseModel):
        extra = set(value.model_extra or ()) - OURS.get(type(value).__name__, set())
        assert extra == set(), f"{type(value).__name__} does not know {extra}"
        for name in value.model_fields_set:
            known(getattr(value, name))
    elif isinstance(value, list):
        for entry in value:
            known(entry)
    return value


def strict_compacted(value: Any) -> CompactedResponse:
    """The compacted context of its JSON: the user's messages, and one compaction item after them.

    The package types the messages under `output` as the assistant's: these are held against the type of listed input.
    """
    *messages, item = value["output"]
    for message in messages:
        known(ResponseInputMessageItem.model_validate_json(json.dumps(message), strict=True))
        assert (message["type"], message["role"]) == ("message", "user")
    compacted = CompactedResponse.model_validate_json(json.dumps({**value, "output": [item]}), strict=True)
    known(compacted)
    assert item["type"] == "compaction"
    assert compacted.usage.total_tokens == compacted.usage.input_tokens + compacted.usage.output_tokens
    return compacted


def strict_response(data: bytes | str) -> Response:
    """The response of its JSON: by the package's type, and with fields that agree with each other."""
    response = Response.model_validate_json(data, strict=True)
    known(response)
    value = json.loads(data)
    usage = response.usage
    if usage is not None:
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens
        assert 0 <= usage.input_tokens_details.cached_tokens <= usage.input_tokens
        assert 0 <= usage.output_tokens_details.reasoning_tokens <= usage.output_tokens
    if response.status in ("completed", "incomplete"):
        assert usage is not None
    if response.status not in ("queued", "in_progress"):
        assert value["output_text"] == response.output_text
    assert (response.completed_at is not None) == (response.status == "completed")
    assert (response.error is not None) == (response.status == "failed")
    assert (response.incomplete_details is not None) == (response.status == "incomplete")
    for index, item in enumerate(response.output):
        last = index == len(response.output) - 1
        # After a hosted tool that failed the model goes on; a shell that did is one that broke off.
        over = {"completed", "failed"} | ({"incomplete"} if item.type.startswith("shell_call") else set())
        assert getattr(item, "status", "completed") in (over | {"in_progress", "incomplete"} if last else over)
    return response


def strict_usage(usage: Any) -> None:
    """Check that the usage of a completion adds up."""
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 <= usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens
    assert 0 <= usage.completion_tokens_details.reasoning_tokens <= usage.completion_tokens


def strict_chat(value: Any) -> ChatCompletion:
    """The chat completion of its JSON: by the package's type, and with fields that agree with each other."""
    completion = known(ChatCompletion.model_validate_json(json.dumps(value), strict=True))
    strict_usage(completion.usage)
    assert [choice.index for choice in completion.choices] == list(range(len(completion.choices)))
    for choice in completion.choices:
        message = choice.message
        if choice.finish_reason == "tool_calls":
            assert message.tool_calls
        if message.content is None:
            assert message.tool_calls or message.refusal
    return completion


def strict_chunks(body: bytes, *, whole: bool = True, text: bool = False) -> list[Any]:
    """The chunks of a stream: each by the package's type, one end for each choice, and an error or `[DONE]` last."""
    frames = list(SSEDecoder().iter_bytes(iter([body])))
    whole = whole or body.endswith(DONE)
    if whole:
        assert body.endswith(DONE)
        assert frames.pop().data == "[DONE]"
    chunks: list[Any] = []
    for frame in frames:
        assert frame.event is None
        value = compact(frame.data)
        if "error" in value:
            assert frame is frames[-1]
            assert set(value) == {"error"}
            ErrorObject.model_validate_json(json.dumps(value["error"]), strict=True)
            return chunks
        if text:
            # The package has no type for a chunk of text, which differs from a whole one in this only.
            for choice in value["choices"]:
                choice["finish_reason"] = choice["finish_reason"] or "stop"
        kind = Completion if text else ChatCompletionChunk
        chunks.append(known(kind.model_validate_json(json.dumps(value), strict=True)))
    assert len({(chunk.id, chunk.model, chunk.created, chunk.system_fingerprint) for chunk in chunks}) == 1
    if whole and not text:
        ends = Counter(choice.index for chunk in chunks for choice in chunk.choices if choice.finish_reason)
        roles = Counter(choice.index for chunk in chunks for choice in chunk.choices if choice.delta.role)
        assert ends == roles == Counter(range(len(roles)))
    if chunks[-1].usage is not None:
        assert chunks[-1].choices == []
        strict_usage(chunks[-1].usage)
    assert all(chunk.usage is None for chunk in chunks[:-1])
    return chunks


def _verify_embeddings(value: Any) -> None:
    for entry in value["data"]:
        if isinstance(entry["embedding"], str):
            size = len(base64.b64decode(entry["embedding"], validate=True))
            assert size % 4 == 0
            entry["embedding"] = [0.0] * (size // 4)
    answer = known(CreateEmbeddingResponse.model_validate_json(json.dumps(value), strict=True))
    assert [entry.index for entry in answer.data] == list(range(len(answer.data)))
    assert len({len(entry.embedding) for entry in answer.data}) == 1


def strict_events(body: bytes, *, whole: bool = True, after: int = -1) -> list[Any]:
    """The events of a stream, each by the package's type, and in the order that the API promises."""
    frames = list(SSEDecoder().iter_bytes(iter([body])))
    # The SDK reads no further than `[DONE]`, so that the end of the body need not have been seen.
    whole = whole or body.endswith(DONE)
    if whole:
        assert body.endswith(DONE)
        assert frames.pop().data == "[DONE]"
    events: list[Any] = []
    for frame in frames:
        value = compact(frame.data)
        patch = value["type"].startswith("response.apply_patch_call_operation_diff.")
        event = (_patch_type if patch else _event_type).validate_json(frame.data, strict=True)
        assert event.type == value["type"] == frame.event
        known(event)
        if value["type"] in LIFECYCLE:
            strict_response(json.dumps(value["response"]))
        events.append(event)
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(after + 1, after + 1 + len(events)))
    if after < 0:
        _check_order(events, whole)
    return events


def _check_order(events: list[Any], whole: bool) -> None:
    types = [event.type for event in events]
    assert types[:2] == ["response.created", "response.in_progress"][: len(types)]
    ended = [kind for kind in types if kind in TERMINAL]
    if not whole:
        assert len(ended) <= 1
        return
    assert ended == types[-1:]
    assert len({event.response.id for event in events if event.type in LIFECYCLE}) == 1
    final = events[-1].response
    ids: list[str] = []
    done: dict[int, Any] = {}
    for event in events:
        if event.type == "response.output_item.added":
            assert event.output_index == len(ids)
            ids.append(event.item.id)
        elif event.type == "response.output_item.done":
            assert event.item.id == ids[event.output_index]
            done[event.output_index] = event.item
        elif hasattr(event, "item_id"):
            assert event.item_id == ids[event.output_index]
    assert ids == [item.id for item in final.output]
    assert [done[index] for index in range(len(ids))] == final.output
