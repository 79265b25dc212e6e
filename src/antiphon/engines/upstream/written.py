"""The messages of long histories as an upstream is sent them, kept from turn to turn.

The turns of a chain share their messages in one list, which only grows: what was written and counted of it for one turn
stands for the next, so that a turn costs little more the longer its history is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from msgspec import Raw, Struct

from antiphon.engines.upstream.usage import message_tokens
from antiphon.prompt.growing import Chained, Growing
from antiphon.prompt.prompt import ChatMessage
from antiphon.protocol.json import encode

__all__ = ["LONG", "Known", "Written", "parts_of", "written"]

LONG: Final = 16
"""Messages of a history that is worth keeping."""

_MOST_BYTES: Final = 16 * 1024 * 1024
_MESSAGE: Final = 160
"""What a message is counted for beside its bytes."""

_NOTHING: Final = Raw(b"")


class Known(Struct, frozen=True):
    """The messages of a history: each one's JSON, but for the `others`, which have more than their role and a text.

    `others` are their places, in order; `tokens` counts all of them together, estimated.
    """

    json: Sequence[Raw]
    others: Sequence[int]
    tokens: int


class _Entry:
    """What is kept of one list of messages."""

    __slots__ = ("json", "messages", "others", "size", "tokens")

    def __init__(self, messages: list[ChatMessage]) -> None:
        # Referred to, so that no other list can have its identity.
        self.messages = messages
        self.json: list[Raw] = []
        self.others: list[int] = []
        self.tokens = [0]
        self.size = 0

    def grow(self, length: int) -> None:
        """Add what is not written yet of the first so many messages."""
        for message in islice(self.messages, len(self.json), length):
            data = _plain(message)
            if data is None:
                self.others.append(len(self.json))
            self.json.append(_NOTHING if data is None else Raw(data))
            self.tokens.append(self.tokens[-1] + message_tokens(message))
            self.size += _MESSAGE + len(data or b"")


class Written:
    """The histories that were written last, up to so many bytes."""

    def __init__(self, most: int = _MOST_BYTES) -> None:
        self._most = most
        self._size = 0
        self._entries: dict[int, _Entry] = {}

    def of(self, messages: Sequence[ChatMessage]) -> Known | None:
        """What is known of a history, written first where it was not; None of one that is short, or not shared."""
        length = len(messages)
        if length < LONG or not isinstance(messages, Growing):
            return None
        shared = messages.shared
        entry = self._entries.pop(id(shared), None)
        if entry is None:
            entry = _Entry(shared)
        if len(entry.json) < length:
            self._size -= entry.size
            entry.grow(length)
            self._size += entry.size
        self._entries[id(shared)] = entry
        while self._size > self._most and len(self._entries) > 1:
            self._size -= self._entries.pop(next(iter(self._entries))).size
        others = entry.others
        if others and others[-1] >= length:
            others = [place for place in others if place < length]
        return Known(entry.json[:length], others, entry.tokens[length])


def parts_of(messages: Sequence[ChatMessage]) -> Iterable[Sequence[ChatMessage]]:
    """The sequences that messages are made of, some of which may be shared with other turns."""
    return messages.parts if isinstance(messages, Chained) else (messages,)


def _plain(message: ChatMessage) -> bytes | None:
    text = message.content
    if message.reasoning or message.tool_calls or message.tool_call_id or message.name or message.items:
        return None
    return encode({"role": message.role, "content": text}) if isinstance(text, str) else None


written = Written()
"""What this process has written last, whichever upstream it was for."""
