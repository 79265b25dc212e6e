"""Past thinking that is dropped, and the prompt for a summary of thinking."""

from __future__ import annotations

import pytest

from antiphon.prompt.compaction import is_summary_prompt
from antiphon.prompt.prompt import ChatMessage, ToolCall
from antiphon.prompt.thoughts import drop_past_thinking, is_thought_prompt, summary_prompt, thought_of


@pytest.mark.requirement("reasoning:summary:prompt")
def test_the_prompt_bounds_the_summary_and_holds_the_thinking():
    prompt = summary_prompt("First this. Then that.", 128, 4096)
    assert (prompt.max_output_tokens, prompt.reasoning_effort, prompt.tools) == (128, "none", ())
    assert [message.role for message in prompt.messages] == ["system", "user"]
    assert thought_of(prompt.messages) == "First this. Then that."
    assert is_thought_prompt(prompt.messages)
    assert not is_summary_prompt(prompt.messages)
    assert not is_thought_prompt([])
    assert not is_thought_prompt(prompt.messages[1:])
    detailed = summary_prompt("First this.", 384, 4096)
    assert detailed.messages[0] != prompt.messages[0]
    assert is_thought_prompt(detailed.messages)


@pytest.mark.requirement("reasoning:summary:prompt")
def test_thinking_that_is_too_long_for_the_context_is_shortened():
    told = thought_of(summary_prompt("begin " + "word " * 10_000 + "end", 128, 1024).messages)
    assert len(told) < 1024 * 2
    assert told.startswith("begin")
    assert told.endswith("end")
    assert summary_prompt("a b", 128, 100).messages


@pytest.mark.requirement("reasoning:context", "engine:template:preserve-thinking")
def test_images_of_a_tool_begin_no_turn_of_a_user():
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    old = ChatMessage("assistant", "A", reasoning="old")
    call = ChatMessage("assistant", "", reasoning="new", tool_calls=(ToolCall("c", "f", "{}"),))
    shown = [ChatMessage("tool", "O", tool_call_id="c"), ChatMessage("user", [image])]
    kept = drop_past_thinking([ChatMessage("user", "U"), old, ChatMessage("user", "V"), call, *shown], "<t>", "</t>")
    assert [message.reasoning for message in kept] == ["", "", "", "new", "", ""]
    asked = [ChatMessage("user", "U"), call, *shown, ChatMessage("user", "V")]
    assert not any(message.reasoning for message in drop_past_thinking(asked, "<t>", "</t>"))
    seen = [ChatMessage("user", "U"), old, ChatMessage("user", [image])]
    assert not any(message.reasoning for message in drop_past_thinking(seen, "<t>", "</t>"))
