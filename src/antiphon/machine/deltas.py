"""What an engine yields while it generates; the assembler turns these into events.

Engines yield them in lists: what came together stays together, so that a burst costs one turn of the event loop.
They are many and never in a cycle, so the garbage collector need not see them (`gc=False`).
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from antiphon.protocol.florence import FlorenceResult
from antiphon.protocol.parts import Logprob

__all__ = [
    "CUT_REASONS",
    "AnnotationDelta",
    "CallItemDelta",
    "CommandStart",
    "Delta",
    "HostedEnd",
    "HostedStart",
    "MessageStart",
    "PatchStart",
    "RawItemDelta",
    "ReasoningDelta",
    "RefusalDelta",
    "Routed",
    "ShellLimits",
    "ShellStart",
    "Stop",
    "SummaryDelta",
    "TextDelta",
    "ThoughtEnd",
    "TokenUsage",
    "ToolCallDelta",
    "ToolCallStart",
]

CUT_REASONS: Final = frozenset({"length", "content_filter", "context_window", "max_messages", "max_tool_calls"})
"""The reasons of a `Stop` that has cut a turn."""


class TextDelta(Struct, frozen=True, gc=False):
    """More text of the answer; `logprobs` holds one entry a token where they were asked for."""

    text: str
    logprobs: list[Logprob] | None = None


class ReasoningDelta(Struct, frozen=True, gc=False):
    """More of the model's thinking."""

    text: str


class SummaryDelta(Struct, frozen=True, gc=False):
    """More of the summary that the engine itself gives of its thinking; `begins` says that it is a further part."""

    text: str
    begins: bool = False


class ThoughtEnd(Struct, frozen=True, gc=False):
    """The thinking that is open ends; `sealed` is what it is sent back to its engine as, empty where there is none."""

    sealed: str = ""


class MessageStart(Struct, frozen=True, gc=False):
    """Text that follows is of a new message, even where one is open; `phase` says what it is for."""

    phase: str | None = None


class AnnotationDelta(Struct, frozen=True):
    """A citation of the text that is open."""

    annotation: dict[str, Any]


class RefusalDelta(Struct, frozen=True, gc=False):
    """More of a refusal."""

    text: str


class ToolCallStart(Struct, frozen=True, gc=False):
    """A call begins: of a function, or (`custom`) of a custom tool."""

    name: str
    custom: bool = False
    namespace: str | None = None


class ToolCallDelta(Struct, frozen=True, gc=False):
    """More of the arguments (JSON text) of the call begun last, of a custom tool's input, a command or a diff."""

    text: str


class ShellStart(Struct, frozen=True, gc=False):
    """A call of the client's shell begins. The router makes it, no engine does."""


class CommandStart(Struct, frozen=True, gc=False):
    """A further command of that call begins; its text follows as `ToolCallDelta`."""


class ShellLimits(Struct, frozen=True, gc=False):
    """What else that call says: milliseconds, and characters of output."""

    timeout_ms: int | None
    max_output_length: int | None


class PatchStart(Struct, frozen=True, gc=False):
    """A patch begins: `operation` is create_file, update_file or delete_file; its diff follows as `ToolCallDelta`."""

    operation: str
    path: str


class CallItemDelta(Struct, frozen=True, gc=False):
    """A whole call whose item has no events of its own; it gets its ids from the assembler."""

    body: dict[str, Any]


class RawItemDelta(Struct, frozen=True, gc=False):
    """A whole output item of a type that the assembler does not build; an item without an id gets one.

    One that `begins` is told as in progress first.
    """

    body: dict[str, Any]
    begins: bool = False


class HostedStart(Struct, frozen=True):
    """An item of a hosted tool that runs here begins: its id, its type, and what the call says.

    The loop makes it, no engine does. One whose id the log has is told no second time.
    """

    body: dict[str, Any]


class HostedEnd(Struct, frozen=True):
    """The same item when its tool has run, whole, as the client sees it."""

    body: dict[str, Any]


class TokenUsage(Struct, frozen=True, gc=False):
    """Tokens of one turn, as the engine counted them."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0


class Stop(Struct, frozen=True, gc=False):
    """The last delta of a turn. `reason` is `stop` (the model ended its turn), `length` (a limit cut it),
    `content_filter` (a filter did), or the name of a limit that only an upstream has.

    `result` is what the text says in a form of its own, where a whole chat answer has one (M50).
    """

    reason: str
    usage: TokenUsage
    result: FlorenceResult | None = None

    @property
    def cut(self) -> bool:
        """Whether something cut the turn before the model ended it."""
        return self.reason in CUT_REASONS


Delta = (
    TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallStart
    | ToolCallDelta
    | RawItemDelta
    | SummaryDelta
    | ThoughtEnd
    | MessageStart
    | AnnotationDelta
    | Stop
)
"""What an engine yields."""

Routed = Delta | ShellStart | CommandStart | ShellLimits | PatchStart | CallItemDelta | HostedStart | HostedEnd
"""What the assembler takes: the same, once the router has made items of calls."""
