from __future__ import annotations

import pytest

from antiphon.prompt.dialects.history import (
    calls_as_text,
    in_call_order,
    one_call_each,
    with_ids,
    with_names,
    with_system_text,
)
from antiphon.prompt.prompt import ChatMessage, ToolCall

USER = ChatMessage("user", "Hi")
FIRST, SECOND = ToolCall("c1", "get_time", "{}"), ToolCall("c2", "get_weather", '{"city": "Oslo"}')
CALLS = ChatMessage("assistant", "I look.", reasoning="Hm.", tool_calls=[FIRST, SECOND])
OUT1, OUT2 = ChatMessage("tool", "12:00", tool_call_id="c1"), ChatMessage("tool", "Rain", tool_call_id="c2")
LOST = ChatMessage("tool", "?", tool_call_id="c9")


@pytest.mark.requirement("prompt:history")
def test_outputs_get_the_names_of_their_tools() -> None:
    messages = with_names([USER, CALLS, OUT2, LOST])
    assert [message.name for message in messages] == ["", "", "get_weather", ""]


@pytest.mark.requirement("prompt:history")
def test_outputs_keep_to_their_calls_under_other_ids() -> None:
    messages = with_ids([USER, CALLS, OUT2, OUT1, LOST], lambda call, place: f"{call.name or call.id}-{place}")
    assert [call.id for call in messages[1].tool_calls] == ["get_time-0", "get_weather-1"]
    assert [message.tool_call_id for message in messages[2:]] == ["get_weather-1", "get_time-0", "c9-0"]


@pytest.mark.requirement("prompt:history")
def test_outputs_come_in_the_order_of_the_calls() -> None:
    assert in_call_order([USER, CALLS, LOST, OUT2, OUT1, USER, OUT1]) == [USER, CALLS, OUT1, OUT2, LOST, USER, OUT1]


@pytest.mark.requirement("prompt:history")
def test_calls_one_by_one_each_with_its_output() -> None:
    messages = one_call_each([USER, CALLS, OUT2, LOST, OUT1, USER], text_apart=True)
    roles = "user assistant assistant tool assistant tool tool user"
    assert [message.role for message in messages] == roles.split()
    assert [(m.content, m.reasoning, [c.id for c in m.tool_calls]) for m in messages if m.role == "assistant"] == [
        ("I look.", "Hm.", []),
        ("", "", ["c1"]),
        ("", "", ["c2"]),
    ]
    assert messages[3:7:2] == [OUT1, OUT2]
    assert messages[6] == LOST
    together = one_call_each([CALLS, OUT1, OUT2], text_apart=False)
    assert [(m.content, len(m.tool_calls)) for m in together] == [("I look.", 1), ("12:00", 0), ("", 1), ("Rain", 0)]


@pytest.mark.requirement("prompt:history")
def test_calls_as_text_stand_behind_the_content() -> None:
    messages = calls_as_text([USER, CALLS, OUT1], lambda calls: "+".join(call.name for call in calls), between="\n")
    assert messages == [
        USER,
        ChatMessage("assistant", "I look.\nget_time+get_weather", reasoning="Hm."),
        OUT1,
    ]
    bare = ChatMessage("assistant", "", tool_calls=[FIRST])
    assert calls_as_text([bare], lambda calls: calls[0].name, between="\n")[0].content == "get_time"


@pytest.mark.requirement("prompt:history")
def test_system_text_joins_the_first_system_message() -> None:
    assert with_system_text([USER], "x") == [ChatMessage("system", "x"), USER]
    assert with_system_text([ChatMessage("system", "a"), USER], "x")[0].content == "a\n\nx"
    assert with_system_text([ChatMessage("system", ""), USER], "x")[0].content == "x"
    parts = [{"type": "text", "text": "a"}]
    assert with_system_text([ChatMessage("system", parts)], "x")[0].content == [*parts, {"type": "text", "text": "x"}]
