"""The tokens of an upstream's turn: as it counts them, else as well as they can be told from here. Pure.

Usage may come once, or in each chunk and grow. What an upstream does not tell is an estimate: a token for each piece
that it sent, or for each four bytes, whichever is more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.engines.upstream.wire import Timings, UsagePiece
from antiphon.machine.deltas import TokenUsage
from antiphon.prompt.prompt import ChatMessage

__all__ = ["UsageCount", "estimated_tokens", "message_tokens"]

_BYTES_A_TOKEN: Final = 4
_MESSAGE_TOKENS: Final = 4
_MEDIA_TOKENS: Final = 1_000
_MOST_TOKENS: Final = 2**53 - 1
"""The greatest number that every reader of JSON takes as it stands."""


def estimated_tokens(text: str) -> int:
    """Tokens of a text, by its bytes."""
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    return -(-size // _BYTES_A_TOKEN)


def message_tokens(message: ChatMessage) -> int:
    """Tokens of a message, by its bytes; media count for what they usually take."""
    tokens = _MESSAGE_TOKENS + estimated_tokens(message.text()) + estimated_tokens(message.reasoning)
    tokens += sum(estimated_tokens(call.name + call.arguments) for call in message.tool_calls)
    if not isinstance(message.content, str):
        tokens += _MEDIA_TOKENS * sum(part.get("type") != "text" for part in message.content)
    return tokens


class UsageCount:
    """Counts one turn; `input_tokens` is the estimate for its prompt."""

    def __init__(self, input_tokens: int) -> None:
        self._input = input_tokens
        self._told: UsagePiece | None = None
        self._timings: Timings | None = None
        self._thoughts: list[str] = []
        self.pieces: list[str] = []
        """What was generated, a text for each piece of it; counted only where the upstream does not."""

    def tell(self, usage: UsagePiece | None, timings: Timings | None) -> None:
        """What the upstream says; the last word stands."""
        if usage is not None and (usage.prompt_tokens is not None or usage.completion_tokens is not None):
            self._told = usage
        self._timings = timings or self._timings

    def saw(self, text: str, *, thinking: bool = False) -> None:
        """A piece of what was generated."""
        self.pieces.append(text)
        if thinking:
            self._thoughts.append(text)

    def used(self) -> TokenUsage:
        """The tokens of the turn."""
        told, timings = self._told or UsagePiece(), self._timings or Timings()
        cached = _first(
            told.prompt_tokens_details.cached_tokens if told.prompt_tokens_details is not None else None,
            told.prompt_cache_hit_tokens,
            timings.cache_n,
        )
        read = None if timings.prompt_n is None else timings.prompt_n + (timings.cache_n or 0)
        given = _first(told.prompt_tokens, read)
        given = self._input if given is None else given
        drawn = _first(told.completion_tokens, timings.predicted_n)
        drawn = _counted(self.pieces) if drawn is None else drawn
        thought = _first(
            told.completion_tokens_details.reasoning_tokens if told.completion_tokens_details is not None else None,
            told.reasoning_tokens,
        )
        thought = _counted(self._thoughts) if thought is None else thought
        return TokenUsage(given, drawn, cached_tokens=min(cached or 0, given), reasoning_tokens=min(thought, drawn))


def _counted(pieces: Sequence[str]) -> int:
    """A token for each piece, or for each four bytes."""
    return max(len(pieces), sum(map(estimated_tokens, pieces)))


def _first(*counts: int | None) -> int | None:
    """The first count that is told and makes sense."""
    return next((count for count in counts if count is not None and 0 <= count <= _MOST_TOKENS), None)
