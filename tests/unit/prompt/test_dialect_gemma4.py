from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.machine.deltas import ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects import detect, named
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from antiphon.protocol.tools import CustomTool, FunctionTool
from support.dialects import TOOLS, check_calls, cuts, grammar, parse, prompt_of
from support.grammar_walk import accepts, complaints, walk

NAME = "gemma4"
FUNCTION_GEMMA = "<start_function_call><escape>"


def call(body: str) -> str:
    return f"<|tool_call>call:{body}<tool_call|>"


def quoted(text: str) -> str:
    return f'<|"|>{text}<|"|>'


OSLO = call(f"get_weather{{city:{quoted('Oslo')}}}")
OSLO_CALL = ("get_weather", '{"city":"Oslo"}')


@pytest.mark.requirement("prompt:dialect:gemma")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OSLO, [OSLO_CALL]),
        (f"Let me see.\n{OSLO}", ["Let me see.", OSLO_CALL]),
        (OSLO * 2, [OSLO_CALL] * 2),
        (f"{OSLO}\nDone.", [OSLO_CALL, "Done."]),
        (f"{OSLO}<|tool_response>", [OSLO_CALL]),
        (call("get_time{}"), [("get_time", "{}")]),
        (call(f"get_weather{{city:{quoted('a}b,{')},days:3}}"), [("get_weather", '{"city":"a}b,{","days":3}')]),
        (call(f'get_weather{{city:{quoted(chr(34) + chr(10))},note:null}}'),
         [("get_weather", '{"city":"\\"\\n","note":null}')]),
        (call(f"search{{queries:[{quoted('a')},{quoted('b')}],exact:true,where:{{site:{quoted('x')},depth:1.50}}}}"),
         [("search", '{"queries":["a","b"],"exact":true,"where":{"site":"x","depth":1.50}}')]),
        (call("search{queries:[],exact:False}"), [("search", '{"queries":[],"exact":false}')]),
        (call('search{"queries": ["a, b" , "c"], "exact": None}'),
         [("search", '{"queries":["a, b","c"],"exact":null}')]),
        (call("get_weather{city:New York, unit:C}"), [("get_weather", '{"city":"New York","unit":"C"}')]),
        (call(f"get_weather{{{quoted('city')}:{quoted('Oslo')},}}"), [OSLO_CALL]),
        (call('get_weather {"a:b":[1,[2,{}],],}'), [("get_weather", '{"a:b":[1,[2,{}]]}')]),
        ('<|tool_call>{"name": "get_time", "arguments": {"a": 1}}<tool_call|>', [("get_time", '{"a": 1}')]),
        ('{"name": "get_time"}', [("get_time", "{}")]),
        (OSLO.removesuffix("<tool_call|>"), [OSLO_CALL]),
    ],
)  # fmt: skip
def test_calls_are_read(text: str, expected: list[Any]) -> None:
    assert parse(NAME, text) == expected
    assert parse(NAME, list(text)) == expected


@pytest.mark.requirement("prompt:dialect:gemma")
def test_function_gemma_has_other_marks() -> None:
    text = "<start_function_call>call:get_weather{city:<escape>Oslo<escape>,days:2}<end_function_call>"
    expected = [("get_weather", '{"city":"Oslo","days":2}')]
    assert parse(NAME, text, template=FUNCTION_GEMMA) == expected
    assert parse(NAME, list(text * 2), template=FUNCTION_GEMMA) == expected * 2
    made = grammar(named(NAME, FUNCTION_GEMMA), prompt_of(parallel=False))
    assert accepts(made, text)
    assert detect(FUNCTION_GEMMA, {}).openings == ("<start_function_call>",)


@pytest.mark.requirement("prompt:dialect:no-markup")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<|tool_call>call:get_weather{city:<|"|>Osl', [("get_weather", '{"city":"Osl')]),
        ('<|tool_call>call:get_weather{city:<|"|>Osl<|"', [("get_weather", '{"city":"Osl')]),
        ("<|tool_call>call:get_weather{ci", [("get_weather", "{")]),
        ("Well.\n<|tool_call>call:get_wea", ["Well."]),
        ('a <tool_call|> b <|"|>c', ["a  b c"]),
    ],
)
def test_markup_of_cut_calls_reaches_nobody(text: str, expected: list[Any]) -> None:
    assert parse(NAME, text) == expected
    assert parse(NAME, list(text)) == expected


@pytest.mark.requirement("prompt:dialect:look-alikes")
def test_what_only_looks_like_a_call_stays_text() -> None:
    for text in ("call:get_time{}", "<tool_call>call:get_time{}</tool_call>", "a <|tool", "<|b|>"):
        assert parse(NAME, text) == [text]
        assert parse(NAME, list(text)) == [text]
    for undeclared in (call("other{a:1}"), call("get_times{}"), call("get_time a {}")):
        bare = undeclared.removeprefix("<|tool_call>").removesuffix("<tool_call|>")
        assert parse(NAME, undeclared) == [bare]
        assert parse(NAME, list(undeclared)) == [bare]
    assert parse(NAME, OSLO, prompt_of(mode="none")) == [OSLO]


@pytest.mark.requirement("prompt:dialect:streamed-arguments", "prompt:dialect:custom-tools")
def test_arguments_leave_while_they_are_generated() -> None:
    parser = named(NAME).parser(prompt_of())
    assert parser.feed("<|tool_call>call:get_weather") == []
    assert parser.feed("{ci") == [ToolCallStart("get_weather"), ToolCallDelta("{")]
    assert parser.feed('ty:<|"|>Os') == [ToolCallDelta('"city":"Os')]
    assert parser.feed('lo "') == [ToolCallDelta('lo \\"')]
    assert parser.feed("<|") == []
    assert parser.feed('"|>,days:1') == [ToolCallDelta('","days":')]
    assert parser.calls == 0
    assert parser.feed("2}") == [ToolCallDelta("12}")]
    assert parser.calls == 1
    text = '<tool_call|><|tool_call>call:shell{why:<|"|>x<|"|>,input:<|"|>'
    assert parser.feed(text) == [ToolCallStart("shell", custom=True)]
    assert parser.feed('echo "a"\n') == [ToolCallDelta('echo "a"\n')]
    assert parser.feed('<|"|>}<tool_call|>') == []
    assert parser.calls == 2
    assert parse(NAME, call('shell{input:"a\\nb"}')) == [("shell", "a\nb")]
    assert parse(NAME, call("shell{input:ls,x:1}")) == [("shell", "ls")]


FRAGMENTS = st.sampled_from(
    [
        OSLO, "<|tool_call>", "<tool_call|>", '<|"|>', "call:", "get_weather", "search", "shell", "{", "}", "[", "]",
        ":", ",", "city", "input", '"', '"a":', "null", "5", "True", " ", "\n", "word", "<|", "<", "\\", "é",
        '{"name": "get_time"}', "<|tool_response>",
    ]
)  # fmt: skip


@pytest.mark.requirement("prompt:dialect:cuts")
@settings(deadline=None, max_examples=200)
@given(fragments=st.lists(FRAGMENTS, max_size=18), data=st.data())
def test_cuts_change_nothing(fragments: list[str], data: st.DataObject) -> None:
    text = "".join(fragments)
    whole = parse(NAME, text)
    assert parse(NAME, cuts(data, text)) == whole
    assert parse(NAME, list(text)) == whole


NESTED = FunctionTool(
    name="nested",
    parameters={
        "type": "object",
        "properties": {
            "tree": {"$ref": "#/$defs/node"},
            "maybe": {"anyOf": [{"type": "integer", "minimum": 3, "maximum": 5}, {"type": "null"}]},
            "kinds": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
            "odd key": {"type": ["number", "boolean"]},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2},
        },
        "required": ["tree"],
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "label": {"type": "string", "maxLength": 4},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 1},
                },
                "required": ["label"],
                "additionalProperties": False,
            }
        },
    },
)


@pytest.mark.requirement("prompt:dialect:grammar")
@pytest.mark.parametrize("opened", ["", "<|tool_call>"])
@pytest.mark.parametrize("parallel", [True, False])
def test_what_the_grammar_lets_through_is_read_as_valid_calls(opened: str, parallel: bool) -> None:
    tools = [*TOOLS, NESTED]
    prompt = prompt_of(tools, parallel=parallel)
    made = grammar(NAME, prompt, opened=opened)
    assert complaints(made) == []
    texts = [text for seed in range(50) if (text := walk(made, seed, endings=['<|"|>'])) is not None]
    assert len(texts) > 40
    for text in texts:
        items = parse(NAME, opened + text, prompt)
        check_calls(items, tools)
        assert parallel or len(items) == 1
        assert parse(NAME, list(opened + text), prompt) == items
    assert len({item[0] for text in texts for item in parse(NAME, opened + text, prompt)}) == len(tools)


@pytest.mark.requirement("prompt:dialect:grammar")
def test_the_grammar_holds_to_names_types_and_order() -> None:
    made = grammar(NAME, prompt_of(allowed=["get_weather", "search"], mode="required", parallel=False))
    assert accepts(made, OSLO)
    assert accepts(made, call(f"get_weather{{city:{quoted('Oslo')},days:3,note:null,unit:{quoted('C')}}}"))
    assert accepts(
        made, call(f"search{{exact:true,queries:[{quoted('a')},{quoted('b')}],where:{{site:{quoted('x')}}}}}")
    )
    for wrong in (
        call("get_weather{}"),
        call(f"get_weather{{unit:{quoted('C')},city:{quoted('Oslo')}}}"),
        call(f"get_weather{{city:{quoted('x' * 21)}}}"),
        call("get_weather{city:5}"),
        call(f"search{{exact:true,queries:[{quoted('x' * 11)}]}}"),
        call("search{exact:true,queries:[]}"),
        call("get_time{}"),
        OSLO * 2,
    ):
        assert not accepts(made, wrong), wrong


@pytest.mark.requirement("prompt:dialect:grammar", "prompt:dialect:custom-tools")
def test_a_grammar_of_a_custom_tool_binds_its_input() -> None:
    lark = CustomTool(name="sum", format={"type": "grammar", "syntax": "lark", "definition": "start: /[0-9+]+/"})
    made = grammar(NAME, prompt_of([lark, TOOLS[2]]))
    assert complaints(made) == []
    assert accepts(made, call(f"sum{{input:{quoted('1+2')}}}"))
    assert accepts(made, call("get_time{}") + call(f"sum{{input:{quoted('1+2')}}}"))
    assert not accepts(made, call(f"sum{{input:{quoted('a')}}}"))


@pytest.mark.requirement("prompt:dialect:detect", "prompt:dialect:gemma")
def test_the_template_is_known_and_gets_the_names_of_outputs() -> None:
    assert detect('<|tool_call>call: <|"|>', {}).name == NAME
    assert detect("<|tool_call>", {}).name != NAME
    messages = [
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", "", tool_calls=[ToolCall("c1", "get_time", "{}")]),
        ChatMessage("tool", "12:00", tool_call_id="c1"),
    ]
    arranged, _ = named(NAME).arrange(Prompt(messages, tools=TOOLS))
    assert arranged[2].name == "get_time"


@pytest.mark.requirement("prompt:calls:linear")
@pytest.mark.parametrize(
    ("start", "part"),
    [
        ("<|tool_call>", "\n" * 16),
        ("<|tool_call>call:get_weather{", " " * 16),
        ("<|tool_call>call:get_weather{", "k" * 16),
        ("<|tool_call>call:get_weather{city:", "v" * 16),
        ('<|tool_call>call:get_weather{city:<|"|>', "<|" * 8),
        ("<|tool_call>call:get_weather{city:[", "[" * 4),
        ("", "<|tool_call>call:x"),
    ],
)
def test_endless_text_costs_linear_time(start: str, part: str) -> None:
    parser = named(NAME).parser(prompt_of())
    began = time.process_time()
    parser.feed(start)
    for _ in range(8_000):
        parser.feed(part)
    parser.finish()
    assert time.process_time() - began < 2
