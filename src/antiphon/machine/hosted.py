"""The events of hosted items, as data: what each type is told as, in which order (hosted-tools A2). Pure.

An item is added as an empty one; then come the events up to where its tool runs, and, when it has run, the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from msgspec import Struct

from antiphon.protocol import events as e
from antiphon.protocol.events import RawEvent

__all__ = ["ORDERS", "Order", "Told", "begun_item", "closing", "cut_item", "opening"]


class Told(Struct, frozen=True):
    """An event of an item: its name after `response.`, and its fields beside the item's place, by those of the item.

    One that is `more` of a field is left out where there is nothing, and may come again.
    """

    name: str
    fields: Mapping[str, str] = {}
    more: bool = False

    @property
    def type(self) -> str:
        """The event's type."""
        return f"response.{self.name}"


class Order(Struct, frozen=True):
    """What a type is told as.

    `begun` are fields as they are when the item is added, `later` those that it does not have yet. `before` are the
    events before the run; after it `completed` or `failed` follow, by the item's status. `cut` is the status of an item
    whose run was cut.
    """

    begun: Mapping[str, Any] = {}
    later: Sequence[str] = ()
    before: Sequence[Told] = ()
    completed: Sequence[Told] = ()
    failed: Sequence[Told] = ()
    cut: str = "failed"


ORDERS: Final[Mapping[str, Order]] = {
    "file_search_call": Order(
        begun={"queries": [], "results": None},
        before=(Told("file_search_call.in_progress"), Told("file_search_call.searching")),
        completed=(Told("file_search_call.completed"),),
        cut="incomplete",
    ),
    "web_search_call": Order(
        later=("action", "results", "error"),
        before=(Told("web_search_call.in_progress"), Told("web_search_call.searching")),
        completed=(Told("web_search_call.completed"),),
    ),
    "code_interpreter_call": Order(
        begun={"code": "", "outputs": []},
        later=("error",),
        before=(
            Told("code_interpreter_call.in_progress"),
            Told("code_interpreter_call_code.delta", {"delta": "code"}, more=True),
            Told("code_interpreter_call_code.done", {"code": "code"}),
            Told("code_interpreter_call.interpreting"),
        ),
        completed=(Told("code_interpreter_call.completed"),),
        cut="incomplete",
    ),
    "image_generation_call": Order(
        before=(Told("image_generation_call.in_progress"), Told("image_generation_call.generating")),
        completed=(Told("image_generation_call.completed"),),
    ),
    "mcp_list_tools": Order(
        begun={"tools": []},
        later=("error",),
        before=(Told("mcp_list_tools.in_progress"),),
        completed=(Told("mcp_list_tools.completed"),),
        failed=(Told("mcp_list_tools.failed"),),
    ),
    "mcp_call": Order(
        begun={"arguments": "", "output": None, "error": None},
        before=(
            Told("mcp_call.in_progress"),
            Told("mcp_call_arguments.delta", {"delta": "arguments"}, more=True),
            Told("mcp_call_arguments.done", {"arguments": "arguments"}),
        ),
        completed=(Told("mcp_call.completed"),),
        failed=(Told("mcp_call.failed"),),
        cut="incomplete",
    ),
    "shell_call": Order(cut="incomplete"),
    "shell_call_output": Order(begun={"output": []}, cut="incomplete"),
}
"""The order of each type; one that is not here is only added and done, as the corpus tools' are (B26)."""

_PLAIN: Final = Order()


def begun_item(body: Mapping[str, Any]) -> dict[str, Any]:
    """The item as it is added."""
    order = ORDERS.get(body["type"], _PLAIN)
    begun = {name: value for name, value in body.items() if name not in order.later and not name.startswith("_")}
    begun |= {name: [] if value == [] else value for name, value in order.begun.items()}
    if body["type"] == "shell_call":
        begun["action"] = {**begun["action"], "commands": []}
    return begun


def cut_item(item: dict[str, Any]) -> dict[str, Any]:
    """The item whose run was cut before its end."""
    if "status" not in item:
        return item
    return {**item, "status": ORDERS.get(item["type"], _PLAIN).cut}


def opening(body: Mapping[str, Any], output_index: int) -> list[Any]:
    """The events after the item is added, up to its run."""
    if body["type"] == "shell_call":
        return _commands(cast("list[str]", body["action"]["commands"]), output_index)
    return _told(ORDERS.get(body["type"], _PLAIN).before, body, output_index)


def closing(body: Mapping[str, Any], output_index: int) -> list[Any]:
    """The events after the run, before the item is done."""
    if body["type"] == "shell_call_output":
        return _outputs(body, output_index)
    order = ORDERS.get(body["type"], _PLAIN)
    # The list of a server's tools has no status: what it has is an error or none.
    failed = body.get("status") == "failed" if "status" in body else bool(body.get("error"))
    if not failed and body.get("status", "completed") != "completed":
        return []
    return _told(order.failed if failed else order.completed, body, output_index)


def _told(events: Sequence[Told], body: Mapping[str, Any], output_index: int) -> list[Any]:
    made: list[Any] = []
    for told in events:
        fields = {name: body.get(source) or "" for name, source in told.fields.items()}
        if told.more and not all(fields.values()):
            continue
        place = {"item_id": body["id"], "output_index": output_index}
        made.append(RawEvent(told.type, 0, {"type": told.type, **place, **fields, "sequence_number": 0}))
    return made


def _commands(commands: Sequence[str], output_index: int) -> list[Any]:
    made: list[Any] = []
    for index, command in enumerate(commands):
        made.append(e.ShellCommandAdded(output_index, index, ""))
        if command:
            made.append(e.ShellCommandDelta(output_index, index, command))
        made.append(e.ShellCommandDone(output_index, index, command))
    return made


def _outputs(body: Mapping[str, Any], output_index: int) -> list[Any]:
    """What each command gave, one after the other; what came on either stream is told in one piece."""
    made: list[Any] = []
    kind = "response.shell_call_output_content"
    place = {"item_id": body["id"], "output_index": output_index}
    for index, output in enumerate(cast("list[dict[str, Any]]", body.get("output") or [])):
        at = {**place, "command_index": index}
        for stream in ("stdout", "stderr"):
            if output.get(stream):
                fields = {"type": f"{kind}.delta", **at, "delta": {stream: output[stream]}, "sequence_number": 0}
                made.append(RawEvent(f"{kind}.delta", 0, fields))
        fields = {"type": f"{kind}.done", **at, "output": [output], "sequence_number": 0}
        made.append(RawEvent(f"{kind}.done", 0, fields))
    return made
