from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.machine.deltas import ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects import detect, named
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from antiphon.protocol.tools import CustomTool
from support.dialects import TOOLS, check_calls, cuts, grammar, parse, prompt_of
from support.grammar_walk import accepts, complaints, walk

NAME = "gemma3"
LARK = CustomTool(name="sum", format={"type": "grammar", "syntax": "lark", "definition": "start: /[0-9+]+/"})


def call(name: str, arguments: str) -> str:
    return f'```tool_code\n{{"name": "{name}", "arguments": {arguments}}}\n```'


OSLO = call("get_weather", '{"city": "Oslo"}')
OSLO_CALL = ("get_weather", '{"city": "Oslo"}')


@pytest.mark.requirement("prompt:dialect:gemma")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OSLO, [OSLO_CALL]),
        (f"Let me see.\n\n{OSLO}\n", ["Let me see.", OSLO_CALL]),
        (f"{OSLO}\n{OSLO}", [OSLO_CALL] * 2),
        (f"{OSLO}\nDone.", [OSLO_CALL, "Done."]),
        (f"{OSLO}<end_of_turn>", [OSLO_CALL]),
        (OSLO.replace("tool_code", "json"), [OSLO_CALL]),
        (OSLO.removeprefix("```tool_code\n").removesuffix("\n```"), [OSLO_CALL]),
        ("```python\nprint(1)\n```", ["```python\nprint(1)\n```"]),
        ("```tool_code\nget_time()\n```", ["```tool_code\nget_time()\n```"]),
        ('```tool_code\n{"name": "other"}\n```', ['```tool_code\n{"name": "other"}\n```']),
        ("a < b", ["a < b"]),
        ('```tool_code\n{"name": "shell", "arguments": {"input": "a\\nb"}}\n```', [("shell", "a\nb")]),
    ],
)
def test_calls_are_read(text: str, expected: list[Any]) -> None:
    assert parse(NAME, text) == expected
    assert parse(NAME, list(text)) == expected


@pytest.mark.requirement("prompt:dialect:streamed-arguments", "prompt:dialect:custom-tools")
def test_arguments_leave_while_they_are_generated() -> None:
    parser = named(NAME).parser(prompt_of())
    assert parser.feed('```tool_code\n{"name": "get_weather", "argu') == []
    assert parser.feed('ments": {"ci') == [ToolCallStart("get_weather"), ToolCallDelta('{"ci')]
    assert parser.feed('ty": "O') == [ToolCallDelta('ty": "O')]
    assert parser.feed('"}}\n```') == [ToolCallDelta('"}')]
    assert parser.calls == 1
    prompt = prompt_of([*TOOLS, LARK])
    assert parse(NAME, '```tool_code\n{"name": "sum"}\n1+2\n```\nx', prompt) == [("sum", "1+2"), "x"]


FRAGMENTS = st.sampled_from(
    [
        OSLO, "```", "tool_code", "\n", '{"name": "get_time"', ', "arguments": {', "}", '"', "<end_of_turn>", "word",
        "`", "{", " ", "json", "<end", "é",
    ]
)  # fmt: skip


@pytest.mark.requirement("prompt:dialect:cuts")
@settings(deadline=None, max_examples=200)
@given(fragments=st.lists(FRAGMENTS, max_size=14), data=st.data())
def test_cuts_change_nothing(fragments: list[str], data: st.DataObject) -> None:
    text = "".join(fragments)
    whole = parse(NAME, text)
    assert parse(NAME, cuts(data, text)) == whole
    assert parse(NAME, list(text)) == whole


@pytest.mark.requirement("prompt:dialect:grammar")
@pytest.mark.parametrize("opened", ["", "```tool_code"])
@pytest.mark.parametrize("parallel", [True, False])
def test_what_the_grammar_lets_through_is_read_as_valid_calls(opened: str, parallel: bool) -> None:
    prompt = prompt_of(parallel=parallel)
    made = grammar(NAME, prompt, opened=opened)
    assert complaints(made) == []
    texts = [text for seed in range(40) if (text := walk(made, seed, endings=['"}'])) is not None]
    assert len(texts) > 30
    for text in texts:
        items = parse(NAME, opened + text, prompt)
        check_calls(items)
        assert parallel or len(items) == 1
        assert parse(NAME, list(opened + text), prompt) == items


@pytest.mark.requirement("prompt:dialect:grammar")
def test_the_grammar_holds_to_names_and_schemas() -> None:
    made = grammar(NAME, prompt_of(allowed=["get_weather"], mode="required", parallel=False))
    assert accepts(made, OSLO)
    for wrong in (call("get_weather", "{}"), call("get_time", "{}"), f"x{OSLO}", f"{OSLO}\n{OSLO}"):
        assert not accepts(made, wrong), wrong
    made = grammar(NAME, prompt_of([LARK]))
    assert accepts(made, '```tool_code\n{"name": "sum"}\n1+2\n```')
    assert not accepts(made, '```tool_code\n{"name": "sum"}\na\n```')


@pytest.mark.requirement("prompt:dialect:detect", "prompt:dialect:gemma")
def test_tools_calls_and_outputs_are_text() -> None:
    assert detect("<start_of_turn>", {}).name == NAME
    assert detect("<start_of_turn>", {"supports_tools": True}).name == "generic"
    calls = [ToolCall("c1", "get_time", '{"zone": "UTC"}'), ToolCall("c2", "sum", "1+2")]
    messages = [
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", "So:", tool_calls=calls),
        ChatMessage("tool", "12:00", tool_call_id="c1"),
        ChatMessage("tool", "3", tool_call_id="c2"),
    ]
    prompt = Prompt(messages, tools=[*TOOLS, LARK])
    arranged, tools = named(NAME).arrange(prompt)
    assert tools == []
    assert [message.role for message in arranged] == ["system", "user", "assistant", "user"]
    assert '"name":"get_weather"' in arranged[0].text()
    assert parse(NAME, arranged[2].text(), prompt) == ["So:", ("get_time", '{"zone": "UTC"}'), ("sum", "1+2")]
    assert arranged[3].text() == "```tool_output\n12:00\n```\n```tool_output\n3\n```"
    assert [message.role for message in named(NAME).arrange(Prompt(messages[:1]))[0]] == ["user"]
