"""`prune_context`: the model takes results that it needs no more out of what it sees (B14).

Only the view is pruned: what is stored stays whole. The ids are in the items of the calls, so that what they name stays
pruned over a chain; `antiphon.prompt` makes the view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from antiphon.protocol import context
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.tools import FunctionTool
from antiphon.tools.base import HostedCall, HostedTool, Opened, Outcome, Provider, Session
from antiphon.tools.corpus.arguments import strings_said

__all__ = ["PRUNE_CONTEXT", "PruneProvider"]

PRUNE_CONTEXT: Final = "prune_context"
MOST_IDS: Final = 128


class _Prune(HostedTool):
    item_type = f"{PRUNE_CONTEXT}_call"
    declared: Mapping[str, Any] = MappingProxyType({"type": PRUNE_CONTEXT})
    function = FunctionTool(
        name=PRUNE_CONTEXT,
        description=(
            "Remove results of tools that are not needed any more, to make room. Give the chunk ids of passages, or "
            "the call ids of other results."
        ),
        parameters={
            "type": "object",
            "properties": {
                "ids": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_IDS},
            },
            "required": ["ids"],
            "additionalProperties": False,
        },
    )

    def item(self, call: HostedCall) -> dict[str, Any]:
        """The item of a call, with the ids echoed."""
        return {"type": self.item_type, "ids": (call.arguments or {}).get("ids")}

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        """Note the ids; that there is nothing by one of them is no fault.

        Raises:
            InvalidRequestError: there are none, or too many.
        """
        ids = list(dict.fromkeys(strings_said(call, "ids", most=MOST_IDS)))
        return Outcome({"status": "completed", "ids": ids})


class PruneProvider(Provider):
    """Gives the model `prune_context` where `context_management.edits` says so."""

    types = frozenset[str]()

    def wanted(self, request: CreateResponse) -> bool:
        """Whether the request declares that edit."""
        return prunes(request)

    async def open(self, declared: Sequence[dict[str, Any]], session: Session) -> Opened:
        """The one tool."""
        return Opened([_Prune()])


def prunes(request: CreateResponse) -> bool:
    """Whether the model may prune what it sees."""
    return context.prunes(request.context_management)
