"""What the driver asks of a connection, as data: it decides, and a synchronous or an asynchronous shell carries out."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from antiphon.client.chunks import Chunk
from antiphon.client.errors import TransportError

__all__ = ["Answer", "Ask", "Connect", "Emit", "Pause", "Player", "Read", "Send", "Step", "Steps"]

T = TypeVar("T")


class Ask(Struct, frozen=True):
    """Send a request, and give its `Answer`. One that is `streamed` is left open for `Read`, if it is a stream.

    `seconds` is the longest wait for bytes of it, where that is shorter than the client's own.
    """

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None = None
    streamed: bool = False
    seconds: float | None = None


class Answer(Struct, frozen=True):
    """An answer: its headers by lower-case name, and its body; `open` says that it is a stream still to be read."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    open: bool = False


class Read(Struct, frozen=True):
    """Give the next bytes of the open stream, none at its end; of a socket, the next message.

    `seconds` is the longest wait for a message, where that is shorter than the client's own.
    """

    seconds: float | None = None


class Connect(Struct, frozen=True):
    """Open a WebSocket, in place of one that is open, and give an `Answer`: 200, or what it was refused with."""

    url: str
    headers: dict[str, str]


class Send(Struct, frozen=True):
    """Send a message over the open socket."""

    message: bytes


class Pause(Struct, frozen=True):
    """Wait so many seconds."""

    seconds: float


class Emit(Struct, frozen=True):
    """Hand chunks to the caller."""

    chunks: list[Chunk]


Step: TypeAlias = Ask | Connect | Send | Read | Pause | Emit
"""One thing to do."""

Steps: TypeAlias = Generator[Step, Any, T]
"""A call as steps: it is sent the result of each, or thrown the `TransportError` that came of it."""


class Player(Generic[T]):
    """Goes through the steps of a call; `value` is its result once there are no more.

    It holds what is the same for both shells: what comes of a step goes in, the next step comes out.
    """

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self.ended = False
        self._value: T | None = None

    @property
    def value(self) -> T:
        """What the call came to."""
        assert self.ended, "the call has not ended"  # noqa: S101 - a fault of ours
        return self._value  # pyright: ignore[reportReturnType] - set where it has ended

    def next(self, result: Any = None, failure: TransportError | None = None) -> Step | None:
        """The next step, given what came of the last one; None where there are no more.

        Raises:
            DriverError: what the call raised.
        """
        try:
            return self._steps.send(result) if failure is None else self._steps.throw(failure)
        except StopIteration as stop:
            self.ended = True
            self._value = stop.value
            return None

    def close(self) -> None:
        """Give up what has not ended."""
        self._steps.close()
