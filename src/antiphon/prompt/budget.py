"""Where a conversation may be cut when it is longer than the context (`truncation: auto`).

Items are dropped from the beginning; system text stays, and no tool output stays without its call.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.prompt.prompt import ChatMessage

__all__ = ["cut", "cut_points"]


def cut_points(messages: Sequence[ChatMessage]) -> list[int]:
    """The indexes at which what is kept may begin, in order, after system text; the first one keeps everything.

    What is kept begins with a user message, since some templates refuse any other beginning.
    """
    first = 1 if messages and messages[0].role == "system" else 0
    return [first, *(index for index in range(first + 1, len(messages)) if messages[index].role == "user")]


def cut(messages: Sequence[ChatMessage], start: int) -> list[ChatMessage]:
    """System text, and the messages from that index on."""
    system = [message for message in messages[:1] if message.role == "system"]
    return [*system, *messages[start:]]
