from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.machine.deltas import ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects import detect, named
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from support.dialects import TOOLS, check_bound, cuts, grammar, parse, prompt_of
from support.families import FAMILIES
from support.grammar_walk import accepts

NAME = "llama3"
TAG, START, END = "<|python_tag|>", "<|python_start|>", "<|python_end|>"
OSLO = '{"name": "get_weather", "parameters": {"city": "Oslo"}}'
NOW = '{"name": "get_time", "parameters": {}}'
OSLO_CALL = ("get_weather", '{"city": "Oslo"}')
TIME = ("get_time", "{}")


@pytest.mark.requirement("prompt:dialect:llama3")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OSLO, [OSLO_CALL]),
        (f"{TAG}{OSLO}", [OSLO_CALL]),
        (f"{OSLO}; {NOW}", [OSLO_CALL, TIME]),
        (f"{OSLO};{NOW}; {OSLO}", [OSLO_CALL, TIME, OSLO_CALL]),
        (f"{TAG}{OSLO}; {NOW}", [OSLO_CALL, TIME]),
        (f"{OSLO}\n{NOW}", [OSLO_CALL, TIME]),
        (f"{OSLO}, {NOW}.", [OSLO_CALL, TIME, "."]),
        (f"[{OSLO}, {NOW}]", [OSLO_CALL, TIME]),
        (f"{TAG}[{OSLO}, {NOW}] ok", [OSLO_CALL, TIME, "ok"]),
        (f"I look.\n\n{OSLO}", ["I look.", OSLO_CALL]),
        (f"I look.{TAG}{OSLO}", ["I look.", OSLO_CALL]),
        (f"{START}I look.{END}{OSLO}", ["I look.", OSLO_CALL]),
        (f"{START}{OSLO}{END}", [OSLO_CALL]),
        ('{"type": "function", "name": "get_time", "parameters": {}}', [TIME]),
        ('{"name": "get_weather", "arguments": {"city": "Oslo"}}', [OSLO_CALL]),
        (f'{TAG}get_weather.call(city="Oslo")', [OSLO_CALL]),
        (f'{TAG}shell.call(input="ls")', [("shell", "ls")]),
        (f"```json\n{OSLO}\n```", [OSLO_CALL]),
        ('{"name": "shell", "parameters": {"input": "ls \\"x\\""}}', [("shell", 'ls "x"')]),
    ],
)
def test_calls_are_read(text: str, expected: list[Any]) -> None:
    assert parse(NAME, text) == expected
    assert parse(NAME, list(text)) == expected


@pytest.mark.requirement("prompt:dialect:no-markup")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TAG, []),
        (f"Well.{TAG}{OSLO[:20]}", ["Well."]),
        (f"{TAG}get_weather.ca", []),
        (f"{TAG}get_weather.call(", []),
        (f'{TAG}get_weather.call(city="Os', [("get_weather", '{"city": "Os')]),
        (OSLO[:-3], [("get_weather", '{"city": "Oslo')]),
        (f"{TAG}print(1)", ["print(1)"]),
        (f"a{TAG} b{END}c", ["a bc"]),
        (f"{OSLO}; and so on", [OSLO_CALL, "; and so on"]),
        (f'{OSLO}; {{"name": "other"}}', [OSLO_CALL, '; {"name": "other"}']),
    ],
)
def test_markup_reaches_nobody(text: str, expected: list[Any]) -> None:
    assert parse(NAME, text) == expected
    assert parse(NAME, list(text)) == expected


@pytest.mark.requirement("prompt:dialect:look-alikes")
@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ada", "parameters": {}}',
        f"An object {OSLO} in a line.",
        "get_weather.call(city=1)",
        '{"name": "get_time", "parameters": {}, "x": 1',
        '{"name": "get_ti',
        "; {",
        "<|python",
        '{"parameters": {"a": 1}}; {"b": 2}',
    ],
)
def test_what_only_looks_like_a_call_stays_text(text: str) -> None:
    expected = [text] if "get_time" not in text else [("get_time", "{}")]
    assert parse(NAME, text) == expected
    assert parse(NAME, list(text)) == expected
    assert parse(NAME, OSLO, prompt_of(allowed=["get_time"])) == [OSLO]


@pytest.mark.requirement("prompt:dialect:streamed-arguments", "prompt:dialect:custom-tools")
def test_arguments_leave_while_they_are_generated() -> None:
    parser = named(NAME).parser(prompt_of())
    assert parser.feed('{"name": "get_weather", "para') == []
    assert not parser.in_text
    assert parser.feed('meters": {"ci') == [ToolCallStart("get_weather"), ToolCallDelta('{"ci')]
    assert parser.feed('ty": "Oslo"}') == [ToolCallDelta('ty": "Oslo"}')]
    assert parser.calls == 0
    assert parser.feed('}; {"name": "shell", "parameters": {"input": "l') == [
        ToolCallStart("shell", custom=True),
        ToolCallDelta("l"),
    ]
    assert parser.calls == 1
    assert parser.feed('s"}}') == [ToolCallDelta("s")]
    assert parser.calls == 2
    assert parser.finish() == []


FRAGMENTS = st.sampled_from(
    [
        OSLO, NOW, TAG, START, END, '{"name": "get_weather", "parameters": ', '{"city": "', '"}', "}", "{", "[",
        "]", ";", ",", " ", "\n", "word", "get_time.call(", "get_time(", 'input="', '")', ")", "```", "json\n",
        "<|python", "_tag|>",
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
    for part in whole:
        # Around a dropped marker, pieces of another one can come together; that is text of the model's own making.
        if isinstance(part, str) and "<|python" not in fragments:
            assert not any(marker in part for marker in (TAG, START, END))


@pytest.mark.requirement("prompt:dialect:grammar")
@pytest.mark.parametrize("opened", ["", TAG])
@pytest.mark.parametrize("parallel", [True, False])
def test_what_the_grammar_lets_through_is_read_as_valid_calls(opened: str, parallel: bool) -> None:
    names = check_bound(named(NAME), prompt_of(parallel=parallel), opened=opened)
    assert names == {tool.name for tool in TOOLS}


@pytest.mark.requirement("prompt:dialect:grammar")
def test_a_bare_call_opens_with_the_name_of_its_tool() -> None:
    prompt = prompt_of()
    openings = named(NAME).call_openings(prompt)
    assert openings == [TAG, *(f'{{"name": "{tool.name}"' for tool in TOOLS)]
    for opening, tool in zip(openings[1:], TOOLS, strict=True):
        assert tool.name in check_bound(named(NAME), prompt, opened=opening, walks=6)
    assert named(NAME).call_openings(prompt_of(mode="none")) == []


@pytest.mark.requirement("prompt:dialect:grammar")
def test_the_grammar_holds_to_names_and_schemas() -> None:
    made = grammar(NAME, prompt_of(allowed=["get_weather", "get_time"]))
    assert accepts(made, OSLO)
    assert accepts(made, TAG + OSLO)
    assert accepts(made, f"{OSLO}; {NOW}")
    assert not accepts(grammar(NAME, prompt_of(parallel=False)), f"{OSLO}; {NOW}")
    for wrong in (
        OSLO.replace("parameters", "arguments"),
        OSLO.replace("get_weather", "search"),
        OSLO.replace("city", "town"),
        f"Well. {OSLO}",
        f"{OSLO}{NOW}",
        OSLO[:-1],
    ):
        assert not accepts(made, wrong), wrong


@pytest.mark.requirement("prompt:dialect:detect")
def test_the_template_is_known_by_its_headers_and_its_form() -> None:
    for name in ("llama3", "llama4"):
        assert detect(FAMILIES[name].text(), {"supports_tools": True}).name == NAME
    for other in ("<tool_call>", "<function=", "functools["):
        assert detect(FAMILIES["llama3"].text() + other, {}).name != NAME


HISTORY = [
    ChatMessage("user", "Hi"),
    ChatMessage("assistant", "I look.", tool_calls=[ToolCall("c1", "get_time", "{}"), ToolCall("c2", "shell", "ls")]),
    ChatMessage("tool", "a.txt", tool_call_id="c2"),
    ChatMessage("tool", "12:00", tool_call_id="c1"),
]


@pytest.mark.requirement("prompt:dialect:llama3")
def test_a_template_of_single_calls_gets_them_one_by_one() -> None:
    dialect = named(NAME, FAMILIES["llama3"].text(), {"supports_parallel_tool_calls": False})
    messages, tools = dialect.arrange(Prompt(HISTORY, tools=TOOLS))
    assert [(message.role, message.content, len(message.tool_calls)) for message in messages] == [
        ("user", "Hi", 0),
        ("assistant", "I look.", 0),
        ("assistant", "", 1),
        ("tool", "12:00", 0),
        ("assistant", "", 1),
        ("tool", "a.txt", 0),
    ]
    assert len(tools) == len(TOOLS)
    several = named(NAME, FAMILIES["llama4"].text(), {"supports_parallel_tool_calls": True})
    assert several.arrange(Prompt(HISTORY, tools=TOOLS))[0] == HISTORY


@pytest.mark.requirement("prompt:calls:linear")
@pytest.mark.parametrize(
    ("start", "part", "end"),
    [
        (TAG, "\n" * 16, OSLO),
        (f"{TAG}get_weather", " " * 16, "(x"),
        (f"{TAG}get_weather(", " " * 16, "x"),
        (f"{TAG}get_weather(", "k" * 16, "=1)"),
        (OSLO, "; " * 8, "x"),
        ("", f"{OSLO}; ", ""),
        ("", '\n{"name"', ""),
    ],
)
def test_endless_text_costs_linear_time(start: str, part: str, end: str) -> None:
    parser = named(NAME).parser(prompt_of())
    began = time.process_time()
    parser.feed(start)
    for _ in range(4_000):
        parser.feed(part)
    parser.feed(end)
    parser.finish()
    assert time.process_time() - began < 3
