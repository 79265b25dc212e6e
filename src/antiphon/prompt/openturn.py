"""An assistant turn of a history while it is made of items, and what it is as messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.machine.router import APPLY_PATCH, LOCAL_SHELL, SHELL, TOOL_SEARCH
from antiphon.prompt.prompt import ChatMessage, ToolCall
from antiphon.protocol.items import Item

__all__ = ["EMPTY_TURN", "OWN_CALLS", "OWN_OUTPUTS", "OpenTurn", "closed", "hosted_item"]

OWN_CALLS: Final = frozenset({SHELL, APPLY_PATCH, LOCAL_SHELL, TOOL_SEARCH})
"""Calls that every model is told of as calls of functions."""

OWN_OUTPUTS: Final = frozenset({*(f"{call}_output" for call in OWN_CALLS), "tool_search_output"})
"""Their outputs."""

_HOSTED: Final = frozenset({"mcp_list_tools", "mcp_approval_request", "mcp_approval_response"})
"""Items of what an upstream runs that are no calls."""


class OpenTurn(Struct, frozen=True):
    """An assistant turn that may still get thinking, text or calls.

    `items` are all that it is made of. `results` are what the calls of tools that ran here gave, and `round` is the
    turn of the model that made those. `hosted` says that some items are of what an upstream ran, and `sealed` that
    there is a thought that only its maker can read: no chat message says these.
    """

    reasoning: str = ""
    text: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    images: tuple[dict[str, Any], ...] = ()
    results: tuple[ChatMessage, ...] = ()
    round: Any = None
    items: tuple[Item, ...] = ()
    hosted: bool = False
    sealed: bool = False

    @property
    def begun(self) -> bool:
        """Whether there is anything in it that a chat message says."""
        return bool(self.text or self.calls or self.images)

    @property
    def told(self) -> bool:
        """Whether it is told at all: thinking that nothing followed is not (M14)."""
        return self.begun or self.hosted

    def with_item(self, item: Item, *, hosted: bool = False, sealed: bool = False) -> OpenTurn:
        """The same with one item more."""
        return replace(self, items=(*self.items, item), hosted=self.hosted or hosted, sealed=self.sealed or sealed)


EMPTY_TURN: Final = OpenTurn()
"""A turn in which nothing has come."""


def closed(turn: OpenTurn) -> Iterable[ChatMessage]:
    """The messages of a turn that gets no more."""
    items = turn.items if turn.hosted or turn.sealed else ()
    yield ChatMessage("assistant", "\n".join(turn.text), turn.reasoning, turn.calls, items=items)
    yield from turn.results
    if turn.images:
        yield ChatMessage("user", list(turn.images))


def hosted_item(item_type: str) -> bool:
    """Whether an item is one of what an upstream runs, if it has no `call_id` that a client answers to."""
    return item_type in _HOSTED or item_type.endswith("_call")
