"""What the lanes of a WebSocket connection are made of: requests, what is done for them, and what ends it all."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from antiphon.errors import APIError, InvalidRequestError, UnavailableError
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.websocket import CreateMessage, Submission

__all__ = [
    "EXPIRED",
    "STOPPED",
    "Close",
    "Closing",
    "Effect",
    "Ended",
    "Interrupt",
    "Lane",
    "Leave",
    "Send",
    "Start",
    "Ticket",
    "Turns",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Turns(Protocol[T]):
    """Where histories are kept that no store has, by the id of their last response."""

    def get(self, response_id: str) -> T | None:
        """The history; None where it is not, or no longer, kept."""
        ...

    def put(self, response_id: str, turn: T) -> None:
        """Keep it."""
        ...

    def drop(self, response_id: str) -> None:
        """Keep it no longer; nothing happens where it is not."""
        ...


class Ticket(Struct, eq=False):
    """A request in its lane, from its arrival to the end of its response.

    `message` is None for the successor of a steered response: that one repeats `settings`. `fork` says that the parent
    belonged to another lane when it was asked for. `steers` are inputs that go before its own, `pending` those that
    came while it ran. `sequence` is the number of its last event that was sent.
    """

    lane: Lane
    number: int
    message: CreateMessage | None
    parent_id: str | None
    settings: CreateResponse | None = None
    waits_for: Ticket | None = None
    fork: bool = False
    steers: Sequence[Submission] = ()
    response_id: str | None = None
    steerable: bool = False
    pending: list[Submission] = []
    sequence: int = 0
    ended: bool = False

    @property
    def stream_id(self) -> str | None:
        """The name of its lane."""
        return self.lane.name

    @property
    def size(self) -> int:
        """The bytes that its message takes."""
        return len(self.message.body) if self.message is not None else 0


class Lane(Struct, eq=False):
    """One lane; the default one has no name.

    `latest` is the response that it can be continued from, `last` the one that ended last, and `waiting` one that ended
    with open calls, for whose outputs its steers wait.
    """

    name: str | None
    queue: deque[Ticket]
    running: Ticket | None = None
    latest: str | None = None
    last: Ticket | None = None
    last_status: str = ""
    waiting: Ticket | None = None


class Send(Struct, frozen=True):
    """Send a frame."""

    data: bytes


class Start(Struct, Generic[T_co], frozen=True):
    """Create the response of a ticket, and say `began` or `refused`; `parent` is its history where no store has it."""

    ticket: Ticket
    parent: T_co | None


class Interrupt(Struct, frozen=True):
    """Let the response of a ticket end as steered."""

    ticket: Ticket


class Leave(Struct, frozen=True):
    """Let the response of a ticket end as cancelled."""

    ticket: Ticket


class Close(Struct, frozen=True):
    """Close the connection; nothing comes after."""

    code: int


Effect = Send | Start[Any] | Interrupt | Leave | Close


class Closing(Struct, frozen=True):
    """Why a connection ends: what is told to requests that come too late, at its end or not, and the code."""

    error: APIError
    last_frame: bool
    code: int


EXPIRED = Closing(
    InvalidRequestError(
        "This WebSocket connection has reached the end of its time. Open a new one to go on.",
        code="websocket_connection_limit_reached",
    ),
    last_frame=True,
    code=1000,
)
"""The connection is as old as it may get."""

STOPPED = Closing(
    UnavailableError("The server is shutting down. Please try again later.", retry_after=5.0),
    last_frame=False,
    code=1012,
)
"""The server stops: 1012 is a service restart."""


class Ended(Struct, Generic[T], frozen=True):
    """How a response ended, the stubs of the outputs that it waits for, and its history where no store has it."""

    status: str
    required: Sequence[dict[str, Any]] = ()
    turn: T | None = None
