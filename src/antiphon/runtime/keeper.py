"""Keeps the calls of hosted tools in the store while a response runs that another process may go on with.

The calls of a turn are written after all that the turn has said and before the first of them runs, and what one gave
before a client is told of it (architecture, "tool re-execution").
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from antiphon.errors import InternalError, UnavailableError
from antiphon.machine.deltas import TokenUsage
from antiphon.machine.turn import Progress, progress, waits_for_client
from antiphon.protocol.json import encode, loads
from antiphon.runtime.hosted import Called
from antiphon.runtime.observer import Observer
from antiphon.store.base import Scope, Store, ToolRun
from antiphon.store.toolruns import DONE, PENDING, RUNNING

__all__ = ["Keeper", "KeptCall", "body_of", "kept_calls", "overlaid", "standing"]

_AGAIN_SECONDS: Final = 0.5
_OPEN: Final = frozenset({"in_progress", "searching", "interpreting", "generating", "calling"})
"""The states of an item whose tool has not run to its end."""


class _Row(Struct, array_like=True):
    """What the row of a call says beside its name: who made it and how, and what was used up to the end of its turn.

    `asks` is the item that asks for its approval, where one does, and `characters` what it may give.
    """

    turn: int
    item_id: str
    name: str
    text: str
    approval: str | None
    asks: dict[str, Any] | None
    characters: int
    spent: tuple[int, int, int, int, int]


_decode_row = msgspec.msgpack.Decoder(_Row).decode
_encode_row = msgspec.msgpack.Encoder().encode


class KeptCall(Struct, frozen=True):
    """A call as an earlier owner left it; `given` and `also` are what its run gave, where it is `done`.

    `key` is that of its tool.
    """

    position: int
    turn: int
    call_id: str
    item_id: str
    key: str
    name: str
    text: str
    approval: str | None
    asks: dict[str, Any] | None
    characters: int
    spent: TokenUsage
    state: str
    given: dict[str, Any] | None = None
    also: Sequence[dict[str, Any]] = ()

    @property
    def ids(self) -> list[str]:
        """The ids of all items that it becomes."""
        return [self.item_id, *(item["id"] for item in self.also)]


def kept_calls(rows: Iterable[ToolRun]) -> list[KeptCall]:
    """The calls of a response as its rows have them, in order."""
    return [_kept_call(row) for row in rows]


def overlaid(items: Iterable[Any], calls: Sequence[KeptCall]) -> list[Any]:
    """Items of a response with what the runs that are done gave, as far as nobody has to settle it."""
    fields: dict[str, Mapping[str, Any]] = {}
    for call in calls:
        if call.given is not None:
            fields[call.item_id] = call.given
            fields.update((item["id"], item) for item in call.also)
    if not fields:
        return list(items)
    return [_overlaid(item, fields) for item in items]


def standing(items: Sequence[Any], calls: Sequence[KeptCall]) -> Progress:
    """Where a response with these items stands, by their `output_index`; `calls` are those that it made.

    A turn whose calls are not all told is not done: it stands among them.
    """
    places = {str(body.get("id")): index for index, item in enumerate(items) if (body := body_of(item))}
    begin = next(
        (index for index, item in enumerate(items) if body_of(item).get("type") != "mcp_list_tools"), len(items)
    )
    number = 0
    for turn in sorted({call.turn for call in calls}):
        of_turn = [call for call in calls if call.turn == turn]
        told = [index for call in of_turn if (index := places.get(call.item_id)) is not None]
        if len(told) < len(of_turn) or any(body_of(items[index]).get("status") in _OPEN for index in told):
            if turn < 0:
                return Progress()
            before = progress(items[begin : min(told, default=len(items))])
            return Progress(turn, begin + before.first_item)
        end = 1 + max(index for call in of_turn for name in call.ids if (index := places.get(name)) is not None)
        waits = any(call.asks is not None for call in of_turn)
        waits = waits or any(waits_for_client(item) for item in items[begin:end])
        begin, number = end, turn + 1
        if waits:
            return Progress(number, begin, waiting=True)
    rest = progress(items[begin:])
    return Progress(number + rest.rounds, begin + rest.first_item, rest.waiting)


class Keeper:
    """Writes the calls of one response, under the fence of who runs it.

    `settled` makes all that has been told so far durable, and `lost` is told that the response is not run here any
    more.
    """

    def __init__(
        self,
        store: Store,
        scope: Scope,
        response_id: str,
        fence: int,
        observer: Observer,
        *,
        settled: Callable[[], Awaitable[object]],
        lost: Callable[[], object],
    ) -> None:
        self._store = store
        self._scope = scope
        self._id = response_id
        self._fence = fence
        self._observer = observer
        self._settled = settled
        self._lost = lost
        self._spent = (0, 0, 0, 0, 0)

    async def begin(self, calls: Sequence[Called], spent: TokenUsage) -> None:
        """Write the calls of a turn; `spent` is what the response has used so far.

        Raises:
            InternalError: the response is not run here any more.
        """
        await self._settled()
        counts = (spent.input_tokens, spent.output_tokens, spent.cached_tokens, spent.reasoning_tokens)
        self._spent = (*counts, spent.cache_write_tokens)
        await self._write(calls, PENDING)

    async def running(self, called: Called) -> None:
        """Note that a call is about to run.

        Raises:
            InternalError: the response is not run here any more.
        """
        await self._write([called], RUNNING)

    async def done(self, called: Called) -> None:
        """Keep what a call gave.

        Raises:
            InternalError: the response is not run here any more.
        """
        await self._write([called], DONE)

    async def _write(self, calls: Sequence[Called], state: str) -> None:
        rows = [self._row(called, state) for called in calls]
        failing = False
        while True:
            try:
                kept = await self._store.set_tool_runs(self._scope, self._id, rows, fence=self._fence)
            except UnavailableError as error:
                if not failing:
                    self._observer.fault("the runs of tools could not be stored yet", error)
                failing = True
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if kept:
                return
            self._lost()
            # Who is told that takes the run away at its next step.
            await asyncio.sleep(0)
            raise InternalError("The response is not run here any more.")

    def _row(self, called: Called, state: str) -> ToolRun:
        call = called.call
        row = _Row(
            called.turn,
            called.body["id"],
            call.name,
            call.text,
            call.approval,
            called.asks,
            call.characters,
            self._spent,
        )
        given = b"" if called.given is None else encode([called.given, list(called.also)])
        state = DONE if given else state
        return ToolRun(called.position, call.call_id, called.key.encode(), _encode_row(row), state, given)


def _overlaid(item: Any, fields: Mapping[str, Mapping[str, Any]]) -> Any:
    body = body_of(item)
    return {**body, **fields.get(str(body.get("id")), {})} if body else item


def body_of(item: Any) -> dict[str, Any]:
    """A plain object of an output; empty for any other item."""
    return cast("dict[str, Any]", item) if isinstance(item, dict) else {}


def _kept_call(row: ToolRun) -> KeptCall:
    said = _decode_row(row.arguments)
    given: Any = loads(row.result) if row.result else (None, [])
    return KeptCall(
        position=row.position,
        turn=said.turn,
        call_id=row.call_id,
        item_id=said.item_id,
        key=row.name.decode(),
        name=said.name,
        text=said.text,
        approval=said.approval,
        asks=said.asks,
        characters=said.characters,
        spent=TokenUsage(*said.spent),
        state=row.state,
        given=given[0],
        also=given[1],
    )
