"""Titles of stored responses: the first words of the first user message (B23)."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.protocol.items import Item, Message
from antiphon.protocol.parts import InputText

__all__ = ["MAX_TITLE", "title"]

MAX_TITLE = 64
"""The longest title, in characters."""

MAX_LOOKED_AT = 2_048
MAX_LINE = 4 * MAX_TITLE


def title(items: Iterable[Item]) -> str | None:
    """The first whole words of the first user message with text, as many as fit; None where there is no such message.

    A single word that is too long is cut.
    """
    for item in items:
        if isinstance(item, Message) and item.role == "user":
            found = _first_words(item)
            if found:
                return found
    return None


def _first_words(message: Message) -> str:
    if isinstance(message.content, str):
        texts = [message.content]
    else:
        texts = [part.text for part in message.content if isinstance(part, InputText)]
    words = " ".join(text[:MAX_LOOKED_AT] for text in texts)[:MAX_LOOKED_AT].split()
    line = " ".join(words)[:MAX_LINE]
    if not line.isprintable():
        line = "".join(filter(str.isprintable, line))
    if len(line) <= MAX_TITLE:
        return line
    return line[: MAX_TITLE + 1].rpartition(" ")[0] or line[:MAX_TITLE]
