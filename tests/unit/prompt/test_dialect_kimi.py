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

NAME = "kimi"
OPEN, CLOSE = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
BEGIN, ARGUMENTS, END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
OSLO = f'{BEGIN}functions.get_weather:0{ARGUMENTS}{{"city": "Oslo"}}{END}'
TURN = f"{OPEN}{OSLO}{CLOSE}"
OSLO_CALL = ("get_weather", '{"city": "Oslo"}')
TIME = ("get_time", "{}")


@pytest.mark.requirement("prompt:dialect:kimi")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TURN, [OSLO_CALL]),
        (f"I look.{TURN}", ["I look.", OSLO_CALL]),
        (f"{OPEN}\n{OSLO}\n{BEGIN}functions.get_time:1{ARGUMENTS}{{}}{END}\n{CLOSE}", [OSLO_CALL, TIME]),
        (f"{TURN}\n{TURN} Done.", [OSLO_CALL, OSLO_CALL, "Done."]),
        (OSLO, [OSLO_CALL]),
        (f"{BEGIN}get_weather{ARGUMENTS}{{}}{END}", [("get_weather", "{}")]),
        (f"{BEGIN} functions.get_time : 12 {ARGUMENTS} {{}} {END}", [TIME]),
        (f"{BEGIN}functions.get_time:0{ARGUMENTS}{END}{BEGIN}get_time{END}{CLOSE}", [TIME, TIME]),
        (f"{BEGIN}functions.get_time:0{ARGUMENTS}null{END}", [TIME]),
        (f"{BEGIN}functions.get_time:0{{}}{END}", [TIME]),
        (f'{OPEN}{{"name": "get_time"}}{CLOSE}', [TIME]),
        (f'{BEGIN}functions.get_weather:0{ARGUMENTS}{{"city": "{END}"}}{END}',
         [("get_weather", f'{{"city": "{END}"}}')]),
        ('{"name": "get_time"}', [TIME]),
    ],
)  # fmt: skip
def test_calls_are_read(text: str, expected: list[Any]) -> None:
    assert parse(NAME, text) == expected
    assert parse(NAME, list(text)) == expected


@pytest.mark.requirement("prompt:dialect:no-markup")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OPEN, []),
        (f"Well.{OPEN}{BEGIN}functions.get_w", ["Well."]),
        (f"{BEGIN}functions.get_weather:0", []),
        (f"{BEGIN}functions.get_weather:0<|tool_call_arg", []),
        (f'{BEGIN}functions.get_weather:0{ARGUMENTS}{{"city": "Osl', [("get_weather", '{"city": "Osl')]),
        (f'{BEGIN}functions.get_weather:0{ARGUMENTS}{{"days": 1{END}{CLOSE}', [("get_weather", '{"days": 1')]),
        (f"{BEGIN}functions.other:0{ARGUMENTS}{{}}{END}ok", ["functions.other:0{}ok"]),
        (f"{BEGIN} is a marker.", [" is a marker."]),
        (f"a{CLOSE}b{ARGUMENTS}c", ["abc"]),
        (f"{TURN}<|tool_calls_sect", [OSLO_CALL, "<|tool_calls_sect"]),
    ],
)
def test_markup_reaches_nobody(text: str, expected: list[Any]) -> None:
    assert parse(NAME, text) == expected
    assert parse(NAME, list(text)) == expected


@pytest.mark.requirement("prompt:dialect:look-alikes")
@pytest.mark.parametrize("text", ["<|tool_call|>", "functions.get_time:0", "<|tool_call_begin", "a <| b |> c"])
def test_what_only_looks_like_a_call_stays_text(text: str) -> None:
    assert parse(NAME, text) == [text]
    assert parse(NAME, list(text)) == [text]
    assert parse(NAME, OSLO, prompt_of(allowed=["get_time"])) == ['functions.get_weather:0{"city": "Oslo"}']


@pytest.mark.requirement("prompt:dialect:streamed-arguments", "prompt:dialect:custom-tools")
def test_arguments_leave_while_they_are_generated() -> None:
    parser = named(NAME).parser(prompt_of())
    assert parser.feed(f"{OPEN}{BEGIN}functions.get_weather:0{ARGUMENTS}") == []
    assert not parser.in_text
    assert parser.feed('{"city": "Os') == [ToolCallStart("get_weather"), ToolCallDelta('{"city": "Os')]
    assert parser.calls == 0
    assert parser.feed('lo"}<|tool_call') == [ToolCallDelta('lo"}')]
    assert parser.calls == 1
    assert parser.feed(f'_end|>{BEGIN}functions.shell:1{ARGUMENTS}{{"input": "l') == [
        ToolCallStart("shell", custom=True),
        ToolCallDelta("l"),
    ]
    assert parser.feed(f's"}}{END}{CLOSE}') == [ToolCallDelta("s")]
    assert parser.calls == 2
    assert parser.finish() == []


FRAGMENTS = st.sampled_from(
    [
        TURN, OSLO, OPEN, CLOSE, BEGIN, ARGUMENTS, END, "functions.", "get_weather", "get_time", ":0", ":",
        '{"city": "', '"}', "{}", "{", "}", "\n", " ", "<|tool_call", "_begin|>", "word", '"', "null",
        '{"name": "get_time"}', "<",
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
        if isinstance(part, str) and "<|tool_call" not in fragments and "<" not in fragments:
            assert not any(marker in part for marker in (OPEN, CLOSE, BEGIN, ARGUMENTS, END))


@pytest.mark.requirement("prompt:dialect:grammar")
@pytest.mark.parametrize("opened", ["", OPEN, BEGIN])
@pytest.mark.parametrize("parallel", [True, False])
def test_what_the_grammar_lets_through_is_read_as_valid_calls(opened: str, parallel: bool) -> None:
    names = check_bound(named(NAME), prompt_of(parallel=parallel), opened=opened)
    assert names == {tool.name for tool in TOOLS}


@pytest.mark.requirement("prompt:dialect:grammar")
def test_the_grammar_holds_to_frame_names_and_schemas() -> None:
    prompt = prompt_of(allowed=["get_weather"])
    made = grammar(NAME, prompt)
    assert accepts(made, TURN)
    assert accepts(made, f"{OPEN}{OSLO}{OSLO.replace(':0', ':17')}{CLOSE}")
    single = grammar(NAME, prompt_of(allowed=["get_weather"], parallel=False))
    assert accepts(single, TURN)
    assert not accepts(single, f"{OPEN}{OSLO}{OSLO}{CLOSE}")
    for wrong in (
        OSLO,
        f"Well. {TURN}",
        TURN.removesuffix(CLOSE),
        TURN.replace("functions.", ""),
        TURN.replace("get_weather", "get_time"),
        TURN.replace('"Oslo"', "1"),
        TURN.replace("city", "town"),
    ):
        assert not accepts(made, wrong), wrong
    opened = grammar(NAME, prompt, opened=BEGIN)
    assert accepts(opened, OSLO.removeprefix(BEGIN))
    assert accepts(opened, OSLO.removeprefix(BEGIN) + CLOSE)
    assert not accepts(opened, OSLO)


@pytest.mark.requirement("prompt:dialect:detect")
def test_the_template_is_known_by_its_markers() -> None:
    for name in ("kimi", "kimi_by_id"):
        assert detect(FAMILIES[name].text(), {"supports_tools": True}).name == NAME


@pytest.mark.requirement("prompt:dialect:kimi")
def test_outputs_come_in_order_under_the_names_and_ids_of_their_calls() -> None:
    calls = [ToolCall("c1", "get_time", "{}"), ToolCall("c2", "shell", "ls")]
    turn = [
        ChatMessage("assistant", "", tool_calls=calls),
        ChatMessage("tool", "a.txt", tool_call_id="c2"),
        ChatMessage("tool", "12:00", tool_call_id="c1"),
    ]
    history = Prompt(
        [ChatMessage("user", "Hi"), *turn, ChatMessage("tool", "?", tool_call_id="c7"), *turn], tools=TOOLS
    )
    for family, last in (("kimi", ["functions.get_time:2", "functions.shell:3"]),
                         ("kimi_by_id", ["functions.get_time:0", "functions.shell:1"])):  # fmt: skip
        messages, tools = named(NAME, FAMILIES[family].text()).arrange(history)
        assert [call.id for call in messages[1].tool_calls] == ["functions.get_time:0", "functions.shell:1"]
        outputs = [
            (message.content, message.tool_call_id, message.name) for message in messages if message.role == "tool"
        ]
        assert outputs == [
            ("12:00", "functions.get_time:0", "get_time"),
            ("a.txt", "functions.shell:1", "shell"),
            ("?", "c7", ""),
            ("12:00", last[0], "get_time"),
            ("a.txt", last[1], "shell"),
        ]
        assert len(tools) == len(TOOLS)


@pytest.mark.requirement("prompt:calls:linear")
@pytest.mark.parametrize(
    ("start", "part", "end"),
    [
        (OPEN, "\n" * 16, OSLO),
        (BEGIN, " " * 16, "x"),
        (f"{BEGIN}functions.get_time:", "0" * 16, f"{ARGUMENTS}{{}}"),
        (f"{BEGIN}get_time{ARGUMENTS}", " " * 16, "{}"),
        (TURN, "[" * 16, "x"),
        ("", BEGIN, ""),
        ("", OSLO, ""),
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
