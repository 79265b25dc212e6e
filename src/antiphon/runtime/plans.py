"""What a run is made from: a plan, after every check, and what is left of an earlier owner's run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from antiphon.engines.base import Engine, PreparedTurn, Sampled
from antiphon.machine.deltas import TokenUsage
from antiphon.machine.restore import Restored
from antiphon.machine.turn import Progress
from antiphon.machine.usage import NOTHING_USED
from antiphon.prompt.messages import Conversation
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.runtime.codec import Codec
from antiphon.runtime.compaction import Compaction
from antiphon.runtime.history import Turn
from antiphon.runtime.hosted import HostedTools
from antiphon.runtime.keeper import KeptCall
from antiphon.runtime.rounds import Rounds
from antiphon.store.base import IdempotencyRecord, NewDelivery, Scope, Store, StoredItem

__all__ = ["RunPlan", "Taken"]


class RunPlan(Struct):
    """All that a run needs, after every check.

    `own` are the request's items as messages, after what the history left open, and `input_items` their rows, or where
    nothing is kept `items` they themselves; `before` is that history, and `parent_id` the response that the row
    follows. `store` is None where nothing of the response is kept. `begun` says that it has a row before it
    ends; `resume` is what another server needs to run it, and `keep_seconds` how long a temporary one is kept. `seal`
    makes `encrypted_content` of thinking. `compaction` is done before the turn, or instead of it. `rounds` make the
    turns after the first one, of the history `parts`, where tools run here. `hosted` are those tools that are not
    searches for tools; `late` makes the first turn and its compaction after the items of what they do before it, where
    that can only be done once the response has begun. `summary_tokens` is the most that a summary
    of thinking may have, where one is asked for. `diffs` and `logprobs` say
    which events and fields were asked for.
    """

    scope: Scope
    engine: Engine
    turn: PreparedTurn
    response: Response
    own: Conversation
    before: Turn | None
    input_items: list[StoredItem]
    items: Sequence[Item]
    parent_id: str | None
    stream: bool
    dialect: str
    diffs: bool
    logprobs: bool
    store: Store | None
    codec: Codec
    begun: bool = False
    generate: bool = True
    resume: bytes = b""
    keep_seconds: float | None = None
    idempotency: IdempotencyRecord | None = None
    seal: Callable[[str], str] | None = None
    compaction: Compaction | None = None
    parts: Sequence[Conversation] = ()
    rounds: Rounds | None = None
    hosted: HostedTools | None = None
    late: Callable[[Sequence[Item]], Awaitable[tuple[PreparedTurn, Compaction | None]]] | None = None
    summary_tokens: int | None = None
    deliveries: Callable[[Response], Sequence[NewDelivery]] | None = None

    @property
    def background(self) -> bool:
        """Whether it goes on without its client."""
        return self.response.background


class Taken(Struct):
    """A response that an earlier owner left running: what of it is durable, and the fence that is ours now.

    `begun` is where it stood among its turns, and `sampled` what was drawn for the turn that it was in. `kept` are the
    calls of hosted tools that it made.
    """

    restored: Restored
    sampled: Sampled
    fence: int
    begun: Progress = Progress()
    spent: TokenUsage = NOTHING_USED
    kept: Sequence[KeptCall] = ()
