"""What the server itself says to a model that uses its hosted tools. Pure.

Two sentences where a request has no system text of its own (B13), and one reminder when the budget of calls is used up
(B6). Neither is part of a history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.prompt.prompt import ChatMessage

__all__ = ["ANSWER_NOW", "HOSTED_INSTRUCTIONS", "without_reminder"]

HOSTED_INSTRUCTIONS: Final = (
    "Use the tools to find out what you need before you answer. Answer in plain text from what they gave, and say so "
    "where they gave nothing that helps."
)
"""The system text of a request that declares hosted tools and has none."""

ANSWER_NOW: Final = ChatMessage(
    "user", "No more tools can be called now. Answer in plain text with what you have found so far."
)
"""The reminder at the budget."""


def without_reminder(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """The messages without that reminder, which is no user's word."""
    return messages[:-1] if messages and messages[-1] == ANSWER_NOW else messages
