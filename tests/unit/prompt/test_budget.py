"""Where a conversation may be cut."""

from __future__ import annotations

import pytest

from antiphon.prompt.budget import cut, cut_points
from antiphon.prompt.prompt import ChatMessage

SYSTEM = ChatMessage("system", "s")
TURNS = [ChatMessage(role, "x") for role in ("user", "assistant", "tool", "tool", "assistant", "user")]


@pytest.mark.requirement("prompt:truncation")
def test_system_text_stays_and_no_tool_output_begins_what_is_kept():
    conversation = [SYSTEM, *TURNS]
    assert cut_points(conversation) == [1, 6]
    assert cut(conversation, 5) == [SYSTEM, *TURNS[4:]]
    assert cut_points(TURNS) == [0, 5]
    assert cut_points([]) == [0]
    assert cut(TURNS, 4) == TURNS[4:]
    assert cut(conversation, 1) == conversation
