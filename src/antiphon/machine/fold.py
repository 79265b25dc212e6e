"""The fold: what the events of a response add up to.

`fold(all events)` is the object of the terminal event and of `GET` (law 1); the fold of a prefix is the snapshot that
was true there. The same fold serves the live log, a replay and the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from msgspec import UNSET

from antiphon.protocol import events as e
from antiphon.protocol.hosted import is_beside
from antiphon.protocol.items import Message, Reasoning
from antiphon.protocol.parts import OutputText, ReasoningText, Refusal, SummaryText
from antiphon.protocol.response import Response, output_text

__all__ = ["Fold", "fold"]


_RAW_FIELDS = {
    "response.mcp_call_arguments.delta": "arguments",
    "response.code_interpreter_call_code.delta": "code",
}
_RAW_STATES = frozenset(
    {
        "response.file_search_call.searching",
        "response.web_search_call.searching",
        "response.code_interpreter_call.interpreting",
        "response.image_generation_call.generating",
    }
)


class Fold:
    """The state of a response after the events applied so far.

    Text arrives in pieces and is joined only when someone looks, so that a delta costs the same however long the text.
    """

    def __init__(self) -> None:
        self.response: Response | None = None
        self._pieces: dict[tuple[str, int, int], list[str]] = {}
        self._places: list[tuple[list[Any], int]] = []

    def apply(self, event: object) -> None:
        """Take one event in; events without a rule change nothing."""
        rule = self._rules.get(type(event))
        if rule is not None:
            rule(self, event)

    def pieces(self, event: Any) -> list[str]:
        """Where the text of delta events like this one is kept; taking it in has no other effect."""
        return self._pieces.setdefault(_place(event), [])

    def snapshot(self) -> Response:
        """The response as it stands, with all text that has arrived.

        Raises:
            LookupError: no event has come yet.
        """
        response = self.response
        if response is None:
            raise LookupError("the log is empty")
        for (field, output_index, index), pieces in self._pieces.items():
            text = "".join(pieces)
            pieces[:] = [text]
            item = self._item(output_index)
            if field == "diff":
                item["operation"]["diff"] = text
            elif field == "command":
                item["action"]["commands"][index] = text
            elif index < 0:
                setattr(item, field, text)
            else:
                parts = item.summary if field == "summary" else item.content
                part = parts[index]
                if isinstance(part, Refusal):
                    part.refusal = text
                else:
                    part.text = text
        return response

    def items(self) -> list[Any]:
        """All items so far by their `output_index`, those beside the output too."""
        return [items[index] for items, index in self._places]

    def _lifecycle(self, event: Any) -> None:
        incoming: Response = event.response
        current = self.response
        if current is None:
            self.response = incoming
            return
        if incoming is current:
            return
        current.status = incoming.status
        current.error = incoming.error
        current.incomplete_details = incoming.incomplete_details
        current.usage = incoming.usage
        current.completed_at = incoming.completed_at
        current.service_tier = incoming.service_tier
        current.context_management = incoming.context_management
        if isinstance(event, e.TERMINAL_EVENTS):
            current.output_text = output_text(current.output)

    def _holder(self, item: Any) -> list[Any]:
        """Where an item stands: under `output`, or beside it (B26)."""
        response = self.response
        if response is None:
            raise LookupError("the log is empty")
        if not is_beside(item):
            return response.output
        if response.hosted_tool_calls is UNSET:
            response.hosted_tool_calls = []
        return response.hosted_tool_calls

    def _item(self, output_index: int) -> Any:
        items, index = self._places[output_index]
        return items[index]

    def _item_added(self, event: e.OutputItemAdded) -> None:
        items = self._holder(event.item)
        self._places.append((items, len(items)))
        items.append(event.item)

    def _item_done(self, event: e.OutputItemDone) -> None:
        items, index = self._places[event.output_index]
        items[index] = event.item
        for field in ("arguments", "input", "diff"):
            self._pieces.pop((field, event.output_index, -1), None)

    def _part_added(self, event: e.ContentPartAdded) -> None:
        item = self._item(event.output_index)
        part: Any = event.part
        if isinstance(item, Reasoning):
            if item.content is UNSET or item.content is None:
                item.content = []
            item.content.append(ReasoningText(text=part.text))
        elif isinstance(item, Message) and not isinstance(item.content, str):
            fresh: Any = Refusal(refusal="") if isinstance(part, Refusal) else OutputText(text="")
            item.content.append(fresh)
        self._pieces["content", event.output_index, event.content_index] = []

    def _part_done(self, event: e.ContentPartDone) -> None:
        item = self._item(event.output_index)
        item.content[event.content_index] = event.part
        self._pieces.pop(("content", event.output_index, event.content_index), None)

    def _delta(self, event: Any) -> None:
        self.pieces(event).append(event.delta)

    def _annotation(self, event: e.AnnotationAdded) -> None:
        self._item(event.output_index).content[event.content_index].annotations.append(event.annotation)

    def _summary_added(self, event: e.ReasoningSummaryPartAdded) -> None:
        self._item(event.output_index).summary.append(SummaryText(text=""))
        self._pieces["summary", event.output_index, event.summary_index] = []

    def _summary_delta(self, event: e.ReasoningSummaryTextDelta) -> None:
        self._pieces["summary", event.output_index, event.summary_index].append(event.delta)

    def _summary_done(self, event: e.ReasoningSummaryPartDone) -> None:
        self._item(event.output_index).summary[event.summary_index] = event.part
        self._pieces.pop(("summary", event.output_index, event.summary_index), None)

    def _command_added(self, event: e.ShellCommandAdded) -> None:
        self._item(event.output_index)["action"]["commands"].append(event.command)
        self._pieces["command", event.output_index, event.command_index] = [event.command]

    def _command_done(self, event: e.ShellCommandDone) -> None:
        self._item(event.output_index)["action"]["commands"][event.command_index] = event.command
        self._pieces.pop(("command", event.output_index, event.command_index), None)

    def _raw(self, event: e.RawEvent) -> None:
        """Events of hosted items: more of what a call says, and how far it is."""
        field = _RAW_FIELDS.get(event.type)
        if field is not None:
            item = self._item(event.body["output_index"])
            item[field] += event.body["delta"]
        elif event.type in _RAW_STATES:
            self._item(event.body["output_index"])["status"] = event.type.rpartition(".")[2]

    _rules: ClassVar[dict[type, Callable[[Fold, Any], None]]] = {
        e.ResponseCreated: _lifecycle,
        e.ResponseQueued: _lifecycle,
        e.ResponseInProgress: _lifecycle,
        e.ResponseCompleted: _lifecycle,
        e.ResponseIncomplete: _lifecycle,
        e.ResponseFailed: _lifecycle,
        e.OutputItemAdded: _item_added,
        e.OutputItemDone: _item_done,
        e.ContentPartAdded: _part_added,
        e.ContentPartDone: _part_done,
        e.OutputTextDelta: _delta,
        e.RefusalDelta: _delta,
        e.ReasoningTextDelta: _delta,
        e.AnnotationAdded: _annotation,
        e.ReasoningSummaryPartAdded: _summary_added,
        e.ReasoningSummaryTextDelta: _summary_delta,
        e.ReasoningSummaryPartDone: _summary_done,
        e.FunctionCallArgumentsDelta: _delta,
        e.CustomToolCallInputDelta: _delta,
        e.ShellCommandAdded: _command_added,
        e.ShellCommandDelta: _delta,
        e.ShellCommandDone: _command_done,
        e.ApplyPatchDiffDelta: _delta,
        e.RawEvent: _raw,
    }


def _place(event: Any) -> tuple[str, int, int]:
    """Field, item and part that a delta belongs to; a call has no parts."""
    if isinstance(event, e.FunctionCallArgumentsDelta):
        return "arguments", event.output_index, -1
    if isinstance(event, e.CustomToolCallInputDelta):
        return "input", event.output_index, -1
    if isinstance(event, e.ApplyPatchDiffDelta):
        return "diff", event.output_index, -1
    if isinstance(event, e.ShellCommandDelta):
        return "command", event.output_index, event.command_index
    return "content", event.output_index, event.content_index


def fold(events: Iterable[Any]) -> Response:
    """The response that these events add up to.

    Raises:
        LookupError: there are none.
    """
    state = Fold()
    for event in events:
        state.apply(event)
    return state.snapshot()
