"""Which event may follow which, as tables.

Rule 1: everything that decides whether an event is legal is in this file.
Rule 2: this file knows nothing of engines, stores or transports.

Three kinds of subject have a state of their own: the response, each item (by `output_index`) and each part of an item
(by item and index, content and summary parts apart). An event moves the state of exactly one subject. Beside the
tables, five laws hold (responses-api 6.1): numbers run from 0 without gaps (the log gives them); `output_index` is
dense; an item keeps the id it began with; an item ends only when its parts have ended; the terminal event comes once,
when no item is open, and nothing comes after it.
"""

from __future__ import annotations

from typing import Any, Final, cast

from antiphon.machine.hosted import ORDERS
from antiphon.protocol import events as e
from antiphon.protocol.hosted import HOSTED_ITEMS

__all__ = ["IllegalTransitionError", "Transitions"]

NEW: Final = "new"
CREATED: Final = "created"
QUEUED: Final = "queued"
IN_PROGRESS: Final = "in progress"
FAILING: Final = "failing"
ENDED: Final = "ended"
COMMAND: Final = "command"

RESPONSE: dict[str, dict[type, str]] = {
    NEW: {e.ResponseCreated: CREATED},
    CREATED: {
        e.ResponseQueued: QUEUED,
        e.ResponseInProgress: IN_PROGRESS,
        e.ErrorEvent: FAILING,
        e.ResponseFailed: ENDED,
        e.ResponseIncomplete: ENDED,
    },
    QUEUED: {
        e.ResponseInProgress: IN_PROGRESS,
        e.ErrorEvent: FAILING,
        e.ResponseFailed: ENDED,
        e.ResponseIncomplete: ENDED,
    },
    IN_PROGRESS: {
        e.ErrorEvent: FAILING,
        e.ResponseCompleted: ENDED,
        e.ResponseIncomplete: ENDED,
        e.ResponseFailed: ENDED,
    },
    FAILING: {e.ResponseFailed: ENDED},
    ENDED: {},
}
"""State of the response → event → next state."""

ITEM_OPENS: dict[str, str] = {
    "message": "message",
    "reasoning": "reasoning",
    "function_call": "function call",
    "custom_tool_call": "custom call",
    "shell_call": "shell call",
    "apply_patch_call": "patch call",
}
"""Item type → the state in which an item of it begins; any other type begins as `other`.

So does a call of the shell or a patch that is whole where it begins.
"""

ITEM: dict[type, dict[str, str]] = {
    e.FunctionCallArgumentsDelta: {"function call": "function call"},
    e.FunctionCallArgumentsDone: {"function call": "called"},
    e.CustomToolCallInputDelta: {"custom call": "custom call"},
    e.CustomToolCallInputDone: {"custom call": "called"},
    e.ApplyPatchDiffDelta: {"patch call": "patch diff", "patch diff": "patch diff"},
    e.ApplyPatchDiffDone: {"patch call": "called", "patch diff": "called"},
    e.OutputItemDone: {
        "message": "done",
        "reasoning": "done",
        "called": "done",
        # Not every log has the events of a diff.
        "patch call": "done",
        "shell call": "done",
        "other": "done",
    },
}
"""Event → state of the item → next state."""

PART_OPENS: dict[type, dict[str, str]] = {
    e.ContentPartAdded: {"output_text": "text", "refusal": "refusal", "reasoning_text": "reasoning"},
    e.ReasoningSummaryPartAdded: {"summary_text": "summary"},
    e.ShellCommandAdded: {COMMAND: "command"},
}
"""Event → type of the part → the state in which it begins; a command of a shell call is a part of it."""

PART_HOLDERS: dict[str, frozenset[str]] = {
    "text": frozenset({"message"}),
    "refusal": frozenset({"message"}),
    "reasoning": frozenset({"reasoning"}),
    "summary": frozenset({"reasoning"}),
    "command": frozenset({"shell call"}),
}
"""State in which a part begins → the states of an item that may hold it."""

PART: dict[type, dict[str, str]] = {
    e.OutputTextDelta: {"text": "text"},
    e.AnnotationAdded: {"text": "text"},
    e.OutputTextDone: {"text": "whole"},
    e.RefusalDelta: {"refusal": "refusal"},
    e.RefusalDone: {"refusal": "whole"},
    e.ReasoningTextDelta: {"reasoning": "reasoning"},
    e.ReasoningTextDone: {"reasoning": "whole"},
    e.ContentPartDone: {"whole": "done"},
    e.ReasoningSummaryTextDelta: {"summary": "summary"},
    e.ReasoningSummaryTextDone: {"summary": "whole"},
    e.ReasoningSummaryPartDone: {"whole": "done"},
    e.ShellCommandDelta: {"command": "command"},
    e.ShellCommandDone: {"command": "done"},
}
"""Event → state of the part → next state."""

HOSTED: dict[str, dict[str, tuple[int, bool]]] = {
    kind: {
        **{told.type: (place, told.more) for place, told in enumerate(order.before, 1)},
        **{told.type: (len(order.before) + 1, False) for told in (*order.completed, *order.failed)},
    }
    for kind, order in ORDERS.items()
}
"""Type of a hosted item → its events → the place of each among them, and whether it may come more than once.

Each comes after those of lower places. An item ends after none of them, as those that an upstream ran do, or after all
that come before its run.
"""

HOSTED_OPENS: dict[str, int] = {kind: len(order.before) for kind, order in ORDERS.items() if order.before}
"""Type of a hosted item → the place that it has reached when its tool runs."""

OUTPUT_EVENTS = frozenset({"response.shell_call_output_content.delta", "response.shell_call_output_content.done"})
"""The events of a shell's output, as many as there are of each command."""

_COMMAND_EVENTS = (e.ShellCommandAdded, e.ShellCommandDelta, e.ShellCommandDone)
_SUMMARY_EVENTS = frozenset(
    {
        e.ReasoningSummaryPartAdded,
        e.ReasoningSummaryPartDone,
        e.ReasoningSummaryTextDelta,
        e.ReasoningSummaryTextDone,
    }
)


_STATELESS = frozenset({"mcp_list_tools", "mcp_approval_request", "shell_call_output"})


class IllegalTransitionError(Exception):
    """An event that may not come here: a fault of ours, never of a caller."""


class Transitions:
    """The state of one log, checked and moved event by event."""

    def __init__(self) -> None:
        self._response = NEW
        self._before_end = NEW
        self._items: list[str] = []
        self._ids: list[str] = []
        self._parts: dict[tuple[bool, int, int], str] = {}
        self._open_parts: dict[int, int] = {}
        self._open_items = 0
        self._hosted: dict[int, tuple[str, int]] = {}

    @property
    def ended(self) -> bool:
        """Whether the terminal event has come."""
        return self._response == ENDED

    @property
    def queued(self) -> bool:
        """Whether the response waits for its turn."""
        return self._response == QUEUED

    @property
    def between_steps(self) -> bool:
        """Whether no opening or closing sequence is half done: what is open can take more, or something new begins."""
        if self._open_items == 0:
            return self._response not in (FAILING, ENDED)
        last = len(self._items) - 1
        state = self._items[-1]
        if last in self._hosted:
            kind, reached = self._hosted[last]
            return reached == HOSTED_OPENS.get(kind, 0)
        if state in ("function call", "custom call", "shell call", "patch call", "patch diff"):
            return True
        taking = [part for part in self._parts.items() if part[0][1] == len(self._items) - 1]
        return bool(taking) and taking[-1][1] in ("text", "refusal", "reasoning", "summary")

    def reopen(self) -> None:
        """Go back to before the terminal event, and the `error` before it, which nobody has seen."""
        self._response = self._before_end

    def move(self, event: object) -> None:
        """Check an event and move the state of its subject.

        Raises:
            IllegalTransitionError: the event may not come here.
        """
        kind = type(event)
        row = PART.get(kind)
        if row is not None:
            self._move_part(event, kind, row)
        elif kind in ITEM:
            self._move_item(event, kind, ITEM[kind])
        elif isinstance(event, e.OutputItemAdded):
            self._open_item(event)
        elif isinstance(event, e.RawEvent):
            self._move_hosted(event)
        elif kind in PART_OPENS:
            self._open_part(event, kind)
        else:
            self._move_response(kind)

    def _move_response(self, kind: type) -> None:
        following = RESPONSE[self._response].get(kind)
        if following is None:
            raise IllegalTransitionError(f"{kind.__name__} while the response is {self._response}")
        if following == ENDED and self._open_items:
            raise IllegalTransitionError(f"{kind.__name__} while {self._open_items} items are open")
        if following in (FAILING, ENDED) and self._response != FAILING:
            self._before_end = self._response
        self._response = following

    def _running(self, kind: type) -> None:
        if self._response != IN_PROGRESS:
            raise IllegalTransitionError(f"{kind.__name__} while the response is {self._response}")

    def _open_item(self, event: e.OutputItemAdded) -> None:
        self._running(e.OutputItemAdded)
        if event.output_index != len(self._items):
            raise IllegalTransitionError(f"output_index {event.output_index} after {len(self._items)} items")
        kind, identity = _type_and_id(event.item)
        body = cast("dict[str, Any]", event.item) if isinstance(event.item, dict) else None
        whole = body is not None and _begins_whole(body)
        begins = body is not None and body.get("status") == "in_progress"
        state = "other" if whole else ITEM_OPENS.get(kind, "other")
        self._items.append(state)
        self._ids.append(identity)
        self._open_items += 1
        if state == "other" and kind in HOSTED_ITEMS and (begins or kind in _STATELESS):
            self._hosted[event.output_index] = kind, 0

    def _move_hosted(self, event: e.RawEvent) -> None:
        """An event of a hosted item: each at its place in the order of its type."""
        self._running(e.RawEvent)
        index: int = event.body["output_index"]
        state = self._item_state(index)
        kind, reached = self._hosted.get(index, ("", 0))
        place, again = HOSTED.get(kind, {}).get(event.type, (0, False))
        if kind == "shell_call_output" and event.type in OUTPUT_EVENTS:
            place, again = 1, True
        if state == "done" or place < reached or (place == reached and not again) or not place:
            raise IllegalTransitionError(f"{event.type} at step {reached} of {kind or state}")
        self._check_id(index, event.body["item_id"])
        self._hosted[index] = kind, place

    def _move_item(self, event: Any, kind: type, row: dict[str, str]) -> None:
        self._running(kind)
        index: int = event.output_index
        state = self._item_state(index)
        following = row.get(state)
        if following is None:
            raise IllegalTransitionError(f"{kind.__name__} while the item is {state}")
        identity = _type_and_id(event.item)[1] if following == "done" else event.item_id
        self._check_id(index, identity)
        if following == "done":
            if self._open_parts.get(index):
                raise IllegalTransitionError("the item ends while a part of it is open")
            kind_of_item, reached = self._hosted.pop(index, ("", 0))
            if 0 < reached < HOSTED_OPENS.get(kind_of_item, 0):
                raise IllegalTransitionError(f"the item ends before its call was told: step {reached}")
            self._open_items -= 1
        self._items[index] = following

    def _open_part(self, event: Any, kind: type) -> None:
        self._running(kind)
        part = COMMAND
        if not isinstance(event, _COMMAND_EVENTS):
            self._check_id(event.output_index, event.item_id)
            part = str(event.part.__struct_config__.tag)
        state = PART_OPENS[kind].get(part)
        holder = self._item_state(event.output_index)
        if state is None or holder not in PART_HOLDERS[state]:
            raise IllegalTransitionError(f"{kind.__name__} of that part while the item is {holder}")
        key = _part_key(event, kind)
        if key in self._parts or (key[2] and (key[0], key[1], key[2] - 1) not in self._parts):
            raise IllegalTransitionError(f"part index {key[2]} is taken or leaves a gap")
        self._parts[key] = state
        self._open_parts[key[1]] = self._open_parts.get(key[1], 0) + 1

    def _move_part(self, event: Any, kind: type, row: dict[str, str]) -> None:
        key = _part_key(event, kind)
        state = self._parts.get(key)
        following = row.get(state) if state is not None else None
        if following is None or self._response != IN_PROGRESS:
            raise IllegalTransitionError(f"{kind.__name__} while the part is {state or 'absent'}")
        if not isinstance(event, _COMMAND_EVENTS) and self._ids[key[1]] != event.item_id:
            raise _other_id(key[1])
        if following is not state:
            self._parts[key] = following
            if following == "done":
                self._open_parts[key[1]] -= 1

    def _item_state(self, index: int) -> str:
        if not 0 <= index < len(self._items):
            raise IllegalTransitionError(f"output_index {index} has not been added")
        return self._items[index]

    def _check_id(self, index: int, identity: str) -> None:
        if not 0 <= index < len(self._ids) or self._ids[index] != identity:
            raise _other_id(index)


def _begins_whole(body: dict[str, Any]) -> bool:
    """Whether nothing is added to an item after its beginning; the deletion of a file has no diff."""
    return body.get("status") != "in_progress" or (
        body["type"] == "apply_patch_call" and "diff" not in body["operation"]
    )


def _other_id(index: int) -> IllegalTransitionError:
    return IllegalTransitionError(f"item {index} has another id")


def _part_key(event: Any, kind: type) -> tuple[bool, int, int]:
    if kind in _SUMMARY_EVENTS:
        return True, event.output_index, event.summary_index
    if isinstance(event, _COMMAND_EVENTS):
        return False, event.output_index, event.command_index
    return False, event.output_index, event.content_index


def _type_and_id(item: Any) -> tuple[str, str]:
    if isinstance(item, dict):
        body = cast("dict[str, Any]", item)
        return str(body["type"]), str(body["id"])
    return str(item.__struct_config__.tag), item.id
