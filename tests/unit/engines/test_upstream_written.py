"""Long histories are written from what earlier turns have written, and are the same bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.engines.upstream.profiles import PROFILES
from antiphon.engines.upstream.request import request_body
from antiphon.engines.upstream.usage import estimated_tokens
from antiphon.engines.upstream.written import LONG, Written
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


def sent(messages: list[ChatMessage], profile: str) -> list[dict[str, Any]]:
    return msgspec.json.decode(encode(request_body(Prompt(messages), PROFILES[profile], "m")))["messages"]


@pytest.mark.requirement("upstream:request:long")
@pytest.mark.parametrize("profile", PROFILES)
def test_a_long_history_is_the_same_as_its_messages_one_by_one(profile: str) -> None:
    messages = history(3 * LONG)
    alone = [written for message in messages for written in sent([message], profile)]
    assert sent(messages, profile) == alone
    assert sent(messages, profile) == alone
    assert encode(request_body(Prompt(messages), PROFILES[profile], "m")) == encode(
        request_body(Prompt(list(messages)), PROFILES[profile], "m")
    )


@pytest.mark.requirement("upstream:request:long")
def test_what_is_kept_is_bounded_and_stands_for_its_message_only() -> None:
    kept = Written(most=2_000)
    for number in range(100):
        message = ChatMessage("user", f"Text {number}")
        assert msgspec.json.decode(kept.json(message) or b"") == {"role": "user", "content": f"Text {number}"}
        assert kept.tokens(message) == estimated_tokens(f"Text {number}")
        assert len(kept._known) <= 6
    assert kept.json(ChatMessage("tool", "x", tool_call_id="call_1")) is None
    assert kept.tokens(ChatMessage("assistant", "x", reasoning="y")) is None
