from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.machine.deltas import ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects import detect, named
from antiphon.protocol.tools import CustomTool
from support.dialects import TOOLS, check_calls, cuts, grammar, parse, prompt_of
from support.grammar_walk import accepts, complaints, walk

NAME = "glm"
OSLO = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>"
TIGHT = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>"
OSLO_CALL = ("get_weather", '{"city":"Oslo"}')


def call(name: str, *parameters: tuple[str, str]) -> str:
    body = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in parameters)
    return f"<tool_call>{name}\n{body}</tool_call>"


@pytest.mark.requirement("prompt:dialect:glm", "prompt:tagged:values")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OSLO, [OSLO_CALL]),
        (TIGHT, [OSLO_CALL]),
        (f"Let me see.\n{OSLO}\n", ["Let me see.", OSLO_CALL]),
        (f"{OSLO}\n{TIGHT}", [OSLO_CALL] * 2),
        (f"{TIGHT}\n\nDone.", [OSLO_CALL, "Done."]),
        (f"{TIGHT}get_time is next.", [OSLO_CALL, "get_time is next."]),
        ("<tool_call>get_time</tool_call>", [("get_time", "{}")]),
        ("<tool_call>\nget_time\n</tool_call>", [("get_time", "{}")]),
        (call("get_weather", ("city", " a\n"), ("days", "3")), [("get_weather", '{"city":" a\\n","days":3}')]),
        (call("get_weather", ("note", "null"), ("city", "null")), [("get_weather", '{"note":null,"city":"null"}')]),
        (call("search", ("queries", '["</arg_value>"]'), ("exact", "false")),
         [("search", '{"queries":["</arg_value>"],"exact":false}')]),
        (call("search", ("limit", "7"), ("since", "2026-11")), [("search", '{"limit":7,"since":"2026-11"}')]),
        ("<tool_call>search\n<arg_key>exact</arg_key>\n</tool_call>", [("search", '{"exact":null}')]),
        ('<tool_call>get_weather\n{"city": "Oslo"}\n</tool_call>', [("get_weather", '{"city": "Oslo"}')]),
        ('<tool_call>{"name": "get_time", "arguments": {"a": 1}}</tool_call>', [("get_time", '{"a": 1}')]),
        ('{"name": "get_time"}', [("get_time", "{}")]),
    ],
)  # fmt: skip
def test_calls_are_read(text: str, expected: list[Any]) -> None:
    assert parse(NAME, text) == expected
    assert parse(NAME, list(text)) == expected


@pytest.mark.requirement("prompt:dialect:no-markup")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Osl", [("get_weather", '{"city":"Osl')]),
        ("<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Osl</arg_", [("get_weather", '{"city":"Osl')]),
        ("<tool_call>get_weather\n<arg_key>ci", [("get_weather", "{")]),
        ("Well.\n<tool_call>get_weather", ["Well."]),
        ("a </tool_call> b", ["a  b"]),
        ("a <arg_key>b</arg_value>", ["a b"]),
    ],
)
def test_markup_of_cut_calls_reaches_nobody(text: str, expected: list[Any]) -> None:
    assert parse(NAME, text) == expected
    assert parse(NAME, list(text)) == expected


@pytest.mark.requirement("prompt:dialect:look-alikes")
def test_what_only_looks_like_a_call_stays_text() -> None:
    for text in ("get_weather\ncity", "arg_key", "<tool", "x < y"):
        assert parse(NAME, text) == [text]
        assert parse(NAME, list(text)) == [text]
    undeclared = call("get_weathers", ("city", "Oslo"))
    bare = "get_weathers\ncity\nOslo\n"
    assert parse(NAME, undeclared) == [bare]
    assert parse(NAME, list(undeclared)) == [bare]
    assert parse(NAME, OSLO, prompt_of(mode="none")) == [OSLO]


@pytest.mark.requirement("prompt:dialect:streamed-arguments", "prompt:dialect:custom-tools")
def test_arguments_leave_while_they_are_generated() -> None:
    parser = named(NAME).parser(prompt_of())
    assert parser.feed("<tool_call>get_weather") == []
    assert parser.feed("\n<") == [ToolCallStart("get_weather"), ToolCallDelta("{")]
    assert parser.feed("arg_key>city</arg_key>\n<arg_value>Os") == [ToolCallDelta('"city":"Os')]
    assert parser.feed("lo\n") == [ToolCallDelta("lo\\n")]
    assert parser.calls == 0
    assert parser.feed("</arg_value>\n</tool_call>") == [ToolCallDelta('"}')]
    assert parser.calls == 1
    assert parser.feed("<tool_call>shell\n<arg_key>input</arg_key>\n<arg_value>") == [ToolCallStart("shell", True)]
    assert parser.feed('echo "a"\n') == [ToolCallDelta('echo "a"\n')]
    assert parser.feed("</arg_value></tool_call>") == []
    assert parser.calls == 2


FRAGMENTS = st.sampled_from(
    [
        OSLO, TIGHT, "<tool_call>", "</tool_call>", "get_weather", "search\n", "shell", "<arg_key>", "</arg_key>",
        "<arg_value>", "</arg_value>", "city", "limit", "input", "\n", " ", "null", '["a', '"]', "{", "}", "5", "word",
        "<", "<arg_", "key>", '{"name": "get_time"}', "é",
    ]
)  # fmt: skip


@pytest.mark.requirement("prompt:dialect:cuts")
@settings(deadline=None, max_examples=200)
@given(fragments=st.lists(FRAGMENTS, max_size=16), data=st.data())
def test_cuts_change_nothing(fragments: list[str], data: st.DataObject) -> None:
    text = "".join(fragments)
    whole = parse(NAME, text)
    assert parse(NAME, cuts(data, text)) == whole
    assert parse(NAME, list(text)) == whole


@pytest.mark.requirement("prompt:dialect:grammar")
@pytest.mark.parametrize("opened", ["", "<tool_call>"])
@pytest.mark.parametrize("parallel", [True, False])
def test_what_the_grammar_lets_through_is_read_as_valid_calls(opened: str, parallel: bool) -> None:
    prompt = prompt_of(parallel=parallel)
    made = grammar(NAME, prompt, opened=opened)
    assert complaints(made) == []
    texts = [text for seed in range(40) if (text := walk(made, seed, endings=["</arg_value>"])) is not None]
    assert len(texts) > 30
    for text in texts:
        items = parse(NAME, opened + text, prompt)
        check_calls(items)
        assert parallel or len(items) == 1
        assert parse(NAME, list(opened + text), prompt) == items
    assert len({item[0] for text in texts for item in parse(NAME, opened + text, prompt)}) == len(TOOLS)


@pytest.mark.requirement("prompt:dialect:grammar")
def test_the_grammar_holds_to_names_types_and_order() -> None:
    made = grammar(NAME, prompt_of(allowed=["get_weather", "search"], mode="required", parallel=False))
    assert accepts(made, OSLO)
    assert accepts(made, TIGHT)
    assert accepts(made, call("get_weather", ("city", "Oslo"), ("days", "3"), ("note", "null")))
    for wrong in (
        call("get_weather"),
        call("get_weather", ("days", "3"), ("city", "Oslo")),
        call("get_weather", ("city", "x" * 21)),
        call("get_weather", ("city", "Oslo"), ("days", '"3"')),
        call("get_time"),
        f"Well. {OSLO}",
        OSLO * 2,
    ):
        assert not accepts(made, wrong), wrong


@pytest.mark.requirement("prompt:dialect:grammar", "prompt:dialect:custom-tools")
def test_a_grammar_of_a_custom_tool_binds_its_bare_input() -> None:
    lark = CustomTool(
        name="sum", format={"type": "grammar", "syntax": "lark", "definition": 'start: /[0-9]+/ "+" /[0-9]+/'}
    )
    regex = CustomTool(name="key", format={"type": "grammar", "syntax": "regex", "definition": "[a-c]{2}"})
    prompt = prompt_of([lark, regex])
    made = grammar(NAME, prompt)
    assert complaints(made) == []
    assert accepts(made, call("sum", ("input", "12+3")).replace("</arg_value>\n", "</arg_value>"))
    assert accepts(made, call("key", ("input", "ab")))
    assert not accepts(made, call("key", ("input", "abc")))
    assert not accepts(made, call("sum", ("input", "12-3")))
    assert parse(NAME, call("sum", ("input", "12+3")), prompt) == [("sum", "12+3")]
    # Nothing has to follow an input that a grammar may have more of.
    assert parse(NAME, "<tool_call>sum\n<arg_key>input</arg_key>\n<arg_value>1+2", prompt) == [("sum", "1+2")]


@pytest.mark.requirement("prompt:dialect:detect")
def test_the_template_is_known_by_its_tags() -> None:
    template = "<tool_call>{name}<arg_key>"
    assert detect(template, {"supports_tools": True}).name == NAME
    assert detect(template, {}).name == "generic"


@pytest.mark.requirement("prompt:calls:linear")
@pytest.mark.parametrize(
    ("start", "part", "end"),
    [
        ("<tool_call>", "\n" * 16, "get_time"),
        ("<tool_call>get_time", "\n" * 16, "</tool_call>"),
        ("<tool_call>get_weather<arg_key>", "x" * 16, "</arg_key>"),
        ("<tool_call>get_weather<arg_key>city</arg_key>", "\n" * 16, "<arg_value>x</arg_value>"),
        ("<tool_call>get_weather<arg_key>city</arg_key><arg_value>", "< " * 8, "</arg_value>"),
        ("", "<tool_call>x", ""),
    ],
)
def test_endless_text_costs_linear_time(start: str, part: str, end: str) -> None:
    parser = named(NAME).parser(prompt_of())
    began = time.process_time()
    parser.feed(start)
    for _ in range(8_000):
        parser.feed(part)
    parser.feed(end)
    parser.finish()
    assert time.process_time() - began < 2
