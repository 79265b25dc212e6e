from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.machine.deltas import TextDelta, ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects import detect, named
from antiphon.prompt.prompt import ChatMessage, ToolCall
from support.dialects import TOOLS, check_calls, cuts, grammar, parse, prompt_of
from support.grammar_walk import accepts, complaints, walk

NAME = "qwen3_coder"
OSLO = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
OSLO_CALL = ("get_weather", '{"city":"Oslo"}')


def call(name: str, *parameters: tuple[str, str]) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


@pytest.mark.requirement("prompt:dialect:qwen3-coder", "prompt:tagged:values")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OSLO, [OSLO_CALL]),
        (f"Let me see.\n\n{OSLO}\n", ["Let me see.", OSLO_CALL]),
        (f"{OSLO}\n{OSLO}", [OSLO_CALL] * 2),
        (f"{OSLO}\nDone.", [OSLO_CALL, "Done."]),
        (call("get_time"), [("get_time", "{}")]),
        ("<tool_call>\n<function=get_time></function></tool_call>", [("get_time", "{}")]),
        (call("get_weather", ("city", "a\nb\n"), ("days", "3")), [("get_weather", '{"city":"a\\nb\\n","days":3}')]),
        (call("get_weather", ("city", '"Å"\\\t'), ("note", "null")),
         [("get_weather", '{"city":"\\"Å\\"\\\\\\t","note":null}')]),
        (call("get_weather", ("city", ""), ("note", "nul")), [("get_weather", '{"city":"","note":"nul"}')]),
        (call("get_weather", ("city", "5"), ("days", "None")), [("get_weather", '{"city":"5","days":null}')]),
        (call("get_weather", ("city", "a"), ("city", "b")), [("get_weather", '{"city":"a"}')]),
        (call("get_weather", ("city", "</function> </param>")), [("get_weather", '{"city":"</function> </param>"}')]),
        (call("search", ("queries", '["</parameter>", "b"]'), ("exact", "True")),
         [("search", '{"queries":["</parameter>", "b"],"exact":true}')]),
        (call("search", ("where", '{"site": "x"}'), ("limit", "7")), [("search", '{"where":{"site": "x"},"limit":7}')]),
        (call("search", ("limit", '"7"'), ("exact", "maybe")), [("search", '{"limit":"7","exact":"maybe"}')]),
        (call("search", ("limit", '"a" and "b"')), [("search", '{"limit":"\\"a\\" and \\"b\\""}')]),
        (call("search", ("limit", "[see below]")), [("search", '{"limit":"[see below]"}')]),
        (call("search", ("other", "x"), ("more", "1.50")), [("search", '{"other":"x","more":1.50}')]),
        (call("search", ("queries", "['a']")), [("search", '{"queries":["a"]}')]),
        ("<tool_call><function=get_weather><parameter=city>Oslo</parameter></function></tool_call>", [OSLO_CALL]),
        ("<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>", [OSLO_CALL]),
        ("<function=get_time>\n</function>\n<function=get_time>\n</function>", [("get_time", "{}")] * 2),
        ("<tool_call>\n<function=get_time>\n</function>\n<function=get_time>\n</function>\n</tool_call>",
         [("get_time", "{}")] * 2),
        ('<tool_call>\n<function=get_weather>{"city": "Oslo"}</function></tool_call>',
         [("get_weather", '{"city": "Oslo"}')]),
        ("<tool_call>\n<function=get_time>\n</tool_call>ok", [("get_time", "{}"), "ok"]),
        ("<tool_call>\n<function=get_time>\nwell\n</function>\n</tool_call>", [("get_time", "{}")]),
        (f"<tool_call>\n<function=get_time>\n{OSLO}", [("get_time", "{}"), OSLO_CALL]),
        ('<tool_call>\n{"name": "get_time", "arguments": {"a": 1}}\n</tool_call>', [("get_time", '{"a": 1}')]),
        ('Sure:\n{"name": "get_time"}', ["Sure:", ("get_time", "{}")]),
        (f"```xml\n{OSLO.removeprefix('<tool_call>').removesuffix('</tool_call>').strip()}\n```", [OSLO_CALL]),
    ],
)  # fmt: skip
def test_calls_are_read(text: str, expected: list[Any]) -> None:
    assert parse(NAME, text) == expected
    assert parse(NAME, list(text)) == expected


@pytest.mark.requirement("prompt:dialect:no-markup")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<tool_call>\n<function=get_weather>\n<parameter=city>\nOsl", [("get_weather", '{"city":"Osl')]),
        ("<tool_call>\n<function=get_weather>\n<parameter=city>\nOsl\n</para", [("get_weather", '{"city":"Osl')]),
        ("<tool_call>\n<function=get_weather>\n<param", [("get_weather", "{")]),
        ("Well.\n<tool_call>\n<function=get_wea", ["Well."]),
        ("<tool_call>", []),
        ("<tool_call>\n</tool_call>", ["\n"]),
        ("a </tool_call> b", ["a  b"]),
    ],
)
def test_markup_of_cut_calls_reaches_nobody(text: str, expected: list[Any]) -> None:
    assert parse(NAME, text) == expected
    assert parse(NAME, list(text)) == expected


@pytest.mark.requirement("prompt:dialect:look-alikes")
@pytest.mark.parametrize(
    "text",
    [
        "<function=other>\n<parameter=a>\n1\n</parameter>\n</function>",
        "The tag <function=get_time> in a line.",
        "<function=get_times>\n</function>",
        "<functions>\n<function>",
        "a < b\n<tool",
        "<b>bold</b>\n<i>x</i>",
        "  leading and trailing  \n",
    ],
)
def test_what_only_looks_like_a_call_stays_text(text: str) -> None:
    assert parse(NAME, text) == [text]
    assert parse(NAME, list(text)) == [text]


@pytest.mark.requirement("prompt:dialect:look-alikes")
def test_an_undeclared_name_between_markers_is_text_without_them() -> None:
    text = call("other", ("a", "1"))
    assert parse(NAME, text) == ["\n<function=other>\n<parameter=a>\n1\n</parameter>\n</function>\n"]
    assert parse(NAME, OSLO, prompt_of(allowed=["get_time"])) == [
        OSLO.removeprefix("<tool_call>").removesuffix("</tool_call>")
    ]
    assert parse(NAME, OSLO, prompt_of(mode="none")) == [OSLO]


@pytest.mark.requirement("prompt:dialect:streamed-arguments")
def test_arguments_leave_while_they_are_generated() -> None:
    parser = named(NAME).parser(prompt_of())
    assert parser.feed("<tool_call>\n<function=get_weather") == []
    assert not parser.in_text
    assert parser.feed(">\n<") == [ToolCallStart("get_weather"), ToolCallDelta("{")]
    assert parser.feed("parameter=city>\nOs") == [ToolCallDelta('"city":"Os')]
    assert parser.feed('lo "') == [ToolCallDelta('lo \\"')]
    assert parser.feed("\n") == []
    assert parser.feed("x\n</parameter>\n") == [ToolCallDelta('\\nx"')]
    assert parser.feed("<parameter=days>\n1") == [ToolCallDelta(',"days":')]
    assert parser.feed("2\n</parameter>\n<parameter=where>\n{") == [ToolCallDelta('12,"where":')]
    assert parser.calls == 0
    assert parser.feed('"a": 1}\n</parameter>\n</function>\n</tool_call>') == [ToolCallDelta('{"a": 1}}')]
    assert parser.calls == 1
    assert parser.in_text
    assert parser.finish() == []


@pytest.mark.requirement("prompt:dialect:streamed-arguments")
def test_objects_and_lists_leave_while_they_are_generated() -> None:
    parser = named(NAME).parser(prompt_of())
    parser.feed("<tool_call>\n<function=search>\n<parameter=queries>\n")
    assert parser.feed('["a", "b') == [ToolCallDelta('["a", "b')]
    assert parser.feed('"]\n') == [ToolCallDelta('"]')]


@pytest.mark.requirement("prompt:dialect:custom-tools")
def test_a_custom_tool_takes_its_input_bare() -> None:
    parser = named(NAME).parser(prompt_of())
    assert parser.feed("<tool_call>\n<function=shell>\n<parameter=input>\n") == [ToolCallStart("shell", custom=True)]
    assert parser.feed('echo "hi"') == [ToolCallDelta('echo "hi"')]
    assert parser.feed("\nls\n</parameter>\n</function>\n</tool_call>") == [ToolCallDelta("\nls")]
    assert parser.calls == 1
    assert parse(NAME, call("shell", ("why", "x"), ("input", "ls"))) == [("shell", "ls")]
    assert parse(NAME, '<tool_call><function=shell>{"input": "a\\nb"}</function></tool_call>') == [("shell", "a\nb")]


FRAGMENTS = st.sampled_from(
    [
        OSLO, "<tool_call>", "</tool_call>", "<function=get_weather>", "<function=search>", "<function=shell>",
        "<parameter=city>", "<parameter=queries>", "<parameter=limit>", "<parameter=input>", "</parameter>",
        "</function>", "\n", " ", "null", '["a', '"]', '"', "{", "}", "[", "5", "word", "<", "<param", "eter=",
        "<function=other>", "```", "xml\n", '{"name": "get_time"}', "\\", "é",
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
    for part in whole:
        # Around a dropped marker, pieces of another one can come together; that is text of the model's own making.
        if isinstance(part, str) and "<tool" not in text.replace("<tool_call>", ""):
            assert "<tool_call>" not in part


@pytest.mark.requirement("prompt:dialect:grammar")
@pytest.mark.parametrize("opened", ["", "<tool_call>", "<function="])
@pytest.mark.parametrize("parallel", [True, False])
def test_what_the_grammar_lets_through_is_read_as_valid_calls(opened: str, parallel: bool) -> None:
    prompt = prompt_of(parallel=parallel)
    made = grammar(NAME, prompt, opened=opened)
    assert complaints(made) == []
    texts = [text for seed in range(40) if (text := walk(made, seed, endings=["\n</parameter>\n"])) is not None]
    assert len(texts) > 30
    for text in texts:
        items = parse(NAME, opened + text, prompt)
        check_calls(items)
        assert parallel or len(items) == 1
        assert parse(NAME, list(opened + text), prompt) == items
    assert len({item[0] for text in texts for item in parse(NAME, opened + text, prompt)}) == len(TOOLS)


@pytest.mark.requirement("prompt:dialect:grammar")
def test_the_grammar_holds_to_names_types_and_order() -> None:
    prompt = prompt_of(allowed=["get_weather", "search"], mode="required", parallel=False)
    made = grammar(NAME, prompt)
    full = (("city", "Oslo"), ("unit", "F"), ("days", "3"), ("note", "null"))
    assert accepts(made, call("get_weather", *full))
    assert accepts(made, call("get_weather", full[0], full[3]))
    assert accepts(made, call("get_weather", ("city", "a\nb</param>")))
    assert accepts(made, call("search", ("queries", '["a"]'), ("exact", "true"), ("since", "2026-11")))
    for wrong in (
        call("get_weather"),
        call("get_weather", full[1], full[0]),
        call("get_weather", ("city", "x" * 21)),
        call("get_weather", full[0], ("unit", "K")),
        call("get_weather", full[0], ("days", "10")),
        call("get_weather", full[0], ("other", "1")),
        call("search", ("queries", "[]"), ("exact", "true")),
        call("search", ("queries", '["a"]'), ("exact", "true"), ("since", "2026-1")),
        call("get_time"),
        f"Well. {OSLO}",
        f"{OSLO}\n{OSLO}",
        OSLO.removesuffix("</tool_call>"),
    ):
        assert not accepts(made, wrong), wrong


@pytest.mark.requirement("prompt:dialect:detect")
def test_the_template_is_known_by_its_tags() -> None:
    template = "<tool_call>\\n<function=' + name + '>"
    assert detect(template, {"supports_tools": True}).name == NAME
    assert detect(template, {}).name == "generic"


@pytest.mark.requirement("prompt:dialect:qwen3-coder")
def test_the_template_shows_the_tools() -> None:
    call_message = ChatMessage("assistant", "", tool_calls=[ToolCall("c1", "shell", "ls")])
    prompt = prompt_of()
    messages, tools = named(NAME).arrange(prompt)
    assert messages == list(prompt.messages)
    assert [tool["function"]["name"] for tool in tools] == [tool.name for tool in TOOLS]
    assert named(NAME).arrange(prompt_of(mode="none"))[1] == []
    assert call_message.tool_calls[0].name == "shell"


@pytest.mark.requirement("prompt:calls:linear")
@pytest.mark.parametrize(
    ("start", "part", "end"),
    [
        ("<tool_call>", "\n" * 16, "<function=get_time>"),
        ("<tool_call>\n<function=get_time>", "\n" * 16, "</function>"),
        ("<tool_call>\n<function=get_weather>\n<parameter=city>\n", "\n" * 16, "\n</parameter>"),
        ("<tool_call>\n<function=get_weather>\n<parameter=", "x" * 16, ">"),
        ("<tool_call>\n<function=search>\n<parameter=limit>\n", "[ " * 8, "\n</parameter>"),
        ("<tool_call>\n<function=search>\n<parameter=exact>\n", "t" * 16, "\n</parameter>"),
        ("", "<function=" * 2, ""),
        ("", "\n<", "x"),
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


@pytest.mark.requirement("prompt:tagged:values")
@settings(deadline=None)
@given(value=st.text(max_size=40).filter(lambda text: "</parameter>" not in text))
def test_any_text_without_the_tag_is_a_value(value: str) -> None:
    items = parse(NAME, call("get_weather", ("city", value)))
    assert [json.loads(arguments) for _, arguments in items] == [{"city": value}]
    assert TextDelta not in {type(item) for item in items}
