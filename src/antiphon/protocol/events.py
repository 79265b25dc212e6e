"""Stream events (responses-api 5).

The events that this server sends are structs. `EVENT_FIELDS` names every event type of the API with its own fields;
`decode_event` gives a struct for a type that has one and a `RawEvent`, whole, for any other.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import Raw, Struct

from antiphon.protocol.items import decode_item
from antiphon.protocol.parts import Annotation, ContentPart, StreamLogprob, SummaryText
from antiphon.protocol.response import decode_response, wire_item

__all__ = [
    "EVENT_FIELDS",
    "TERMINAL_EVENTS",
    "AnnotationAdded",
    "ApplyPatchDiffDelta",
    "ApplyPatchDiffDone",
    "ContentPartAdded",
    "ContentPartDone",
    "CustomToolCallInputDelta",
    "CustomToolCallInputDone",
    "ErrorEvent",
    "Event",
    "FunctionCallArgumentsDelta",
    "FunctionCallArgumentsDone",
    "OutputItemAdded",
    "OutputItemDone",
    "OutputTextDelta",
    "OutputTextDone",
    "RawEvent",
    "ReasoningSummaryPartAdded",
    "ReasoningSummaryPartDone",
    "ReasoningSummaryTextDelta",
    "ReasoningSummaryTextDone",
    "ReasoningTextDelta",
    "ReasoningTextDone",
    "RefusalDelta",
    "RefusalDone",
    "ResponseCompleted",
    "ResponseCreated",
    "ResponseFailed",
    "ResponseInProgress",
    "ResponseIncomplete",
    "ResponseQueued",
    "ShellCommandAdded",
    "ShellCommandDelta",
    "ShellCommandDone",
    "decode_event",
]

_ITEM = ("item_id", "output_index")
_PART = (*_ITEM, "content_index")
_SUMMARY = (*_ITEM, "summary_index")

EVENT_FIELDS: dict[str, tuple[str, ...]] = {
    "response.created": ("response",),
    "response.queued": ("response",),
    "response.in_progress": ("response",),
    "response.completed": ("response",),
    "response.incomplete": ("response",),
    "response.failed": ("response",),
    "error": ("code", "message", "param", "error"),
    "response.output_item.added": ("output_index", "item"),
    "response.output_item.done": ("output_index", "item"),
    "response.content_part.added": (*_PART, "part"),
    "response.content_part.done": (*_PART, "part"),
    "response.output_text.delta": (*_PART, "delta", "logprobs"),
    "response.output_text.done": (*_PART, "text", "logprobs"),
    "response.output_text.annotation.added": (*_PART, "annotation_index", "annotation"),
    "response.refusal.delta": (*_PART, "delta"),
    "response.refusal.done": (*_PART, "refusal"),
    "response.reasoning_text.delta": (*_PART, "delta"),
    "response.reasoning_text.done": (*_PART, "text"),
    "response.reasoning_summary_part.added": (*_SUMMARY, "part"),
    "response.reasoning_summary_part.done": (*_SUMMARY, "part"),
    "response.reasoning_summary_text.delta": (*_SUMMARY, "delta"),
    "response.reasoning_summary_text.done": (*_SUMMARY, "text"),
    "response.function_call_arguments.delta": (*_ITEM, "delta"),
    "response.function_call_arguments.done": (*_ITEM, "arguments", "name"),
    "response.custom_tool_call_input.delta": (*_ITEM, "delta"),
    "response.custom_tool_call_input.done": (*_ITEM, "input"),
    "response.file_search_call.in_progress": _ITEM,
    "response.file_search_call.searching": _ITEM,
    "response.file_search_call.completed": _ITEM,
    "response.web_search_call.in_progress": _ITEM,
    "response.web_search_call.searching": _ITEM,
    "response.web_search_call.completed": _ITEM,
    "response.code_interpreter_call.in_progress": _ITEM,
    "response.code_interpreter_call.interpreting": _ITEM,
    "response.code_interpreter_call.completed": _ITEM,
    "response.code_interpreter_call_code.delta": (*_ITEM, "delta"),
    "response.code_interpreter_call_code.done": (*_ITEM, "code"),
    "response.mcp_list_tools.in_progress": _ITEM,
    "response.mcp_list_tools.completed": _ITEM,
    "response.mcp_list_tools.failed": _ITEM,
    "response.mcp_call.in_progress": _ITEM,
    "response.mcp_call.completed": _ITEM,
    "response.mcp_call.failed": _ITEM,
    "response.mcp_call_arguments.delta": (*_ITEM, "delta"),
    "response.mcp_call_arguments.done": (*_ITEM, "arguments"),
    "response.image_generation_call.in_progress": _ITEM,
    "response.image_generation_call.generating": _ITEM,
    "response.image_generation_call.partial_image": (*_ITEM, "partial_image_b64", "partial_image_index"),
    "response.image_generation_call.completed": _ITEM,
    "response.shell_call_command.added": ("output_index", "command_index", "command"),
    "response.shell_call_command.delta": ("output_index", "command_index", "delta"),
    "response.shell_call_command.done": ("output_index", "command_index", "command"),
    "response.shell_call_output_content.delta": (*_ITEM, "command_index", "delta"),
    "response.shell_call_output_content.done": (*_ITEM, "command_index", "output"),
    "response.apply_patch_call_operation_diff.delta": (*_ITEM, "delta"),
    "response.apply_patch_call_operation_diff.done": (*_ITEM, "diff"),
    "response.compaction.compacting": _ITEM,
    "response.audio.delta": ("delta",),
    "response.audio.done": (),
    "response.audio.transcript.delta": ("delta",),
    "response.audio.transcript.done": (),
}
"""Every event type of the API and the fields that it has beside `type` and `sequence_number`.

Those of a patch's diff are in OpenAI's streams but not in the types of its packages (hosted-tools A2).
"""


class _Lifecycle(Struct):
    response: Any
    sequence_number: int = 0


class ResponseCreated(_Lifecycle, tag="response.created"):
    """The first event; its snapshot has no output."""

    TYPE: ClassVar[str] = "response.created"


class ResponseQueued(_Lifecycle, tag="response.queued"):
    """A background response waits for its turn."""

    TYPE: ClassVar[str] = "response.queued"


class ResponseInProgress(_Lifecycle, tag="response.in_progress"):
    """Generation begins."""

    TYPE: ClassVar[str] = "response.in_progress"


class ResponseCompleted(_Lifecycle, tag="response.completed"):
    """Terminal: the whole response."""

    TYPE: ClassVar[str] = "response.completed"


class ResponseIncomplete(_Lifecycle, tag="response.incomplete"):
    """Terminal: the response ended early, by a limit or (status `cancelled`) by the client."""

    TYPE: ClassVar[str] = "response.incomplete"


class ResponseFailed(_Lifecycle, tag="response.failed"):
    """Terminal: the response ended by a fault, with what was generated."""

    TYPE: ClassVar[str] = "response.failed"


class ErrorEvent(Struct, tag="error"):
    """A fault, in both shapes at once: flat and nested (responses-api 6.2)."""

    TYPE: ClassVar[str] = "error"
    code: str | None
    message: str
    param: str | None
    error: dict[str, Any]
    sequence_number: int = 0


class OutputItemAdded(Struct, tag="response.output_item.added"):
    """An item begins, empty and in progress."""

    TYPE: ClassVar[str] = "response.output_item.added"
    output_index: int
    item: Any
    sequence_number: int = 0


class OutputItemDone(Struct, tag="response.output_item.done"):
    """An item ended, whole."""

    TYPE: ClassVar[str] = "response.output_item.done"
    output_index: int
    item: Any
    sequence_number: int = 0


class _PartEvent(Struct):
    item_id: str
    output_index: int
    content_index: int


class ContentPartAdded(_PartEvent, tag="response.content_part.added"):
    """A content part begins, empty."""

    TYPE: ClassVar[str] = "response.content_part.added"
    part: ContentPart
    sequence_number: int = 0


class ContentPartDone(_PartEvent, tag="response.content_part.done"):
    """A content part ended, whole."""

    TYPE: ClassVar[str] = "response.content_part.done"
    part: ContentPart
    sequence_number: int = 0


class OutputTextDelta(_PartEvent, tag="response.output_text.delta"):
    """More text of a message."""

    TYPE: ClassVar[str] = "response.output_text.delta"
    delta: str
    logprobs: list[StreamLogprob] = msgspec.field(default_factory=list[StreamLogprob])
    sequence_number: int = 0


class OutputTextDone(_PartEvent, tag="response.output_text.done"):
    """The whole text of a part."""

    TYPE: ClassVar[str] = "response.output_text.done"
    text: str
    logprobs: list[StreamLogprob] = msgspec.field(default_factory=list[StreamLogprob])
    sequence_number: int = 0


class AnnotationAdded(_PartEvent, tag="response.output_text.annotation.added"):
    """A citation of a text part."""

    TYPE: ClassVar[str] = "response.output_text.annotation.added"
    annotation_index: int
    annotation: Annotation
    sequence_number: int = 0


class RefusalDelta(_PartEvent, tag="response.refusal.delta"):
    """More text of a refusal."""

    TYPE: ClassVar[str] = "response.refusal.delta"
    delta: str
    sequence_number: int = 0


class RefusalDone(_PartEvent, tag="response.refusal.done"):
    """The whole refusal."""

    TYPE: ClassVar[str] = "response.refusal.done"
    refusal: str
    sequence_number: int = 0


class ReasoningTextDelta(_PartEvent, tag="response.reasoning_text.delta"):
    """More of a model's thinking."""

    TYPE: ClassVar[str] = "response.reasoning_text.delta"
    delta: str
    sequence_number: int = 0


class ReasoningTextDone(_PartEvent, tag="response.reasoning_text.done"):
    """The whole thinking of a part."""

    TYPE: ClassVar[str] = "response.reasoning_text.done"
    text: str
    sequence_number: int = 0


class _SummaryEvent(Struct):
    item_id: str
    output_index: int
    summary_index: int


class ReasoningSummaryPartAdded(_SummaryEvent, tag="response.reasoning_summary_part.added"):
    """A summary part begins."""

    TYPE: ClassVar[str] = "response.reasoning_summary_part.added"
    part: SummaryText
    sequence_number: int = 0


class ReasoningSummaryPartDone(_SummaryEvent, tag="response.reasoning_summary_part.done"):
    """A summary part ended."""

    TYPE: ClassVar[str] = "response.reasoning_summary_part.done"
    part: SummaryText
    sequence_number: int = 0


class ReasoningSummaryTextDelta(_SummaryEvent, tag="response.reasoning_summary_text.delta"):
    """More of a summary."""

    TYPE: ClassVar[str] = "response.reasoning_summary_text.delta"
    delta: str
    sequence_number: int = 0


class ReasoningSummaryTextDone(_SummaryEvent, tag="response.reasoning_summary_text.done"):
    """The whole text of a summary part."""

    TYPE: ClassVar[str] = "response.reasoning_summary_text.done"
    text: str
    sequence_number: int = 0


class FunctionCallArgumentsDelta(Struct, tag="response.function_call_arguments.delta"):
    """More of a call's arguments."""

    TYPE: ClassVar[str] = "response.function_call_arguments.delta"
    item_id: str
    output_index: int
    delta: str
    sequence_number: int = 0


class FunctionCallArgumentsDone(Struct, tag="response.function_call_arguments.done"):
    """The whole arguments of a call."""

    TYPE: ClassVar[str] = "response.function_call_arguments.done"
    item_id: str
    output_index: int
    name: str
    arguments: str
    sequence_number: int = 0


class CustomToolCallInputDelta(Struct, tag="response.custom_tool_call_input.delta"):
    """More of a custom tool's input."""

    TYPE: ClassVar[str] = "response.custom_tool_call_input.delta"
    item_id: str
    output_index: int
    delta: str
    sequence_number: int = 0


class CustomToolCallInputDone(Struct, tag="response.custom_tool_call_input.done"):
    """The whole input of a custom tool."""

    TYPE: ClassVar[str] = "response.custom_tool_call_input.done"
    item_id: str
    output_index: int
    input: str
    sequence_number: int = 0


class ShellCommandAdded(Struct, tag="response.shell_call_command.added"):
    """A command of a shell call begins, empty; the events of commands name no item (hosted-tools A2)."""

    TYPE: ClassVar[str] = "response.shell_call_command.added"
    output_index: int
    command_index: int
    command: str
    sequence_number: int = 0


class ShellCommandDelta(Struct, tag="response.shell_call_command.delta"):
    """More of a command."""

    TYPE: ClassVar[str] = "response.shell_call_command.delta"
    output_index: int
    command_index: int
    delta: str
    sequence_number: int = 0


class ShellCommandDone(Struct, tag="response.shell_call_command.done"):
    """The whole of a command."""

    TYPE: ClassVar[str] = "response.shell_call_command.done"
    output_index: int
    command_index: int
    command: str
    sequence_number: int = 0


class ApplyPatchDiffDelta(Struct, tag="response.apply_patch_call_operation_diff.delta"):
    """More of the diff of a patch."""

    TYPE: ClassVar[str] = "response.apply_patch_call_operation_diff.delta"
    item_id: str
    output_index: int
    delta: str
    sequence_number: int = 0


class ApplyPatchDiffDone(Struct, tag="response.apply_patch_call_operation_diff.done"):
    """The whole diff of a patch; a deletion has none."""

    TYPE: ClassVar[str] = "response.apply_patch_call_operation_diff.done"
    item_id: str
    output_index: int
    diff: str
    sequence_number: int = 0


class RawEvent(Struct):
    """An event of a type without a struct, whole."""

    type: str
    sequence_number: int
    body: dict[str, Any]


LifecycleEvent = (
    ResponseCreated | ResponseQueued | ResponseInProgress | ResponseCompleted | ResponseIncomplete | ResponseFailed
)

Event = (
    LifecycleEvent
    | ErrorEvent
    | OutputItemAdded
    | OutputItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTextDelta
    | OutputTextDone
    | AnnotationAdded
    | RefusalDelta
    | RefusalDone
    | ReasoningTextDelta
    | ReasoningTextDone
    | ReasoningSummaryPartAdded
    | ReasoningSummaryPartDone
    | ReasoningSummaryTextDelta
    | ReasoningSummaryTextDone
    | FunctionCallArgumentsDelta
    | FunctionCallArgumentsDone
    | CustomToolCallInputDelta
    | CustomToolCallInputDone
    | ShellCommandAdded
    | ShellCommandDelta
    | ShellCommandDone
    | ApplyPatchDiffDelta
    | ApplyPatchDiffDone
)
"""Every event with a struct."""

TERMINAL_EVENTS = (ResponseCompleted, ResponseIncomplete, ResponseFailed)
"""Exactly one of these ends a log."""


class _Head(Struct):
    type: str
    sequence_number: int = 0
    item: Raw = Raw(b"")
    response: Raw = Raw(b"")


_head = msgspec.json.Decoder(_Head)
_typed = msgspec.json.Decoder(Event)
_raw = msgspec.json.Decoder(dict[str, Any])
_TYPED_NAMES = frozenset(member.TYPE for member in Event.__args__)


def decode_event(data: bytes | str) -> Event | RawEvent:
    """One event of its JSON; items and responses in it are typed.

    Raises:
        msgspec.ValidationError: an event of a known type has a wrong shape.
    """
    head = _head.decode(data)
    if head.type not in _TYPED_NAMES:
        return RawEvent(type=head.type, sequence_number=head.sequence_number, body=_raw.decode(data))
    event = _typed.decode(data)
    if isinstance(event, OutputItemAdded | OutputItemDone):
        event.item = wire_item(decode_item(head.item))
    elif isinstance(event, _Lifecycle):
        event.response = decode_response(bytes(head.response))
    return event
