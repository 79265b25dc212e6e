"""Histories by `previous_response_id`: walks of the chain, with the converted turns kept in memory.

A turn's items are read from the store and converted once; the next turn of the chain finds them here, so that what a
turn costs does not grow with the depth of the chain, but for handing over the messages themselves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from antiphon.prompt.messages import EMPTY, Conversation, MessageBuilder
from antiphon.protocol.items import (
    CustomToolCall,
    FunctionCall,
    Item,
    decode_stored_item,
)
from antiphon.store.base import ChainTurn, Scope, Store

__all__ = ["History", "Turn", "convert_turn"]

MAX_CACHED_CHARACTERS = 64 * 1024 * 1024


class Turn(Struct, frozen=True):
    """One response of a chain: its converted items, the ids of the calls it waits for, and its size in characters."""

    id: str
    parent_id: str | None
    conversation: Conversation
    open_calls: tuple[str, ...]
    size: int


class History:
    """Reads chains; a least-recently-used cache of turns, bounded by their text."""

    def __init__(self, store: Store, max_characters: int = MAX_CACHED_CHARACTERS) -> None:
        self._store = store
        self._max = max_characters
        self._turns: OrderedDict[tuple[str, str], Turn] = OrderedDict()
        self._size = 0

    async def chain(self, scope: Scope, response_id: str) -> list[Turn]:
        """The turns from the oldest ancestor to that response; empty where there is none in this scope."""
        turns: list[Turn] = []
        identity: str | None = response_id
        while identity is not None:
            key = (scope.tenant, identity)
            turn = self._turns.get(key)
            if turn is None:
                turns.reverse()
                return await self._load(scope, identity) + turns
            self._turns.move_to_end(key)
            turns.append(turn)
            identity = turn.parent_id
        turns.reverse()
        return turns

    def remember(self, scope: Scope, turn: Turn) -> None:
        """Keep a turn that has just ended."""
        key = (scope.tenant, turn.id)
        old = self._turns.pop(key, None)
        self._size += turn.size - (old.size if old is not None else 0)
        self._turns[key] = turn
        while self._size > self._max and len(self._turns) > 1:
            _, dropped = self._turns.popitem(last=False)
            self._size -= dropped.size

    def forget(self, scope: Scope, response_id: str) -> None:
        """Drop a deleted response's turn; descendants read it from the store again if they need it."""
        dropped = self._turns.pop((scope.tenant, response_id), None)
        if dropped is not None:
            self._size -= dropped.size

    async def _load(self, scope: Scope, response_id: str) -> list[Turn]:
        stored = await self._store.chain(scope, response_id)
        turns: list[Turn] = []
        before = EMPTY
        for row in stored:
            turn = convert_turn(row, before)
            before = turn.conversation
            turns.append(turn)
            self.remember(scope, turn)
        return turns


def convert_turn(row: ChainTurn, before: Conversation) -> Turn:
    """A stored turn, converted after the part of the history that came before it."""
    own = [decode_stored_item(body) for body in row.input_items]
    output = [decode_stored_item(body) for body in row.output_items]
    builder = MessageBuilder(before)
    builder.add(own)
    builder.add(output)
    size = sum(map(len, row.input_items)) + sum(map(len, row.output_items))
    return Turn(row.id, row.parent_id, builder.conversation(), open_calls(output), size)


def open_calls(output: Iterable[Item]) -> tuple[str, ...]:
    """The ids of the calls that a response leaves to its client."""
    return tuple(
        item.call_id
        for item in output
        if isinstance(item, FunctionCall | CustomToolCall) and item.status != "incomplete"
    )


def conversations(turns: Sequence[Turn]) -> list[Conversation]:
    """The converted parts of a chain, in order."""
    return [turn.conversation for turn in turns]
