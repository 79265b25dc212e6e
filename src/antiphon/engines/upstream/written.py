"""The messages of long histories as an upstream is sent them, kept from turn to turn.

The turns of a chain share their messages, which never change: what was written and counted for one turn stands for the
next, so that a turn costs little more the longer its history is.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from antiphon.engines.upstream.usage import estimated_tokens
from antiphon.prompt.prompt import ChatMessage
from antiphon.protocol.json import encode

__all__ = ["LONG", "Written", "written"]

LONG: Final = 16
"""Messages of a history that is worth keeping."""

_MOST_BYTES: Final = 8 * 1024 * 1024
_ENTRY: Final = 320
"""What an entry is counted for beside its bytes."""


class _Entry:
    __slots__ = ("json", "message", "size", "tokens")

    def __init__(self, message: ChatMessage, text: str) -> None:
        # Referred to, so that no other message can have its identity.
        self.message = message
        data = encode({"role": message.role, "content": text})
        self.json = Raw(data)
        self.size = len(data) + _ENTRY
        self.tokens = estimated_tokens(text)


class Written:
    """The messages that were written last, up to so many bytes."""

    def __init__(self, most: int = _MOST_BYTES) -> None:
        self._most = most
        self._size = 0
        self._known: dict[int, _Entry] = {}

    def json(self, message: ChatMessage) -> Raw | None:
        """The message as it is sent; None of one that has more than its role and a text."""
        entry = self._entry(message)
        return None if entry is None else entry.json

    def tokens(self, message: ChatMessage) -> int | None:
        """The tokens of its text, estimated; None where it has more."""
        entry = self._entry(message)
        return None if entry is None else entry.tokens

    def _entry(self, message: ChatMessage) -> _Entry | None:
        entry = self._known.get(id(message))
        if entry is not None:
            return entry
        text = message.content
        if message.reasoning or message.tool_calls or message.tool_call_id or message.name or message.items:
            return None
        if not isinstance(text, str):
            return None
        entry = self._known[id(message)] = _Entry(message, text)
        self._size += entry.size
        while self._size > self._most and len(self._known) > 1:
            self._size -= self._known.pop(next(iter(self._known))).size
        return entry


written = Written()
"""What this process has written last, whichever upstream it was for."""
