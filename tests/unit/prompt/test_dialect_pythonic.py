from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.machine.deltas import ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects import Dialect, detect, named
from antiphon.prompt.dialects.python_rules import python_text
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from antiphon.protocol.tools import FunctionTool
from support.dialects import TOOLS, check_bound, cuts, grammar, parse, prompt_of, read
from support.families import FAMILIES
from support.grammar_walk import accepts, complaints, walk

NAME = "pythonic"
OPEN, CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"
LINES, END_LINES = "<function_calls>", "</function_calls>"
START, END = "<|python_start|>", "<|python_end|>"
OSLO = '[get_weather(city="Oslo")]'
OSLO_CALL = ("get_weather", '{"city": "Oslo"}')
TIME = ("get_time", "{}")
FORMS = ("pythonic", "lfm2", "olmo3")


def form(family: str) -> Dialect:
    """The dialect as the template of this family has it."""
    return named(NAME, FAMILIES[family].text(), {"supports_tools": True, "supports_tool_calls": family != "lfm2"})


@pytest.mark.requirement("prompt:dialect:pythonic")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OSLO, [OSLO_CALL]),
        ("[get_weather(city='Oslo'), get_time()]", [OSLO_CALL, TIME]),
        ('[get_weather( city = "Oslo" ) ; get_time( ) ]\nok', [OSLO_CALL, TIME, "ok"]),
        (f"{OPEN}{OSLO}{CLOSE}", [OSLO_CALL]),
        (f"I look.{OPEN}{OSLO}{CLOSE} Done.", ["I look.", OSLO_CALL, "Done."]),
        (f"{OPEN}get_weather(city='Oslo'){CLOSE}{OPEN}[get_time()]{CLOSE}", [OSLO_CALL, TIME]),
        (f'{LINES}\nget_weather(city="Oslo")\nget_time()\n{END_LINES}', [OSLO_CALL, TIME]),
        (f"{START}{OSLO}{END}", [OSLO_CALL]),
        (f"I look.\n{OSLO}", ["I look.", OSLO_CALL]),
        (f"```python\n{OSLO}\n```", [OSLO_CALL]),
        ("[get_weather(city=Oslo, days=3)]", [("get_weather", '{"city": "Oslo", "days": 3}')]),
        ('[get_weather("Oslo", unit="C")]', [("get_weather", '{"city": "Oslo", "unit": "C"}')]),
        ('[get_weather(city="a\\tb", note=None)]', [("get_weather", '{"city": "a\\tb", "note": null}')]),
        ("[search(queries=['a', \"b\"], exact=True, where={'site': 'x', 'depth': 1.5})]",
         [("search", '{"queries": ["a", "b"], "exact": true, "where": {"site": "x", "depth": 1.5}}')]),
        ("[search(queries=('a',), exact=false)]", [("search", '{"queries": ["a"], "exact": false}')]),
        ("[get_weather(**{'city': 'Oslo'}, days=2)]", [("get_weather", '{"city": "Oslo", "days": 2}')]),
        ("[get_weather(**{}, city='Oslo')]", [OSLO_CALL]),
        ("[get_weather(city='Oslo', city='Rome',)]", [OSLO_CALL]),
        ('[get_weather(city="""a\nb""")]', [("get_weather", '{"city": "a\\nb"}')]),
        ("[functions.get_time()]", [TIME]),
        ('[shell(input="ls \\"x\\"\\n")]', [("shell", 'ls "x"\n')]),
        ("[shell('ls'), shell()]", [("shell", "ls"), ("shell", "")]),
        (f'{OPEN}[{{"name": "get_time", "arguments": {{}}}}]{CLOSE}', [TIME]),
        ('[{"name": "get_time"}, get_time()]', [TIME, TIME]),
        ('{"name": "get_time"}', [TIME]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("family", FORMS)
def test_calls_of_every_frame_are_read_whatever_the_template(family: str, text: str, expected: list[Any]) -> None:
    assert read(form(family), text) == expected
    assert read(form(family), list(text)) == expected


@pytest.mark.requirement("prompt:dialect:no-markup")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OPEN, []),
        (f"Well.{OPEN}[get_wea", ["Well."]),
        (f"{OPEN}[get_weather(", []),
        (f"{OPEN}[get_weather(ci", []),
        (f"{OPEN}[get_weather(city='Os", [("get_weather", '{"city": "Os')]),
        (f"{OPEN}[get_weather(city='Oslo', days=1", [("get_weather", '{"city": "Oslo", "days": ')]),
        (f"{OPEN}[get_weather(city=f(1))]{CLOSE}", [("get_weather", '{"city": "f"'), "(1))]"]),
        (f"{OPEN}[other(a=1)]{CLOSE}", ["[other(a=1)]"]),
        (f"{OPEN} opens.", [" opens."]),
        (f"a{CLOSE}b{END}c{END_LINES}", ["abc"]),
    ],
)
def test_markup_reaches_nobody(text: str, expected: list[Any]) -> None:
    assert parse(NAME, text) == expected
    assert parse(NAME, list(text)) == expected


@pytest.mark.requirement("prompt:dialect:look-alikes")
@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]",
        "[other(a=1)]",
        "[get_weather] and [get_time]",
        "[get_weather(city)](https://example.org)",
        "Call [get_time()] in a line.",
        "get_time()",
        "[get_times()]",
        "[get_weather",
        "[get_weather(",
        "[ ",
        "[x](y)\n[z]: w",
        "```python\nget_time()\n```",
        "<|tool_call",
        "<function>",
    ],
)
def test_what_only_looks_like_a_call_stays_text(text: str) -> None:
    assert parse(NAME, text) == [text]
    assert parse(NAME, list(text)) == [text]
    assert parse(NAME, OSLO, prompt_of(allowed=["get_time"])) == [OSLO]
    assert parse(NAME, OSLO, prompt_of(mode="none")) == [OSLO]


@pytest.mark.requirement("prompt:dialect:streamed-arguments", "prompt:dialect:custom-tools")
def test_arguments_leave_as_json_while_they_are_generated() -> None:
    parser = named(NAME).parser(prompt_of())
    assert parser.feed("[get_weather(city") == []
    assert not parser.in_text
    assert parser.feed("='Os") == [ToolCallStart("get_weather"), ToolCallDelta('{"city": "Os')]
    assert parser.feed('lo "') == [ToolCallDelta('lo \\"')]
    assert parser.feed("', days=1") == [ToolCallDelta('", "days": ')]
    assert parser.feed("2") == []
    assert parser.calls == 0
    assert parser.feed(")") == [ToolCallDelta("12}")]
    assert parser.calls == 1
    assert parser.feed(", shell(input='l") == [ToolCallStart("shell", custom=True), ToolCallDelta("l")]
    assert parser.feed("s')]") == [ToolCallDelta("s")]
    assert parser.calls == 2
    assert parser.finish() == []


FRAGMENTS = st.sampled_from(
    [
        OSLO, OPEN, CLOSE, LINES, END_LINES, START, END, "[", "]", "get_weather(", "get_time(", "shell(", "city=", "**",
        "'Os", "'", '"', "{", "}", ")", "(", ",", ";", " ", "\n", "1", "True", "x", "=", "\\", "```", "python\n",
        '{"name": "get_time"}', "<|tool_call", "_start|>",
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
        if isinstance(part, str) and "<|tool_call" not in fragments:
            assert not any(marker in part for marker in (OPEN, CLOSE, LINES, END_LINES, START, END))


@pytest.mark.requirement("prompt:dialect:grammar")
@pytest.mark.parametrize("family", FORMS)
@pytest.mark.parametrize("parallel", [True, False])
def test_what_the_grammar_lets_through_is_read_as_valid_calls(family: str, parallel: bool) -> None:
    dialect, prompt = form(family), prompt_of(parallel=parallel)
    assert check_bound(dialect, prompt) == {tool.name for tool in TOOLS}
    for opening in dialect.call_openings(prompt):
        check_bound(dialect, prompt, opened=opening, walks=6)
    assert dialect.call_openings(prompt_of(mode="none")) == ([] if family == "pythonic" else ())


@pytest.mark.requirement("prompt:dialect:grammar")
def test_the_grammar_holds_to_frame_names_and_schemas() -> None:
    prompt = prompt_of(allowed=["get_weather", "search"])
    full = 'get_weather(city="Oslo", unit="F", days=3, note=None)'
    found = 'search(queries=["a"], exact=False, where={"site": "x"})'
    for family, before, between, behind in (
        ("pythonic", "[", ", ", "]"),
        ("lfm2", f"{OPEN}[", ", ", f"]{CLOSE}"),
        ("olmo3", f"{LINES}\n", "\n", f"\n{END_LINES}"),
    ):
        made = grammar(form(family), prompt)
        assert accepts(made, before + full + behind)
        assert accepts(made, before + full + between + found + behind)
        assert not accepts(grammar(form(family), prompt_of(parallel=False)), before + full + between + found + behind)
        for wrong in (
            "get_weather()",
            "get_time()",
            'get_weather(unit="F", city="Oslo")',
            'get_weather(city="Oslo", days=10)',
            'get_weather(city="Oslo",days=1)',
            'get_weather(city="Oslo", note=null)',
            'get_weather(city="Oslo", other=1)',
            "search(queries=[], exact=True)",
            'search(queries=["a"], exact=true)',
        ):
            assert not accepts(made, before + wrong + behind), wrong


SCHEMAS: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"a": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
     ["f()", "f(a=[])", "f(a=[True, False])"], ["f(a=[true])", "f(a=[True, True, True])"]),
    ({"a": {"type": "array", "items": {"type": "null"}, "minItems": 2}}, ["f(a=[None, None])"], ["f(a=[None])"]),
    ({"a": {"enum": [True, "x", None, [False]]}}, ["f(a=True)", 'f(a="x")', "f(a=None)", "f(a=[False])"], ["f(a=1)"]),
    ({"a": {"type": ["boolean", "string"], "maxLength": 1}}, ["f(a=False)", 'f(a="x")'], ['f(a="xy")']),
    ({"a": {"anyOf": [{"type": "boolean"}, {"type": "integer"}]}}, ["f(a=True)", "f(a=-7)"], ["f(a=1.5)"]),
    ({"a": {"type": "object", "properties": {"b": {"type": "boolean"}, "c": {"type": "integer"}},
            "additionalProperties": False}},
     ["f(a={})", 'f(a={"b": True})', 'f(a={"c": 1})', 'f(a={"b": False, "c": 1})'], ['f(a={"c": 1, "b": True})']),
    ({"a": {"$ref": "#/$defs/x"}, "b": {"type": "array", "items": {"$ref": "#/$defs/x"}}},
     ['f(a={"y": 1})', 'f(b=[{"y": 1}])'], ["f(a=1)"]),
    ({"max-results": {"type": "integer"}}, ["f(max-results=1)"], ["f(max_results=1)"]),
    ({"a b": {"type": "integer"}}, ['f(**{"a b": 1})', "f(**{})"], ["f(a b=1)"]),
]  # fmt: skip


@pytest.mark.requirement("prompt:dialect:grammar")
@pytest.mark.parametrize(("properties", "right", "wrong"), SCHEMAS, ids=[str(place) for place in range(len(SCHEMAS))])
def test_values_are_written_as_python_writes_them(properties: Any, right: list[str], wrong: list[str]) -> None:
    definition = {"type": "object", "properties": {"y": {"type": "integer"}}, "additionalProperties": False}
    schema = {"type": "object", "properties": properties, "$defs": {"x": definition}, "additionalProperties": False}
    prompt = prompt_of([FunctionTool("f", schema)], parallel=False)
    made = grammar(NAME, prompt)
    assert complaints(made) == []
    for text in right:
        assert accepts(made, f"[{text}]"), text
        (call,) = parse(NAME, f"[{text}]", prompt)
        jsonschema.validate(json.loads(call[1]), schema)
    for text in wrong:
        assert not accepts(made, f"[{text}]"), text
    for seed in range(12):
        text = walk(made, seed)
        if text is not None:
            (call,) = parse(NAME, text, prompt)
            jsonschema.validate(json.loads(call[1]), schema)


@pytest.mark.requirement("prompt:dialect:pythonic")
@given(
    value=st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    )
)
def test_past_arguments_written_as_python_are_the_same_arguments(value: Any) -> None:
    assert eval(python_text(value), {}) == value
    (call,) = parse(NAME, f"[get_time(x={python_text(value)})]")
    assert json.loads(call[1]) == {"x": value}


HISTORY = [
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "Hi"),
    ChatMessage("assistant", "I look.", tool_calls=[
        ToolCall("c1", "search", '{"queries": ["a"], "exact": true, "no te": null}'), ToolCall("c2", "shell", "ls")]),
    ChatMessage("tool", "a.txt", tool_call_id="c2"),
    ChatMessage("tool", "Rain", tool_call_id="c1"),
]  # fmt: skip


@pytest.mark.requirement("prompt:dialect:pythonic")
def test_what_the_template_does_not_show_goes_in_as_text() -> None:
    messages, tools = form("pythonic").arrange(Prompt(HISTORY, tools=TOOLS))
    assert len(tools) == len(TOOLS)
    assert len(messages[2].tool_calls) == 2
    assert [(message.content, message.name) for message in messages[3:]] == [("Rain", "search"), ("a.txt", "shell")]
    messages, tools = form("lfm2").arrange(Prompt(HISTORY, tools=TOOLS))
    assert len(tools) == len(TOOLS)
    assert messages[2].tool_calls == ()
    assert messages[2].content == (
        f'I look.{OPEN}[search(**{{"queries": ["a"], "exact": True, "no te": None}}), shell(input="ls")]{CLOSE}'
    )
    blind = named(NAME, FAMILIES["olmo3"].text(), {})
    messages, tools = blind.arrange(Prompt(HISTORY, tools=TOOLS))
    assert tools == []
    assert '"name":"search"' in messages[0].text()
    assert f'{LINES}\nNAME(PARAMETER="VALUE")\n{END_LINES}' in messages[0].text()


@pytest.mark.requirement("prompt:dialect:detect")
def test_the_template_is_known_by_its_markers_or_its_example() -> None:
    for family in FORMS:
        assert detect(FAMILIES[family].text(), {"supports_tools": True}).name == NAME
    assert detect("List of tools: [", {"supports_tools": True}).name == NAME
    assert detect("<function_calls><invoke name=", {}).name == "generic"


@pytest.mark.requirement("prompt:calls:linear")
@pytest.mark.parametrize(
    ("start", "part", "end"),
    [
        (OPEN, "\n" * 16, OSLO),
        ("", "[get_weather(", ""),
        ("", "\n[get_weather(city=", ""),
        ("[get_weather(", "k" * 16, "=1)"),
        ("[get_weather(city=", "k" * 16, ")"),
        ("[get_weather(city='", "x" * 16, "')"),
        ("[get_weather(city=", "[" * 16, ")"),
        ("[get_time()", ", " * 8, "]"),
        ("[", " " * 16, "get_time()]"),
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
