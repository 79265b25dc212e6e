"""Histories by `previous_response_id`: walks of the chain, with the converted turns kept in memory.

A turn's items are read from the store and converted once. The newest turn of a chain is also kept joined with all
before it, and the next one goes on from there, so that what a turn costs does not grow with the depth of the chain, but
for handing over the messages themselves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon.machine.turn import waits_for_client
from antiphon.prompt.compaction import unanswered
from antiphon.prompt.growing import grown
from antiphon.prompt.messages import (
    EMPTY,
    CompactedContext,
    Conversation,
    MessageBuilder,
    PromptItem,
    cut_call,
    join,
)
from antiphon.protocol.items import CustomToolCall, FunctionCall, RawItem, decode_stored_item
from antiphon.runtime.codec import Codec
from antiphon.runtime.unseal import unseal
from antiphon.store.base import ChainTurn, Scope, Store, StoredItem

__all__ = ["History", "Turn", "convert", "convert_turn", "joined_turn", "open_calls", "unstored_turn"]

MAX_CACHED_CHARACTERS = 64 * 1024 * 1024

TURN_CHARACTERS = 2048
"""What a turn is counted for beside its text: many short ones must not take more memory than the bound means."""


class Turn(Struct):
    """One response of a chain, the ids of the calls it waits for, and its size in characters.

    `converted` is what of its items is messages already; `output` is the rest with its blobs opened, which is converted
    when someone asks, since most responses are never chained to.

    Of a history whose end no store has, `rows` are its items after those of `base`, the last response of it that a
    store has; whoever is stored after it is stored with them. `root` is the first response of a history of several.
    """

    id: str
    parent_id: str | None
    converted: Conversation
    output: Sequence[PromptItem]
    open_calls: tuple[str, ...]
    size: int
    stored: bool = True
    base: str | None = None
    rows: Sequence[StoredItem] = ()
    title: str | None = None
    root: str = ""

    @property
    def conversation(self) -> Conversation:
        """All its items as messages."""
        if self.output:
            self.converted = join([self.converted, convert(self.output, self.converted)])
            self.output = ()
        return self.converted


class _Cache:
    """Turns by tenant and id, the least recently used dropped first when their text is more than the bound."""

    def __init__(self, max_characters: int) -> None:
        self._max = max_characters
        self._turns: OrderedDict[tuple[str, str], Turn] = OrderedDict()
        self._size = 0

    def get(self, scope: Scope, response_id: str) -> Turn | None:
        """Find a turn; that counts as a use."""
        key = (scope.tenant, response_id)
        turn = self._turns.get(key)
        if turn is not None:
            self._turns.move_to_end(key)
        return turn

    def put(self, scope: Scope, turn: Turn) -> None:
        """Keep a turn."""
        self.drop(scope, turn.id)
        self._size += turn.size + TURN_CHARACTERS
        self._turns[scope.tenant, turn.id] = turn
        while self._size > self._max and len(self._turns) > 1:
            _, oldest = self._turns.popitem(last=False)
            self._size -= oldest.size + TURN_CHARACTERS

    def drop(self, scope: Scope, response_id: str) -> Turn | None:
        """Take a turn out."""
        turn = self._turns.pop((scope.tenant, response_id), None)
        if turn is not None:
            self._size -= turn.size + TURN_CHARACTERS
        return turn


class History:
    """Reads chains; keeps single turns, and the ends of chains as wholes, each bounded by their text."""

    def __init__(self, store: Store, codec: Codec, max_characters: int = MAX_CACHED_CHARACTERS) -> None:
        self._store = store
        self._codec = codec
        self._turns = _Cache(max_characters)
        self._wholes = _Cache(max_characters)

    async def upto(self, scope: Scope, response_id: str) -> Turn | None:
        """That response and all its ancestors as one turn; None where there is none in this scope."""
        whole = self._wholes.get(scope, response_id)
        if whole is None:
            turns = await self._chain(scope, response_id)
            if not turns:
                return None
            whole = joined_turn(turns)
            self._wholes.put(scope, whole)
        return whole

    def remember(self, scope: Scope, turn: Turn) -> None:
        """Keep a turn that has just ended; where its parent was the end of a chain, it is so now."""
        self._turns.put(scope, turn)
        if turn.parent_id is not None:
            before = self._wholes.drop(scope, turn.parent_id)
            if before is not None:
                self._wholes.put(scope, joined_turn([before, turn]))

    def forget(self, scope: Scope, response_id: str) -> None:
        """Drop a deleted response's turn; descendants read it from the store again if they need it."""
        self._turns.drop(scope, response_id)
        self._wholes.drop(scope, response_id)

    async def _chain(self, scope: Scope, response_id: str) -> list[Turn]:
        """The turns from the oldest ancestor to that response; empty where there is none in this scope."""
        turns: list[Turn] = []
        identity: str | None = response_id
        while identity is not None:
            turn = self._turns.get(scope, identity)
            if turn is None:
                turns.reverse()
                return await self._load(scope, identity) + turns
            turns.append(turn)
            identity = turn.parent_id
        turns.reverse()
        return turns

    async def _load(self, scope: Scope, response_id: str) -> list[Turn]:
        stored = await self._store.chain(scope, response_id)
        turns: list[Turn] = []
        before = EMPTY
        for row in stored:
            turn = await convert_turn(self._codec, scope, row, before)
            before = turn.conversation
            turns.append(turn)
            self._turns.put(scope, turn)
        return turns


def joined_turn(turns: Sequence[Turn]) -> Turn:
    """Consecutive turns of a chain as one, which stands for all of them; there must be at least one."""
    first, last = turns[0], turns[-1]
    conversation = join([turn.conversation for turn in turns])
    size = sum(turn.size for turn in turns)
    return Turn(last.id, last.parent_id, conversation, (), last.open_calls, size, root=first.root or first.id)


def unstored_turn(turn: Turn, before: Turn | None, rows: Sequence[StoredItem], title: str | None) -> Turn:
    """The joined history `turn`, after `before`, whose last response no store has; `rows` are that one's items."""
    size = sum(len(row.body) for row in rows)
    if before is None:
        return replace(turn, stored=False, rows=rows, size=size, title=title)
    return replace(
        turn,
        stored=False,
        base=before.id if before.stored else before.base,
        rows=grown(before.rows, rows),
        size=before.size + size,
        title=before.title or title,
    )


async def convert_turn(codec: Codec, scope: Scope, row: ChainTurn, before: Conversation) -> Turn:
    """A stored turn, converted after the part of the history that came before it."""
    own = await unseal(codec, scope, [decode_stored_item(body) for body in row.input_items])
    output = await unseal(codec, scope, [decode_stored_item(body) for body in row.output_items])
    size = sum(map(len, row.input_items)) + sum(map(len, row.output_items))
    return Turn(row.id, row.parent_id, convert([*own, *output], before), (), open_calls(output), size)


def convert(items: Iterable[PromptItem], before: Conversation, *, whole: bool = False) -> Conversation:
    """Items as messages, after the part of the history that came before.

    `whole` is for instructions: no turn is open after them, and no compaction replaces them.
    """
    builder = MessageBuilder(before)
    builder.add(items)
    if whole:
        builder.close()
    conversation = builder.conversation()
    return msgspec.structs.replace(conversation, pinned=True) if whole else conversation


def open_calls(output: Sequence[PromptItem]) -> tuple[str, ...]:
    """The ids of the calls that a response, its blobs opened, leaves to its client.

    A response that is nothing but a compaction leaves those that were open before it.
    """
    if output and isinstance(output[-1], CompactedContext):
        return unanswered(output[-1].messages)
    return tuple(call_id for item in output if (call_id := _open_call(item)) is not None)


def _open_call(item: PromptItem) -> str | None:
    if isinstance(item, FunctionCall | CustomToolCall):
        return None if item.status == "incomplete" else item.call_id
    if isinstance(item, RawItem) and waits_for_client(item) and not cut_call(item):
        return str(item.body.get("call_id") or "")
    return None
