"""Server-sent events: an encoder for whole frames, and a parser that yields the same however the bytes are cut.

Sans I/O. One event is one frame and never spans two writes (responses-api 6.1); keep-alives are comments only
(client-contract 4.1).
"""

from __future__ import annotations

from msgspec import Struct

__all__ = ["DONE", "KEEP_ALIVE", "SSEError", "SSEParser", "ServerSentEvent", "encode_data", "encode_frame"]

DONE = b"data: [DONE]\n\n"
"""The last frame of every stream."""

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which every client ignores."""


_PLAIN = b"data: "
_BETWEEN = b"\n\ndata: "
_MESSAGE = "message"


class SSEError(ValueError):
    """The stream is not server-sent events, or one event is larger than the limit."""


class ServerSentEvent(Struct, frozen=True, gc=False):
    """One dispatched event: its name (`message` where the stream names none), its data and the last id seen."""

    event: str
    data: str
    id: str = ""


def encode_frame(event: bytes, data: bytes) -> bytes:
    """The frame of one event of that name; `data` is JSON on one line."""
    return b"event: " + event + b"\ndata: " + data + b"\n\n"


def encode_data(data: bytes) -> bytes:
    """The frame of an event without a name, as chat completions are streamed; `data` is JSON on one line."""
    return b"data: " + data + b"\n\n"


class SSEParser:
    """An incremental parser by the WHATWG rules: CR, LF and CRLF end lines, a blank line dispatches.

    `max_event_bytes` bounds what one event may hold, also when its line never ends. Cost is linear in the bytes fed.
    """

    def __init__(self, max_event_bytes: int = 64 * 1024 * 1024) -> None:
        self._max = max_event_bytes
        self._chunks: list[bytes] = []
        self._held = 0
        self._skip_newline = False
        self._first = True
        self._event = ""
        self._data: list[bytes] = []
        self._data_size = 0
        self._id = ""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that the chunk completes.

        Raises:
            SSEError: an event is larger than the limit, or a line is not UTF-8.
        """
        if self._skip_newline and chunk:
            self._skip_newline = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if chunk.startswith(_PLAIN) and chunk.endswith(b"\n\n") and not (self._held or self._data or self._event):
            texts = chunk[len(_PLAIN) : -2].split(_BETWEEN)
            if chunk.count(b"\n") == 2 * len(texts) and b"\r" not in chunk and len(chunk) <= self._max:
                # Whole events of one line of data each, which is what most streams consist of.
                self._first = False
                return [ServerSentEvent(_MESSAGE, _text(text), self._id) for text in texts]
        if b"\r" not in chunk and b"\n" not in chunk:
            self._hold(chunk)
            return []
        events: list[ServerSentEvent] = []
        if chunk.endswith(b"\r"):
            self._skip_newline = True
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        lines[0] = b"".join((*self._chunks, lines[0]))
        self._chunks.clear()
        self._held = 0
        for line in lines[:-1]:
            self._line(line, events)
        self._hold(lines[-1])
        return events

    def _hold(self, rest: bytes) -> None:
        if rest:
            self._chunks.append(rest)
            self._held += len(rest)
            if self._held + self._data_size > self._max:
                raise SSEError(f"An event is larger than {self._max} bytes.")

    def _line(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        if not name:
            return
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            self._data.append(value)
            self._data_size += len(value) + 1
            if self._data_size > self._max:
                raise SSEError(f"An event is larger than {self._max} bytes.")
        elif name == b"event":
            self._event = _text(value)
        elif name == b"id" and b"\0" not in value:
            self._id = _text(value)

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        if self._data:
            events.append(ServerSentEvent(self._event or _MESSAGE, _text(b"\n".join(self._data)), self._id))
        self._event = ""
        self._data.clear()
        self._data_size = 0


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise SSEError("The stream is not UTF-8.") from None
