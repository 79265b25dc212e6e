"""What a chat template is given for a turn goes on from what it was given for the turn before."""

from __future__ import annotations

import pytest

from antiphon.prompt.dialects import named
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from support.dialects import TOOLS
from support.families import FAMILIES

FORMS = ("mistral", "mistral_ids", "mistral_array", "kimi", "kimi_by_id", "deepseek", "deepseek_r1", "llama3", "llama4")
TURN = [
    ChatMessage("user", "Hi"),
    ChatMessage("assistant", "I look.", tool_calls=[ToolCall("c1", "get_time", "{}"), ToolCall("c2", "shell", "ls")]),
    ChatMessage("tool", "a.txt", tool_call_id="c2"),
    ChatMessage("tool", "12:00", tool_call_id="c1"),
    ChatMessage("assistant", "", tool_calls=[ToolCall("c3", "get_weather", '{"city": "Oslo"}')]),
    ChatMessage("tool", "Rain", tool_call_id="c3"),
    ChatMessage("assistant", "It rains."),
]
HISTORY = [ChatMessage("system", "Be brief."), *TURN, *TURN]
TURN_ENDS = (1, 2, 5, 7, 8, 9, 12, 14)
"""How many messages there are when the model is asked."""


@pytest.mark.parametrize("family", [*FORMS, "pythonic", "lfm2", "olmo3"])
@pytest.mark.requirement("prompt:history")
def test_each_turn_extends_the_one_before(family: str) -> None:
    for caps in ({"supports_tools": True, "supports_tool_calls": True}, {}):
        dialect = named(FAMILIES[family].dialect, FAMILIES[family].text(), caps)
        before: list[ChatMessage] = []
        for end in TURN_ENDS:
            messages, tools = dialect.arrange(Prompt(HISTORY[:end], tools=TOOLS))
            assert messages[: len(before)] == before
            assert dialect.arrange(Prompt(HISTORY[:end], tools=TOOLS)) == (messages, tools)
            before = messages
