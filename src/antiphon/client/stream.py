"""The events of a stream to chunks, and at its end to the same `Response` as the whole answer gives (S1 to S15).

Pure: bytes and time are the transport's. Whatever an endpoint leaves out, repeats or invents, the chunks are those
that can be told: texts come as they arrive, what came in no piece comes when its item is done, at the latest with the
terminal event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from antiphon.client.assembly import Assembly, Slot
from antiphon.client.chunks import (
    ArgumentsFragment,
    Chunk,
    ContentChunk,
    ContentPartChunk,
    MetaChunk,
    SummaryPart,
    ThinkingChunk,
    ToolCallChunk,
)
from antiphon.client.context import ProviderBlock
from antiphon.client.decode import DecodeOptions, normalize, read_problem
from antiphon.client.errors import StreamCutError
from antiphon.client.events import DELTAS, TEXTS_DONE, Place, read_event, text_index, text_of, tool_event
from antiphon.client.items import (
    FUNCTION_CALLS,
    answered_calls,
    call_arguments,
    call_name,
    content_texts,
    is_builtin,
    is_call,
    is_code_interpreter,
    part_text,
    summary_texts,
    tool_call,
)
from antiphon.client.loose import as_dict, as_dicts, as_int, as_place, as_str
from antiphon.client.response import Response
from antiphon.client.usage import count_tools, decode_usage
from antiphon.protocol.hosted import is_beside
from antiphon.protocol.sse import ServerSentEvent

__all__ = ["StreamDecoder"]

DONE = "[DONE]"
REMEMBERED = 4096
"""How many numbers back an event is held against its repetition; what is older is one."""

_RUNNING = frozenset({None, "queued", "in_progress"})
_BEGINNINGS = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDS = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}
_ALWAYS_KEPT = frozenset({"api_type"})


class StreamDecoder:
    """Decodes one stream: `feed` it the events, and `finish` it when no more come.

    A stream may hold several answers one after the other, as a connection or a steered answer does: `responses` are
    those that have ended, oldest first. The options are those of `DecodeOptions`.
    """

    def __init__(
        self, *, provider: str = "openai", schema: dict[str, Any] | None = None, repair_json: bool = False
    ) -> None:
        self._options = DecodeOptions(provider, schema, repair_json)
        self.responses: list[Response] = []
        self.unreadable = 0
        """How many events were not JSON and were left out."""
        self._rules: dict[str, Callable[[dict[str, Any]], list[Chunk]]] = {
            "response.created": self._started,
            "response.queued": self._started,
            "response.in_progress": self._started,
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.content_part.done": self._part_done,
            "response.reasoning_summary_part.added": self._summary_part_added,
            "response.reasoning_summary_part.done": self._summary_part_done,
            "response.output_text.annotation.added": self._annotation,
            "response.shell_call_output_content.done": self._shell_output,
            "response.usage": self._usage_event,
            "response.error": self._error,
            "error": self._error,
        }
        self._begin()

    def _begin(self) -> None:
        self._assembly = Assembly()
        self._base: dict[str, Any] = {}
        self._usage: Any = None
        self._spoke = False
        self._ended = False
        self._response: Response | None = None
        self.last_sequence_number: int | None = None
        """The number of the last event, after which a broken stream can be taken up again."""
        self._numbered: dict[int, int] | None = {}

    @property
    def ended(self) -> bool:
        """Whether the terminal event has come."""
        return self._ended

    @property
    def response_id(self) -> str | None:
        """The id of the answer that is being streamed, as soon as it is known."""
        return as_str(self._base.get("id"))

    def feed(self, event: ServerSentEvent | dict[str, Any] | str | bytes) -> list[Chunk]:
        """The chunks of one event: a frame, the JSON of its data, or the decoded data."""
        name = ""
        if isinstance(event, dict):
            body: dict[str, Any] | None = event
        else:
            data = event.data if isinstance(event, ServerSentEvent) else event
            if isinstance(event, ServerSentEvent):
                name = event.event
            if len(data) < 16 and data.strip() in (DONE, DONE.encode()):
                return self._done_frame()
            body = read_event(data)
            if body is None:
                self.unreadable += 1
                return []
        return self._event(self._name(name, body), body)

    def snapshot(self) -> Response:
        """The answer as far as it has come; the whole of it once the stream has ended."""
        if self._response is not None:
            return self._response
        return normalize(_placed(self._base, self._assembly.items()), self._options)

    def finish(self) -> Response:
        """The answer, the last one where there were several; one that failed has its `problem`.

        Raises:
            StreamCutError: the stream ended before its terminal event.
        """
        if self._response is None:
            raise StreamCutError(
                "The stream ended before its answer did.",
                response_id=self.response_id,
                last_sequence_number=self.last_sequence_number,
            )
        return self._response

    def _name(self, name: str, body: dict[str, Any]) -> str:
        if name in self._rules or name in _ENDS or name in DELTAS or name in TEXTS_DONE:
            return name
        kind = as_str(body.get("type"))
        if kind is None and body.get("error"):
            return "error"
        return kind or name

    def _event(self, name: str, event: dict[str, Any]) -> list[Chunk]:
        if self._ended and name in _BEGINNINGS and self._is_another(event):
            self._begin()
        number = as_int(event.get("sequence_number"))
        if number is not None:
            if self._is_repeated(number, name, event):
                return []
            self.last_sequence_number = max(number, self.last_sequence_number or 0)
        status = _ENDS.get(name)
        if status is not None:
            return self._terminal(event, status)
        if self._ended:
            return []
        place = DELTAS.get(name)
        if place is not None:
            return self._delta(event, place)
        place = TEXTS_DONE.get(name)
        if place is not None:
            return self._text_done(event, place)
        rule = self._rules.get(name)
        if rule is not None:
            return rule(event)
        kind = tool_event(name)
        if kind is not None and kind not in FUNCTION_CALLS:
            self._assembly.find(event, kind)
        return []

    def _is_repeated(self, number: int, name: str, event: dict[str, Any]) -> bool:
        if self._numbered is None:
            return False
        mark = hash((name, _identity(event), as_str(event.get("delta"))))
        known = self._numbered.get(number)
        if known == mark:
            return True
        if known is not None and number == self.last_sequence_number:
            self._numbered = None
            return False
        if known is None and number <= (self.last_sequence_number or 0) - REMEMBERED:
            return True
        self._numbered[number] = mark
        self._numbered.pop(number - REMEMBERED, None)
        return False

    def _is_another(self, event: dict[str, Any]) -> bool:
        return as_dict(event.get("response")).get("id") != self._base.get("id")

    def _started(self, event: dict[str, Any]) -> list[Chunk]:
        self._base = {**self._base, **as_dict(event.get("response"))}
        return []

    def _delta(self, event: dict[str, Any], place: Place) -> list[Chunk]:
        slot = self._assembly.find(event, place.kind)
        index = text_index(event, place)
        text = slot.add((place.text, index), text_of(event, place))
        return self._piece(slot, place.text, index, text) if text else []

    def _piece(self, slot: Slot, kind: str, index: int, text: str) -> list[Chunk]:
        if kind in ("text", "refusal"):
            self._spoke = True
            phase = as_str(slot.item.get("phase"))
            return [ContentChunk(text, kind == "refusal", phase, slot.index if phase is not None else None)]
        if kind == "summary":
            return [ThinkingChunk(text, slot.id, slot.index, index)]
        if kind == "content":
            return [ThinkingChunk(text, slot.id, slot.index)]
        if slot.kind in FUNCTION_CALLS and kind != "name":
            return [MetaChunk(tool_call_args=ArgumentsFragment(slot.index, text))]
        return []

    def _text_done(self, event: dict[str, Any], place: Place) -> list[Chunk]:
        slot = self._assembly.find(event, place.kind)
        key = (place.text, text_index(event, place))
        text = text_of(event, place)
        slot.whole[key] = text
        if slot.kind not in FUNCTION_CALLS:
            return []
        name = as_str(event.get("name"))
        if name and not slot.item.get("name"):
            slot.item["name"] = name
        return self._missing_arguments(slot, text)

    def _missing_arguments(self, slot: Slot, text: str) -> list[Chunk]:
        kind = "input" if slot.kind == "custom_tool_call" else "arguments"
        seen = slot.seen(kind)
        if not text.startswith(seen):
            return []
        rest = slot.add((kind, 0), text[len(seen) :])
        return [MetaChunk(tool_call_args=ArgumentsFragment(slot.index, rest))] if rest else []

    def _item_added(self, event: dict[str, Any]) -> list[Chunk]:
        slot = self._assembly.announce(event)
        item = slot.item
        if slot.announced or slot.done:
            return []
        if is_code_interpreter(item):
            slot.announced = True
            return [MetaChunk(code_interpreter_item=item)]
        if slot.kind in FUNCTION_CALLS:
            if not as_str(item.get("name")):
                return []
            slot.announced = True
            return [self._call_chunk(slot, None)]
        if is_call(item) and is_builtin(item):
            slot.announced = True
            started = {"id": slot.id, "type": slot.kind, "name": call_name(item), "output_index": slot.index}
            return [MetaChunk(builtin_tool_started=started)]
        return []

    def _call_chunk(self, slot: Slot, arguments: str | None) -> ToolCallChunk:
        call = tool_call(slot.assembled(), slot.index, answered_calls(other.item for other in self._assembly.slots))
        return ToolCallChunk(
            id=call.id,
            name=call.name,
            index=slot.index,
            arguments=arguments,
            expects_arg_fragments=arguments is None,
            builtin=call.builtin,
            type=call.type,
            metadata=call.metadata,
        )

    def _item_done(self, event: dict[str, Any]) -> list[Chunk]:
        return self._finish_item(self._assembly.complete(event))

    def _finish_item(self, slot: Slot) -> list[Chunk]:
        item = slot.assembled()
        if slot.kind == "message":
            return self._finish_message(slot, item)
        if slot.kind == "reasoning":
            return self._finish_reasoning(slot, item)
        if slot.finished:
            return []
        if slot.kind in ("output_text", "text", "refusal"):
            slot.finished = True
            said = part_text(item)
            return self._piece(slot, "refusal" if said[1] else "text", 0, said[0]) if said and said[0] else []
        if slot.kind == "compaction":
            slot.finished = True
            return [ContentPartChunk(ProviderBlock("compaction", item, self._options.provider), slot.index)]
        if is_code_interpreter(item):
            slot.finished = True
            return [MetaChunk(code_interpreter_item=item)]
        if not is_call(item):
            return []
        slot.finished = True
        if slot.kind in FUNCTION_CALLS:
            return self._finish_call(slot, item)
        return [self._call_chunk(slot, call_arguments(item))]

    def _finish_call(self, slot: Slot, item: dict[str, Any]) -> list[Chunk]:
        arguments = call_arguments(item)
        fragments = bool(slot.seen("arguments", "input"))
        if slot.announced:
            return self._missing_arguments(slot, arguments)
        slot.announced = True
        if fragments:
            return [self._call_chunk(slot, None), *self._missing_arguments(slot, arguments)]
        return [self._call_chunk(slot, arguments)]

    def _finish_message(self, slot: Slot, item: dict[str, Any]) -> list[Chunk]:
        content = item.get("content")
        texts = [(content, False)] if isinstance(content, str) else list(map(part_text, as_dicts(content)))
        said = [("refusal" if text[1] else "text", place, text[0]) for place, text in enumerate(texts) if text]
        return self._rest(slot, said, slot.seen("text", "refusal"))

    def _finish_reasoning(self, slot: Slot, item: dict[str, Any]) -> list[Chunk]:
        summary = [("summary", place, text) for place, text in enumerate(summary_texts(item))]
        content = [("content", place, text) for place, text in enumerate(content_texts(item))]
        return [*self._rest(slot, summary, slot.seen("summary")), *self._rest(slot, content, slot.seen("content"))]

    def _rest(self, slot: Slot, texts: Iterable[tuple[str, int, str]], seen: str) -> list[Chunk]:
        chunks: list[Chunk] = []
        for kind, place, text in texts:
            if seen.startswith(text):
                seen = seen[len(text) :]
            elif text.startswith(seen):
                missing = slot.add((kind, place), text[len(seen) :])
                chunks += self._piece(slot, kind, place, missing)
                seen = ""
            else:
                break
        return chunks

    def _part_done(self, event: dict[str, Any]) -> list[Chunk]:
        part = as_dict(event.get("part"))
        index = as_place(event.get("content_index"))
        if part.get("type") == "reasoning_text":
            slot = self._assembly.find(event, "reasoning")
            slot.whole["content", index] = as_str(part.get("text")) or ""
            return self._finish_reasoning(slot, slot.assembled())
        said = part_text(part)
        if said is None:
            return []
        slot = self._assembly.find(event, "message")
        slot.whole["refusal" if said[1] else "text", index] = said[0]
        annotations = as_dicts(part.get("annotations"))
        if annotations:
            slot.annotations[index] = annotations
        return self._finish_message(slot, slot.assembled())

    def _summary_part_added(self, event: dict[str, Any]) -> list[Chunk]:
        return self._summary_part(event, "added")

    def _summary_part_done(self, event: dict[str, Any]) -> list[Chunk]:
        return self._summary_part(event, "done")

    def _summary_part(self, event: dict[str, Any], status: Literal["added", "done"]) -> list[Chunk]:
        slot = self._assembly.find(event, "reasoning")
        index = as_place(event.get("summary_index"))
        text = as_str(as_dict(event.get("part")).get("text")) or ""
        if text:
            slot.whole["summary", index] = text
        return [MetaChunk(reasoning_summary_part=SummaryPart(status, slot.id, slot.index, index, text))]

    def _annotation(self, event: dict[str, Any]) -> list[Chunk]:
        annotation = as_dict(event.get("annotation"))
        if not annotation:
            return []
        slot = self._assembly.find(event, "message")
        known = slot.annotations.setdefault(as_place(event.get("content_index")), [])
        place = as_int(event.get("annotation_index"))
        if place is not None and 0 <= place < len(known) and known[place] == annotation:
            return []
        known.append(annotation)
        return [MetaChunk(annotations=[annotation])]

    def _shell_output(self, event: dict[str, Any]) -> list[Chunk]:
        slot = self._assembly.find(event, "shell_call_output")
        if not slot.done and as_dicts(event.get("output")):
            slot.item["output"] = event["output"]
        return []

    def _usage_event(self, event: dict[str, Any]) -> list[Chunk]:
        self._usage = event.get("usage")
        model = as_str(event.get("model")) or as_str(self._base.get("model"))
        return [MetaChunk(usage=decode_usage(self._usage, {}), model=model)]

    def _error(self, event: dict[str, Any]) -> list[Chunk]:
        problem = read_problem(event, "stream error")
        error = {"message": problem.message, "code": problem.code, "type": problem.type, "param": problem.param}
        status = {"status": "failed"} if self._base else {}
        return self._end({**self._base, **status, "error": error, "output": []})

    def _terminal(self, event: dict[str, Any], status: str) -> list[Chunk]:
        given = as_dict(event.get("response"))
        body = dict(self._base)
        if given:
            body = {key: body[key] for key in ("id", "model") if key in body}
            body.update(given)
        else:
            body["output"] = []
        if as_str(body.get("status")) in _RUNNING:
            body["status"] = status
        if status == "incomplete" and not as_dict(body.get("incomplete_details")) and event.get("reason"):
            body["incomplete_details"] = {"reason": event["reason"]}
        if status == "failed" and not body.get("error") and event.get("error"):
            body["error"] = event["error"]
        return self._end(body)

    def _done_frame(self) -> list[Chunk]:
        if self._ended:
            return []
        if not self._base and not self._assembly.slots:
            self._ended = True
            return [MetaChunk(terminal=True)]
        status = as_str(self._base.get("status"))
        return self._end({**self._base, "output": [], "status": "completed" if status in _RUNNING else status})

    def _end(self, body: dict[str, Any]) -> list[Chunk]:
        assembled = self._assembly.items()
        if not body.get("usage") and self._usage is not None:
            body["usage"] = self._usage
        chunks: list[Chunk] = []
        output = as_dicts(body.get("output"))
        if output:
            taken: set[int] = set()
            slots = [self._assembly.match(item, position, taken) for position, item in enumerate(output)]
            for slot, item in zip(slots, output, strict=True):
                self._assembly.settle(slot, item)
        else:
            body = _placed(body, assembled)
            slots = self._assembly.slots
        for slot in slots:
            chunks += self._finish_item(slot)
        response = normalize(body, self._options, count_tools(assembled, answered_calls(assembled)))
        if response.text and not self._spoke:
            chunks.append(ContentChunk(response.text))
        if self._ended:
            if self.responses:
                self.responses[-1] = response
        else:
            self.responses.append(response)
        chunks = [] if self._ended else [*chunks, _terminal_chunk(response)]
        self._ended = True
        self._response = response
        return chunks


def _placed(body: dict[str, Any], items: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer with these items where they belong: calls of corpus tools stand beside the output (B26)."""
    beside = [item for item in items if is_beside(item)]
    placed = {**body, "output": [item for item in items if not is_beside(item)]}
    if beside and not placed.get("hosted_tool_calls"):
        placed["hosted_tool_calls"] = beside
    return placed


def _identity(event: dict[str, Any]) -> tuple[str | None, int | None]:
    subject = event.get("response") or event.get("item")
    identity = event.get("item_id") if subject is None else as_dict(subject).get("id")
    return as_str(identity), as_int(event.get("output_index"))


def _terminal_chunk(response: Response) -> MetaChunk:
    metadata = response.message.metadata
    meta = {
        key: value
        for key, value in response.provider_meta.items()
        if key in _ALWAYS_KEPT or (value is not None and value not in ("", [], {}))
    }
    return MetaChunk(
        terminal=True,
        response_id=response.response_id,
        model=response.model,
        finish_reason=response.finish_reason,
        raw_finish_reason=response.raw_finish_reason,
        usage=response.usage,
        problem=response.problem,
        reasoning_details=response.reasoning_details or None,
        provider_meta=meta,
        phase=response.phase,
        phase_items=metadata.phase_items or None,
        responses_replay=metadata.responses_replay,
    )
