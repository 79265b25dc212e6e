"""Long histories are written from what earlier turns have written, and are the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from antiphon.engines.upstream.profiles import PROFILES
from antiphon.engines.upstream.request import request_body
from antiphon.engines.upstream.usage import message_tokens
from antiphon.engines.upstream.written import LONG, Written
from antiphon.prompt.growing import Chained, Growing
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from antiphon.protocol.json import encode


def history(count: int) -> list[ChatMessage]:
    """Messages of every kind."""
    kinds = [
        lambda n: ChatMessage("user", f"Question {n} \u00e9\n"),
        lambda n: ChatMessage("assistant", f"Answer {n}", reasoning="Why"),
        lambda n: ChatMessage("assistant", "", tool_calls=[ToolCall(f"call_{n}", "get", "{}")]),
        lambda n: ChatMessage("tool", "found", tool_call_id=f"call_{n}", name="get"),
        lambda n: ChatMessage("user", [{"type": "text", "text": f"Look {n}"}]),
        lambda n: ChatMessage("assistant", f"Plain {n}"),
    ]
    return [kinds[number % len(kinds)](number) for number in range(count)]


def sent(messages: Sequence[ChatMessage], profile: str) -> list[dict[str, Any]]:
    return msgspec.json.decode(encode(request_body(Prompt(messages), PROFILES[profile], "m")))["messages"]


@pytest.mark.requirement("upstream:request:long")
@pytest.mark.parametrize("profile", PROFILES)
def test_a_long_history_is_the_same_as_its_messages_one_by_one(profile: str) -> None:
    told = history(3 * LONG)
    alone = [body for message in told for body in sent([message], profile)]
    whole = Growing(told[:LONG])
    for place in range(LONG, len(told)):
        assert sent(Chained([told[:1], whole, told[place:]]), profile) == [*alone[:1], *alone]
        whole = whole.grown([told[place]])
    branch = Growing(told[:LONG]).grown(told[-1:])
    assert sent(branch, profile) == [*alone[:LONG], alone[-1]]
    shorter = Growing(told[:LONG])
    assert len(shorter.grown(told[LONG:])) == len(told)
    assert sent(shorter, profile) == alone[:LONG]


@pytest.mark.requirement("upstream:request:long")
def test_a_long_history_is_counted_as_its_messages_one_by_one() -> None:
    told = history(2 * LONG)
    kept = Written()
    whole = Growing(told[:LONG])
    for place in range(LONG, len(told)):
        known = kept.of(whole)
        assert known is not None
        assert known.tokens == sum(map(message_tokens, told[:place]))
        whole = whole.grown([told[place]])


@pytest.mark.requirement("upstream:request:long")
def test_what_is_kept_is_bounded_and_short_histories_are_not() -> None:
    kept = Written(most=50_000)
    for number in range(40):
        messages = Growing(ChatMessage("user", f"Text {number} {place}") for place in range(2 * LONG))
        known = kept.of(messages)
        assert known is not None
        assert msgspec.json.decode(known.json[-1]) == {"role": "user", "content": f"Text {number} {2 * LONG - 1}"}
        assert kept._size == sum(entry.size for entry in kept._entries.values()) <= 50_000
    assert len(kept._entries) < 40
    assert kept.of(Growing(messages[: LONG - 1])) is None
    assert kept.of(list(messages)) is None
