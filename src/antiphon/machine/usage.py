"""Tokens that turns used, added up, and as the usage of a response."""

from __future__ import annotations

from antiphon.machine.deltas import Stop, TokenUsage
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage

__all__ = ["NOTHING_USED", "added", "usage_of"]

NOTHING_USED = TokenUsage(0, 0)


def added(first: TokenUsage, second: TokenUsage) -> TokenUsage:
    """The usage of two turns together."""
    return TokenUsage(
        first.input_tokens + second.input_tokens,
        first.output_tokens + second.output_tokens,
        first.cached_tokens + second.cached_tokens,
        first.reasoning_tokens + second.reasoning_tokens,
        first.cache_write_tokens + second.cache_write_tokens,
    )


def usage_of(stop: Stop) -> Usage:
    """The usage object of a turn; the total is input plus output."""
    counted = stop.usage
    return Usage(
        input_tokens=counted.input_tokens,
        input_tokens_details=InputTokensDetails(counted.cached_tokens, counted.cache_write_tokens),
        output_tokens=counted.output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=counted.reasoning_tokens),
        total_tokens=counted.input_tokens + counted.output_tokens,
    )
