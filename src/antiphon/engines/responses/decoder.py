"""From the events of a streamed response to deltas, by the driver's codec. Pure.

The driver says what an event brings, whatever the endpoint leaves out, repeats or invents (S1 to S15); here it becomes
what an engine yields. What an upstream calls its items stays with it: ids are made here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.client.chunks import ArgumentsFragment, Chunk, ContentChunk, MetaChunk, ThinkingChunk, ToolCallChunk
from antiphon.client.errors import StreamCutError
from antiphon.client.events import read_event
from antiphon.client.items import FUNCTION_CALLS
from antiphon.client.loose import as_dict, as_dicts, as_int, as_place, as_str, well_formed
from antiphon.client.response import Response, Usage
from antiphon.client.stream import StreamDecoder
from antiphon.engines.responses.plain import plain
from antiphon.engines.upstream.calls import Call
from antiphon.engines.upstream.client import UpstreamLostError
from antiphon.engines.upstream.logprobs import read_logprobs
from antiphon.engines.upstream.order import CustomCall, Order
from antiphon.engines.upstream.usage import UsageCount
from antiphon.engines.upstream.wire import FunctionPiece, TokenDetails, UsagePiece
from antiphon.engines.upstream.words import INVALID, told_words, upstream_fault
from antiphon.errors import EngineError
from antiphon.machine.deltas import (
    CUT_REASONS,
    AnnotationDelta,
    Delta,
    MessageStart,
    RawItemDelta,
    ReasoningDelta,
    RefusalDelta,
    Stop,
    SummaryDelta,
    TextDelta,
    ThoughtEnd,
)
from antiphon.protocol.hosted import UPSTREAM_ID
from antiphon.protocol.parts import Logprob
from antiphon.protocol.sse import ServerSentEvent

__all__ = ["Reading", "ResponsesDecoder"]

_DONE: Final = "[DONE]"
_UNNAMED: Final = "message"
"""The name of an event that has none."""

_SPOKEN: Final = frozenset({"message", "output_text", "text", "refusal", *FUNCTION_CALLS})
"""Items that are told as they come."""

_ITEM_ADDED: Final = "response.output_item.added"
_ITEM_DONE: Final = "response.output_item.done"
_ENDS: Final = frozenset({"response.completed", "response.incomplete"})
_TERMINAL: Final = {"failed": "response.failed", "incomplete": "response.incomplete", "completed": "response.completed"}


class Reading(Struct, frozen=True):
    """How a turn is to be read.

    `tools` are the tools that were declared, each with whether it is a custom one. `one_call` keeps the first call
    only. `sealed` says that sealed thoughts are for the upstream alone, and are kept as they come.
    """

    input_tokens: int
    tools: Mapping[str, bool] = {}
    one_call: bool = False
    logprobs: bool = False
    sealed: bool = False


class ResponsesDecoder:
    """Decodes one turn: events go in, deltas come out, the last of them a `Stop`."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._decoder = StreamDecoder()
        self._usage = UsageCount(reading.input_tokens)
        self._order = Order()
        self._calls: dict[int, Call | CustomCall] = {}
        self._left_out: set[int] = set()
        self._told: dict[str, int] = {}
        self._kinds: set[str] = set()
        self._begun: set[int | str] = set()
        self._cited: dict[tuple[int, int], int] = {}
        self._summed: tuple[int | None, int | None] | None = None
        self._thinking = False
        self._spoke = False
        self.done = False
        """Whether the `Stop` was given."""

    @property
    def response_id(self) -> str | None:
        """What the upstream calls the response."""
        return self._decoder.response_id

    @property
    def last_sequence_number(self) -> int | None:
        """The number of the last event, after which the stream can be taken up again."""
        return self._decoder.last_sequence_number

    def feed(self, event: ServerSentEvent) -> list[Delta]:
        """The deltas of one event.

        Raises:
            EngineError: the upstream failed, or the event is none.
        """
        if self.done:
            return []
        if event.data.strip() == _DONE:
            self._decoder.feed(_DONE)
            return self._finish()
        body = read_event(event.data)
        if body is None:
            if event.event == "error":
                raise upstream_fault(told_words(event.data))
            raise EngineError("The upstream sent what is no event of a response.", code=INVALID)
        body = _as_event(body, event.event)
        for each in (*self._untold(body), body):
            self._take(each)
        return self._finish() if self._decoder.ended else self._order.taken()

    def end(self) -> list[Delta]:
        """The last deltas, at the end of the bytes.

        Raises:
            UpstreamLostError: the response had not ended.
        """
        if self.done:
            return []
        raise UpstreamLostError("The upstream ended in the middle of its answer.")

    def _untold(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """The items of a last event that are of types of which no other event told, as events of their own."""
        if as_str(event.get("type")) not in _ENDS:
            return []
        output = as_dicts(as_dict(event.get("response")).get("output"))
        return [
            {"type": _ITEM_DONE, "output_index": place, "item": item}
            for place, item in enumerate(output)
            if _kind(item) not in self._kinds
        ]

    def _take(self, event: dict[str, Any]) -> None:
        kind, item = event.get("type"), as_dict(event.get("item"))
        if kind in (_ITEM_ADDED, _ITEM_DONE):
            self._kinds.add(_kind(item))
            place = _place(event)
            if place not in self._begun:
                self._begun.add(place)
                self._item_begins(item)
        for chunk in self._decoder.feed(event):
            self._chunk(chunk, event)
        if kind == "response.content_part.done":
            self._cite(event, as_dict(event.get("part")))
        elif kind == _ITEM_DONE:
            self._item_done(item, event)

    def _chunk(self, chunk: Chunk, event: dict[str, Any]) -> None:
        if isinstance(chunk, ContentChunk):
            self._spoke = True
            self._kinds.add("message")
            self._begun.add(_place(event))
            self._usage.saw(chunk.text)
            delta = RefusalDelta(chunk.text) if chunk.refusal else TextDelta(chunk.text, self._logprobs(event))
            self._order.put(delta)
        elif isinstance(chunk, ThinkingChunk):
            self._think(chunk)
        elif isinstance(chunk, ToolCallChunk):
            self._kinds.add(chunk.type)
            if chunk.type in FUNCTION_CALLS:
                self._call(chunk)
        elif isinstance(chunk, MetaChunk):
            if chunk.tool_call_args is not None:
                self._arguments(chunk.tool_call_args)
            place = (as_place(event.get("output_index")), as_place(event.get("content_index")))
            for annotation in chunk.annotations or ():
                self._cited[place] = self._cited.get(place, 0) + 1
                self._order.put(AnnotationDelta(plain(annotation)))

    def _think(self, chunk: ThinkingChunk) -> None:
        self._thinking = True
        self._kinds.add("reasoning")
        self._usage.saw(chunk.text, thinking=True)
        if chunk.summary_index is None:
            self._order.put(ReasoningDelta(chunk.text))
            return
        part = (chunk.output_index, chunk.summary_index)
        begins = self._summed is not None and self._summed != part
        self._summed = part
        self._order.put(SummaryDelta(chunk.text, begins))

    def _call(self, chunk: ToolCallChunk) -> None:
        if self._reading.one_call and self._calls:
            self._left_out.add(chunk.index)
            return
        call: Call | CustomCall
        name = well_formed(chunk.name)
        if chunk.type == "custom_tool_call":
            call = CustomCall(name)
        else:
            call = Call(self._reading.tools, chunk.id)
            call.add(FunctionPiece(name))
        self._calls[chunk.index] = call
        self._order.begin(call)
        if chunk.arguments:
            self._arguments(ArgumentsFragment(chunk.index, chunk.arguments))

    def _arguments(self, more: ArgumentsFragment) -> None:
        call = self._calls.get(more.index)
        if call is None:
            if more.index not in self._left_out:
                raise EngineError("The upstream made a call that names no tool.", code="invalid_tool_call")
            return
        self._usage.saw(more.fragment)
        if isinstance(call, CustomCall):
            call.add(more.fragment)
        else:
            call.add(FunctionPiece(None, more.fragment))
        self._order.advance()

    def _item_begins(self, item: dict[str, Any]) -> None:
        phase = as_str(item.get("phase"))
        if item.get("type") == "message" and (self._spoke or phase is not None):
            self._order.put(MessageStart(phase))

    def _item_done(self, item: dict[str, Any], event: dict[str, Any]) -> None:
        """An item has ended; whatever is told of custom calls then is all of them."""
        kind = _kind(item)
        for call in self._calls.values():
            if isinstance(call, CustomCall):
                call.whole = True
        self._order.advance()
        if kind == "message":
            for part in as_dicts(item.get("content"))[-1:]:
                self._cite(event, part)
        self._tell_item(kind, item)

    def _tell_item(self, kind: str, item: dict[str, Any]) -> None:
        """What is told of an item at its end: a thought's seal, or the whole of what the upstream ran itself."""
        self._told[kind] = self._told.get(kind, 0) + 1
        if kind == "reasoning":
            sealed = (as_str(item.get("encrypted_content")) or "") if self._reading.sealed else ""
            if self._thinking and item.get("status") == "incomplete":
                # It ends with the turn, which is cut.
                return
            if self._thinking:
                self._order.put(ThoughtEnd(well_formed(sealed)))
            elif sealed:
                thought: dict[str, Any] = {"type": kind, "summary": [], "encrypted_content": well_formed(sealed)}
                self._order.put(RawItemDelta({**thought, "status": "completed"}))
            self._thinking, self._summed = False, None
        elif kind not in _SPOKEN:
            body = plain({name: value for name, value in item.items() if name != "id"})
            identity = as_str(item.get("id"))
            if identity:
                further = body.get(UPSTREAM_ID)
                body[UPSTREAM_ID] = f"{well_formed(identity)} {further}" if further else well_formed(identity)
            self._order.put(RawItemDelta(body, begins="status" in body))

    def _cite(self, event: dict[str, Any], part: dict[str, Any]) -> None:
        """Tell of citations of a part that no event of their own told of."""
        content_index = as_int(event.get("content_index"))
        index = as_place(event.get("output_index"))
        if content_index is None:
            content_index = max((place for item, place in self._cited if item == index), default=0)
        place = (index, content_index)
        found = as_dicts(part.get("annotations"))
        for annotation in found[self._cited.get(place, 0) :]:
            self._order.put(AnnotationDelta(plain(annotation)))
        self._cited[place] = max(len(found), self._cited.get(place, 0))

    def _logprobs(self, event: dict[str, Any]) -> list[Logprob] | None:
        if not self._reading.logprobs:
            return None
        return read_logprobs(event.get("logprobs") or as_dict(event.get("part")).get("logprobs"))

    def _finish(self) -> list[Delta]:
        try:
            response = self._decoder.finish()
        except StreamCutError:
            raise UpstreamLostError("The upstream ended before it had answered.") from None
        problem = response.problem
        if problem is not None:
            raise upstream_fault({"message": problem.message, "code": problem.code, "type": problem.type})
        if response.status == "cancelled":
            raise EngineError("The upstream cancelled its answer.", code="upstream_error")
        self._tell_rest(response)
        self._tell(response.usage)
        used = self._usage.used()
        written = response.usage.cache_creation_tokens
        if written is not None and 0 < written <= used.input_tokens:
            used = msgspec.structs.replace(used, cache_write_tokens=written)
        stop = Stop(_reason(response), used)
        self._order.end(cut=stop.cut)
        self.done = True
        return self._order.taken([stop])

    def _tell_rest(self, response: Response) -> None:
        """The items whose end was not told of by an event."""
        left = dict(self._told)
        for item in response.output:
            kind = _kind(item)
            if left.get(kind, 0) > 0:
                left[kind] -= 1
            elif kind != "reasoning" or not self._thinking:
                self._tell_item(kind, item)

    def _tell(self, usage: Usage) -> None:
        said = usage.usage_reported
        self._usage.tell(
            UsagePiece(
                prompt_tokens=usage.input_tokens if said.input else None,
                completion_tokens=usage.output_tokens if said.output else None,
                prompt_tokens_details=TokenDetails(cached_tokens=usage.cached_tokens),
                completion_tokens_details=TokenDetails(reasoning_tokens=usage.reasoning_tokens)
                if said.output
                else None,
            ),
            None,
        )


def _kind(item: dict[str, Any]) -> str:
    return as_str(item.get("type")) or "message"


def _place(event: dict[str, Any]) -> int | str:
    """What tells the item of an event from others."""
    index = as_int(event.get("output_index"))
    if index is not None:
        return index
    return as_str(event.get("item_id")) or as_str(as_dict(event.get("item")).get("id")) or ""


def _as_event(body: dict[str, Any], name: str) -> dict[str, Any]:
    """The event with its type; the whole response of an upstream that does not stream is its last event."""
    if as_str(body.get("type")) is not None:
        return body
    status = as_str(body.get("status"))
    if body.get("object") == "response" or ("output" in body and status is not None):
        kind = _TERMINAL.get(status or "")
        if kind is None:
            raise EngineError("The upstream sent a response that has not ended.", code=INVALID)
        return {"type": kind, "response": body}
    return body if name == _UNNAMED else {"type": name, **body}


def _reason(response: Response) -> str:
    """Why the turn stopped: of its own, by a filter, or by some limit."""
    if response.status != "incomplete":
        return "stop"
    reason = response.raw_finish_reason
    return reason if reason in CUT_REASONS else "length"
