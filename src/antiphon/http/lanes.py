"""The lanes of one WebSocket connection: what runs, what waits, what it may be continued from, and how it is steered.

Pure and synchronous (responses-api 7). Each call says what happened and gives what is to be done, in order. Requests of
one lane run one after the other, those of different lanes side by side; an automatic successor comes before what its
lane has waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from msgspec.structs import replace

from antiphon.errors import APIError, InvalidRequestError, RateLimitError
from antiphon.http.tickets import Close, Closing, Effect, Ended, Interrupt, Lane, Leave, Send, Start, Ticket, Turns
from antiphon.protocol.ids import new_id
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.websocket import (
    CreateMessage,
    MessageError,
    SteerMessage,
    Submission,
    decode_message,
    error_frame,
    steer_accepted,
    steer_failed,
    steer_pending,
)

__all__ = ["Lanes"]

MAX_ACTIVE = 16
MAX_NAMED_LANES = 32
MAX_QUEUED = 16
"""Requests that may wait in one lane."""

MAX_STEERS = 8
"""Steers that may wait for one response."""

MAX_STEER_BYTES = 16 * 1024 * 1024
"""Bytes of steering input that one connection may have waiting."""

CONTINUABLE = frozenset({"completed", "incomplete"})
"""The ends of a response that its lane can go on from without a store."""

T = TypeVar("T")


class Lanes(Generic[T]):
    """The lanes of one connection. `turns` may be shared between connections: an id is never used twice."""

    def __init__(self, turns: Turns[T]) -> None:
        self._turns = turns
        self._lanes: dict[str | None, Lane] = {None: _new_lane(None)}
        self._by_response: dict[str, Ticket] = {}
        self._number = 0
        self._closing: Closing | None = None
        self._cut = False
        self._closed = False
        self.active = 0
        self.held = 0
        """Bytes of messages that wait, or whose responses are being created."""

    def receive(self, data: bytes) -> list[Effect]:
        """A message came."""
        if self._closed:
            return []
        try:
            message = decode_message(data)
            if isinstance(message, SteerMessage):
                return self._steer(message)
            return self._create(message)
        except MessageError as refusal:
            return [Send(error_frame(refusal.error, refusal.stream_id))]

    def began(self, ticket: Ticket, response_id: str, settings: CreateResponse, *, steerable: bool) -> list[Effect]:
        """The response of a ticket was created, with that request: its steering input is committed."""
        self.held -= ticket.size
        ticket.response_id = response_id
        ticket.settings = replace(settings, items=[])
        ticket.steerable = steerable
        ticket.steers = ()
        ticket.message = None
        self._by_response[response_id] = ticket
        return [Leave(ticket)] if self._cut else []

    def refused(self, ticket: Ticket, error: APIError) -> list[Effect]:
        """The response of a ticket could not be created."""
        self.held -= ticket.size
        self._over(ticket)
        effects = self._give_back(ticket, error.message)
        if ticket.message is not None:
            effects.append(Send(error_frame(error, ticket.lane.name)))
            # A successor's input goes back to the client, who may send it again after the same response.
            effects += self._evict_parent(ticket)
        return effects + self._go_on()

    def ended(self, ticket: Ticket, end: Ended[T]) -> list[Effect]:
        """The response of a ticket has ended, and its terminal event was sent."""
        lane = ticket.lane
        self._over(ticket)
        lane.last, lane.last_status = ticket, end.status
        settings, ticket.settings = ticket.settings, None
        if end.status in CONTINUABLE and ticket.response_id is not None:
            effects = self._advance(lane, ticket.response_id, end.turn)
        else:
            effects = self._evict_parent(ticket)
        if ticket.pending:
            if end.status not in CONTINUABLE or self._closing is not None:
                effects += self._give_back(ticket, _ENDED)
            elif end.required:
                lane.waiting = ticket
                effects += [
                    Send(steer_pending(steer, end.required, ticket.sequence, lane.name)) for steer in ticket.pending
                ]
            else:
                self._succeed(ticket, settings)
        return effects + self._go_on()

    def close(self, closing: Closing) -> list[Effect]:
        """Start no more; the connection is closed when nothing runs."""
        if self._closing is not None:
            return []
        self._closing = closing
        effects: list[Effect] = []
        for lane in self._lanes.values():
            while lane.queue:
                ticket = lane.queue.popleft()
                self.held -= ticket.size
                effects += self._give_back(ticket, closing.error.message)
                if ticket.message is not None:
                    effects.append(Send(error_frame(closing.error, lane.name)))
            effects += self._give_up_waiting(lane)
        return effects + self._go_on()

    def cut(self) -> list[Effect]:
        """What runs may not go on either; `close` was called before."""
        self._cut = True
        return [Leave(ticket) for ticket in self._by_response.values()]

    def abandon(self) -> None:
        """The connection is gone: nothing is kept for it."""
        self._closed = True
        kept = {lane.latest for lane in self._lanes.values()}
        kept.update(ticket.parent_id for lane in self._lanes.values() for ticket in lane.queue if ticket.fork)
        for response_id in kept - {None}:
            self._turns.drop(response_id or "")

    def _create(self, message: CreateMessage) -> list[Effect]:
        if self._closing is not None:
            return [Send(error_frame(self._closing.error, message.stream_id))]
        lane = self._lane(message.stream_id)
        if len(lane.queue) >= MAX_QUEUED:
            raise MessageError(
                RateLimitError(
                    f"At most {MAX_QUEUED} requests may wait in one stream. Wait for its responses first.",
                    param="stream_id",
                    code="websocket_stream_queue_full",
                ),
                message.stream_id,
            )
        self._number += 1
        ticket = Ticket(lane, self._number, message, message.previous_response_id)
        parent = self._by_response.get(ticket.parent_id or "")
        if parent is not None:
            # Within a lane the order does it.
            ticket.fork = parent.lane is not lane
            ticket.waits_for = parent if ticket.fork else None
        elif ticket.parent_id is not None:
            ticket.fork = any(other is not lane and other.latest == ticket.parent_id for other in self._lanes.values())
        lane.queue.append(ticket)
        self.held += ticket.size
        return self._go_on()

    def _lane(self, name: str | None) -> Lane:
        lane = self._lanes.get(name)
        if lane is None:
            if len(self._lanes) > MAX_NAMED_LANES:
                raise MessageError(
                    InvalidRequestError(
                        f"At most {MAX_NAMED_LANES} different stream ids may be used on one connection.",
                        param="stream_id",
                        code="websocket_stream_limit_reached",
                    ),
                    name,
                )
            lane = self._lanes[name] = _new_lane(name)
        return lane

    def _go_on(self) -> list[Effect]:
        """Start what may run now, oldest first; close where nothing does and nothing may."""
        effects: list[Effect] = []
        while self.active < MAX_ACTIVE:
            ready = [lane.queue[0] for lane in self._lanes.values() if _ready(lane)]
            if not ready:
                break
            effects.append(self._start(min(ready, key=_number)))
        if self._closing is not None and not self.active and not self._closed:
            self._closed = True
            if self._closing.last_frame:
                effects.append(Send(error_frame(self._closing.error)))
            effects.append(Close(self._closing.code))
        return effects

    def _start(self, ticket: Ticket) -> Start[T]:
        lane = ticket.lane
        lane.queue.popleft()
        lane.running = ticket
        ticket.waits_for = None
        self.active += 1
        parent: T | None = None
        if ticket.parent_id is not None:
            waiting = lane.waiting
            if waiting is not None and waiting.response_id == ticket.parent_id:
                self._hand_on(waiting, ticket)
                lane.waiting = None
            if ticket.fork or lane.latest == ticket.parent_id:
                parent = self._turns.get(ticket.parent_id)
            if ticket.fork:
                self._drop(ticket.parent_id)
        return Start(ticket, parent)

    def _over(self, ticket: Ticket) -> None:
        self.active -= 1
        ticket.ended = True
        ticket.lane.running = None
        if ticket.response_id is not None:
            del self._by_response[ticket.response_id]

    def _advance(self, lane: Lane, response_id: str, turn: T | None) -> list[Effect]:
        before, lane.latest = lane.latest, response_id
        if turn is not None:
            self._turns.put(response_id, turn)
        self._drop(before)
        return self._give_up_waiting(lane)

    def _evict_parent(self, ticket: Ticket) -> list[Effect]:
        """A continuation failed: its parent is not kept for another one of the same lane."""
        lane = ticket.lane
        if ticket.parent_id is None or lane.latest != ticket.parent_id:
            return []
        lane.latest = None
        self._drop(ticket.parent_id)
        return self._give_up_waiting(lane)

    def _drop(self, response_id: str | None) -> None:
        """Keep a history no longer, unless a lane ends with it or a request waits to fork from it."""
        if response_id is None:
            return
        for lane in self._lanes.values():
            if lane.latest == response_id:
                return
            if any(ticket.fork and ticket.parent_id == response_id for ticket in lane.queue):
                return
        self._turns.drop(response_id)

    # Steering

    def _steer(self, message: SteerMessage) -> list[Effect]:
        target = self._by_response.get(message.previous_response_id)
        refusal = self._steer_refusal(message, target)
        if refusal is not None or target is None:
            code, text = refusal or _NOT_FOUND
            known = target or self._last(message.previous_response_id)
            sequence, name = (known.sequence, known.lane.name) if known is not None else (0, None)
            return [Send(steer_failed(message, code, text, sequence, name))]
        submission = Submission(new_id("steer"), message.previous_response_id, message.input, message.items)
        target.pending.append(submission)
        return [Send(steer_accepted(submission, target.sequence, target.lane.name)), Interrupt(target)]

    def _steer_refusal(self, message: SteerMessage, target: Ticket | None) -> tuple[str, str] | None:
        if message.fault is not None:
            return "invalid_input", message.fault
        if target is None:
            last = self._last(message.previous_response_id)
            if last is None:
                return _NOT_FOUND
            if last.lane.last_status == "completed":
                return "response_already_completed", "The response has completed."
            return "response_not_active", "The response has ended."
        if self._closing is not None:
            return "response_not_active", "The connection is about to end."
        if not target.steerable:
            return "steering_not_supported", "A response like this cannot be steered."
        waiting = sum(len(steer.input) for steer in self._waiting_steers())
        if len(target.pending) >= MAX_STEERS or waiting + len(message.input) > MAX_STEER_BYTES:
            return "too_many_pending_steers", "Too much steering input is waiting. Wait for the next response first."
        return None

    def _last(self, response_id: str) -> Ticket | None:
        for lane in self._lanes.values():
            if lane.last is not None and lane.last.response_id == response_id:
                return lane.last
        return None

    def _waiting_steers(self) -> Iterator[Submission]:
        for lane in self._lanes.values():
            for ticket in (lane.waiting, lane.running, *lane.queue):
                if ticket is not None:
                    yield from ticket.steers
                    yield from ticket.pending

    def _succeed(self, ticket: Ticket, settings: CreateResponse | None) -> None:
        """Let a response with the steers of one that has ended follow it at once."""
        successor = Ticket(ticket.lane, ticket.number, None, ticket.response_id, settings)
        self._hand_on(ticket, successor)
        ticket.lane.queue.appendleft(successor)

    def _hand_on(self, ticket: Ticket, successor: Ticket) -> None:
        successor.steers, ticket.pending = ticket.pending, []
        successor.sequence = ticket.sequence

    def _give_back(self, ticket: Ticket, reason: str) -> list[Effect]:
        """Tell that the steers of a ticket, and those that it was to commit, cannot be committed."""
        steers = [*ticket.steers, *ticket.pending]
        ticket.steers, ticket.pending = (), []
        return [
            Send(steer_failed(steer, "successor_creation_failed", reason, ticket.sequence, ticket.lane.name))
            for steer in steers
        ]

    def _give_up_waiting(self, lane: Lane) -> list[Effect]:
        """Steers that wait for outputs cannot be committed when their lane goes on without those, or not at all."""
        waiting, lane.waiting = lane.waiting, None
        return self._give_back(waiting, _WENT_ON) if waiting is not None else []


_ENDED = "The response ended, and could not be followed by another one."
_WENT_ON = "The stream went on without the outputs that the response waited for."
_NOT_FOUND = ("response_not_found", "No response by that id runs on this connection.")


def _new_lane(name: str | None) -> Lane:
    return Lane(name, deque())


def _ready(lane: Lane) -> bool:
    if lane.running is not None or not lane.queue:
        return False
    parent = lane.queue[0].waits_for
    return parent is None or parent.ended


def _number(ticket: Ticket) -> int:
    return ticket.number
