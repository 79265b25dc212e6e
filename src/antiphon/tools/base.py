"""The interface of hosted tools: those that the server runs itself, between the turns of a model (issue 6, section 1).

A `Provider` runs the tools of some types. For one response it gives `HostedTool`s, each one a function that the model
is told of. A call becomes an output item: it is begun with what the call says, and done with what the run gave. The
item in full, with its results and outputs, is the evidence that the history keeps and that the model is shown
(`antiphon.prompt.hosted` says how); what a client sees of it is a matter of `include`. A fault of a tool is an item
that `failed`, and the model goes on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from antiphon.errors import APIError
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.tools import FunctionTool
from antiphon.store.base import Scope

__all__ = ["HostedCall", "HostedTool", "Opened", "Outcome", "Provider", "Session", "fault"]


class HostedCall(Struct, frozen=True):
    """A call as the model made it.

    `text` are its arguments as they were written, `arguments` the object that they are, None where they are none.
    `item_id` is that of the output item. `characters` is the most text that the run may give to the model.
    `approval` is the id of the request for approval that was granted, where one was.
    """

    call_id: str
    item_id: str
    name: str
    text: str
    arguments: dict[str, Any] | None
    characters: int = 100_000
    approval: str | None = None


class Session(Struct):
    """One response, as its tools know it.

    `evidence` are the bodies of the hosted items before now, in full, oldest first: those of the history and those of
    this response, from `before` on. `sources` has the annotation of each number by which the model can cite (B15), at
    first those of the history. `context_length` is that of the model, in tokens, where it is known.
    """

    scope: Scope
    response_id: str
    request: CreateResponse
    evidence: list[dict[str, Any]] = []
    before: int = 0
    sources: dict[int, dict[str, Any]] = {}
    context_length: int | None = None

    @property
    def own(self) -> list[dict[str, Any]]:
        """The hosted items of this response so far."""
        return self.evidence[self.before :]

    def cite(self, annotation: dict[str, Any]) -> int:
        """Give a source its number; the one that it has, where it has one. `index` is added where it is cited."""
        for number, known in self.sources.items():
            if known == annotation:
                return number
        number = max(self.sources, default=0) + 1
        self.sources[number] = annotation
        return number


class Outcome(Struct):
    """What a run gave: the fields that the item gets when it is done, `status` among them (`completed`, `failed`).

    `also` are whole items that follow it.
    """

    fields: dict[str, Any]
    also: Sequence[dict[str, Any]] = ()


class HostedTool(ABC):
    """A function that the model may call and the server runs; one for each response."""

    function: FunctionTool
    """What the model is told of it; names that clash with the client's are made other ones by the toolbox."""

    item_type: str
    """The type of the items that its calls become."""

    declared: Mapping[str, Any]
    """The entry of `tools` that it comes from."""

    repeatable: bool = True
    """Whether it may run again after a crash in its middle; one that changes the world may not."""

    seconds: float = 60.0
    """The longest that a run may take."""

    counted: bool = True
    """Whether a call counts for `max_tool_calls` (B5)."""

    @abstractmethod
    def item(self, call: HostedCall) -> dict[str, Any]:
        """The item of a call when it is begun, without `id` and `status`: its type, and what the call says."""

    def approval(self, call: HostedCall) -> dict[str, Any] | None:
        """The item that asks for approval of this call, without an id; None where none is needed.

        It is asked of every call before it runs, also of one that was approved (`call.approval`): where what was
        approved has changed since, it asks again. Keys that begin with `_` are kept and not told.
        """
        return None

    @abstractmethod
    async def run(self, call: HostedCall, session: Session) -> Outcome:
        """Run a call.

        Raises:
            APIError: it failed; the loop makes it a failed item by `failed`.
        """

    def settle(self, call: HostedCall, outcome: Outcome, session: Session) -> Outcome:
        """What becomes of an outcome once those of all calls before it are in `session`; called in the model's order.

        Runs of one turn go side by side; what depends on their order, such as numbers of sources, is made here.
        """
        return outcome

    def sources(self, body: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """The sources that an item of the history holds, by the numbers that they were given."""
        return {}

    def failed(self, call: HostedCall, error: APIError) -> Outcome:
        """The outcome of a run that failed so, ran out of time, was malformed, or was one too many."""
        return Outcome({"status": "failed", "error": fault(error)})


class Opened(Struct):
    """What a provider gives for one response: its tools, and whole items that come before the first turn."""

    tools: Sequence[HostedTool] = ()
    items: Sequence[dict[str, Any]] = ()


class Provider(ABC):
    """Runs the tools of some types."""

    types: frozenset[str]
    """The types of `tools` that it runs."""

    waits: bool = False
    """Whether opening waits for something outside; then it is opened only once the response has begun."""

    def wanted(self, request: CreateResponse) -> bool:
        """Whether the request asks for any tool of it."""
        return any(isinstance(tool, dict) and tool.get("type") in self.types for tool in request.tools)

    def check(self, declared: Sequence[dict[str, Any]], request: CreateResponse) -> None:  # noqa: B027 - most have none
        """See that the entries can be read, before there is a response.

        Raises:
            InvalidRequestError: a field has a wrong type or is out of range.
        """

    @abstractmethod
    async def open(self, declared: Sequence[dict[str, Any]], session: Session) -> Opened:
        """The tools of these entries of `tools`, all of them of its types."""

    async def close(self) -> None:  # noqa: B027 - most hold nothing
        """Let go of everything; the server stops."""


def fault(error: APIError) -> dict[str, Any]:
    """An error as an item carries it (B3)."""
    return {"code": error.code or error.type, "message": error.message}
