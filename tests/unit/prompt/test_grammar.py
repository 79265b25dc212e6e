"""The grammar of a whole turn: what it lets a model write, and what it does not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.machine.deltas import TextDelta, ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects import Dialect, named
from antiphon.prompt.dialects.parser import CallParser
from antiphon.prompt.dialects.pieces import Piece, joined
from antiphon.prompt.grammar import (
    CLOSED,
    OPEN,
    OPTIONAL,
    Thinking,
    binds_from_start,
    call_grammar,
    format_schema,
    has_format,
    turn_grammar,
)
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt, ResolvedChoice
from antiphon.protocol.request import TextFormat
from antiphon.protocol.tools import CustomTool, FunctionTool
from support.grammars import accepts, draw, fault

WEATHER = FunctionTool(
    "get_weather",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 8}, "unit": {"enum": ["C", "F"]}},
        "required": ["city"],
    },
)
NOTHING = FunctionTool("noop")
TEXT = CustomTool("say")
REGEX = CustomTool("number", format={"type": "grammar", "syntax": "regex", "definition": "[0-9]{1,4}|a/b"})
SUM = CustomTool(
    "sum", format={"type": "grammar", "syntax": "lark", "definition": 'start: N ("+" N){0,4}\nN: /[0-9]{1,3}/'}
)
TOOLS = (WEATHER, NOTHING, TEXT, REGEX, SUM)
NAMES = tuple(tool.name for tool in TOOLS)
SCHEMA = TextFormat(
    "json_schema", schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
)
MARKERS = ("<think>", "</think>")


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


OSLO = call("get_weather", '{"city": "Oslo", "unit": "C"}')
SUMMED = '<tool_call>\n{"name": "sum"}\n1+22\n</tool_call>'


def prompt(mode: str = "required", allowed: Sequence[str] = NAMES, **fields: Any) -> Prompt:
    return Prompt(messages=[ChatMessage("user", "Hi")], tools=TOOLS, choice=ResolvedChoice(mode, allowed), **fields)


def whole(
    asked: Prompt,
    state: str = CLOSED,
    control: dict[str, int] | None = None,
    dialect: Dialect | None = None,
    room: int | None = None,
) -> str:
    schema = format_schema(asked.format).schema if has_format(asked) and asked.format is not None else None
    made = turn_grammar(asked, dialect or named("hermes"), Thinking(MARKERS, state), control or {}, schema, room)
    assert made is not None
    return made


def allowed(grammar: str, *texts: str) -> list[bool]:
    return [accepts(grammar, text) for text in texts]


@pytest.mark.requirement("constrain:grammar:forced")
@pytest.mark.parametrize("dialect", ["hermes", "generic"])
def test_a_forced_turn_is_calls_and_nothing_else(dialect: str) -> None:
    grammar = whole(prompt(), dialect=named(dialect))
    assert allowed(grammar, OSLO, f"{OSLO}\n{OSLO}", call("noop", "{}"), call("say", '{"input": "x"}')) == [True] * 4
    assert allowed(grammar, "Hello.", f"Sure: {OSLO}", f"{OSLO} done", call("other", "{}"), "", "{}") == [False] * 6
    assert not accepts(grammar, call("get_weather", '{"unit": "C"}'))
    assert not accepts(grammar, call("get_weather", '{"city": "Oslo", "more": 1}'))
    assert allowed(grammar, call("number", '{"input": "12"}'), call("number", '{"input": "a/b"}')) == [True, True]
    assert not accepts(grammar, call("number", '{"input": "x"}'))


@pytest.mark.requirement("constrain:grammar:forced")
def test_a_named_choice_and_a_limit_leave_the_other_tools_out() -> None:
    grammar = whole(prompt(allowed=("noop", "sum")))
    assert allowed(grammar, call("noop", "{}"), SUMMED, OSLO) == [True, True, False]


@pytest.mark.requirement("constrain:grammar:parallel")
def test_one_call_where_calls_may_not_be_parallel_and_an_end_where_they_may() -> None:
    assert allowed(whole(prompt(parallel_tool_calls=False)), OSLO, f"{OSLO}\n{OSLO}") == [True, False]
    assert allowed(whole(prompt()), "\n".join([OSLO] * 8), "\n".join([OSLO] * 9)) == [True, False]


@pytest.mark.requirement("constrain:grammar:forced")
def test_forced_calls_have_an_end_within_little_room() -> None:
    def said(length: int) -> str:
        return call("say", f'{{"input": "{"x" * length}"}}')

    little = whole(prompt(), room=400)
    assert allowed(little, "\n".join([OSLO] * 2), "\n".join([OSLO] * 3)) == [True, False]
    assert allowed(little, said(95 * 3 + 2), said(95 * 3 + 3)) == [True, False]
    alone = whole(prompt(parallel_tool_calls=False), room=400)
    assert allowed(alone, said(220 * 3 + 2), said(220 * 3 + 3)) == [True, False]
    assert allowed(whole(prompt(), room=60), OSLO, f"{OSLO}\n{OSLO}", said(50), said(51)) == [
        True,
        False,
        True,
        False,
    ]
    assert whole(prompt(), room=1024) == whole(prompt())


@pytest.mark.requirement("constrain:grammar:format")
def test_the_object_of_a_format_has_an_end_within_little_room_as_well() -> None:
    named = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    asked = prompt("none", (), format=TextFormat(type="json_schema", name="n", schema=named))

    def said(length: int) -> str:
        return f'{{"name": "{"1" * length}"}}'

    assert allowed(whole(asked, room=400), said(352), said(353)) == [True, False]
    assert allowed(whole(asked), said(353)) == [True]
    assert whole(asked, room=1024) == whole(asked)


@pytest.mark.requirement("constrain:grammar:thinking")
@pytest.mark.parametrize("control", [{}, {"<tool_call>": 258, "</tool_call>": 259}])
def test_thinking_comes_before_a_forced_call_where_the_template_knows_it(control: dict[str, int]) -> None:
    thought = "<think>Is it\n</thin or <tool_call>?</think>\n\n"
    free = {text: number for text, number in control.items() if text in MARKERS}
    assert allowed(whole(prompt(), OPTIONAL, free), OSLO, thought + OSLO, thought) == [True, True, False]
    assert allowed(whole(prompt(), OPEN, free), thought[7:] + OSLO, OSLO) == [True, False]
    assert allowed(whole(prompt(), CLOSED, free), thought + OSLO, OSLO) == [False, True]


@pytest.mark.requirement("constrain:grammar:thinking", "constrain:grammar:control")
def test_markers_that_are_control_tokens_are_written_as_tokens() -> None:
    control = {"<tool_call>": 258, "</tool_call>": 259, "<think>": 260, "</think>": 261}
    for state in (CLOSED, OPTIONAL, OPEN):
        grammar = whole(prompt(), state, control)
        assert fault(grammar) == ""
        assert "<[258]>" in grammar
        assert ("<[261]>" in grammar) is (state != CLOSED)
        assert not accepts(grammar, OSLO)
        assert grammar.startswith("%llguidance {}")


@pytest.mark.requirement("constrain:grammar:control")
def test_a_text_that_looks_like_a_control_token_is_spelled_out() -> None:
    lark = Lark({"<end>": 258})
    assert lark.text(lark.literal("the <end>")).startswith('%llguidance {"no_forcing": true}')
    assert accepts(lark.text(lark.literal("the <end>")), "the <end>")
    assert lark.text(lark.marked("the <end>")) == '%llguidance {}\nstart: "the " <[258]>\n'


@pytest.mark.requirement("constrain:grammar:format")
def test_a_format_is_the_object_and_with_tools_either() -> None:
    only = whole(prompt("none", (), format=SCHEMA))
    assert allowed(only, '{"a": 1}', '{"a": "x"}', "text", OSLO, "") == [True, False, False, False, False]
    either = whole(prompt("auto", format=SCHEMA))
    assert allowed(either, '{"a": 1}', OSLO, "text", f'{{"a": 1}}{OSLO}') == [True, True, False, False]
    thought = whole(prompt("none", (), format=TextFormat("json_object")), OPTIONAL)
    assert allowed(thought, '<think>x</think>{"b": [1, {}]}', '{"b": null}', "[]", "1") == [True, True, False, False]


@pytest.mark.requirement("constrain:grammar:choice-wins")
def test_a_forced_choice_beats_a_format() -> None:
    grammar = whole(prompt(format=SCHEMA))
    assert allowed(grammar, OSLO, '{"a": 1}') == [True, False]


@pytest.mark.requirement("constrain:grammar:forced")
def test_what_binds_from_the_start() -> None:
    assert [binds_from_start(prompt(mode)) for mode in ("auto", "none", "required")] == [False, False, True]
    forms = [None, TextFormat("text"), TextFormat("json_object"), SCHEMA]
    assert [binds_from_start(prompt("auto", format=form)) for form in forms] == [False, False, True, True]
    bare = Thinking(MARKERS, CLOSED)
    assert turn_grammar(Prompt(messages=[]), named("hermes"), bare, {}, None) is None


@pytest.mark.requirement("constrain:grammar:opened")
@pytest.mark.parametrize("dialect", ["hermes", "generic"])
def test_behind_an_opening_calls_go_on(dialect: str) -> None:
    kind = named(dialect)
    assert kind.openings == ("<tool_call>",)
    grammar = call_grammar(prompt("auto"), kind, "<tool_call>", {})
    assert grammar is not None
    assert allowed(grammar, OSLO[11:], f"{OSLO[11:]}\n{OSLO}", OSLO) == [True, True, False]
    assert call_grammar(Prompt(messages=[]), kind, "<tool_call>", {}) is None


@pytest.mark.requirement("constrain:custom:lark")
def test_an_input_with_a_grammar_stands_apart_from_its_object() -> None:
    grammar = whole(prompt())
    assert allowed(grammar, SUMMED, SUMMED.removesuffix("\n</tool_call>"), f"{OSLO}\n{SUMMED}") == [True] * 3
    assert (
        allowed(grammar, SUMMED.replace("+", "-"), f"{SUMMED}\n{OSLO}", call("sum", '{"input": "1+2"}')) == [False] * 3
    )
    only = whole(prompt(allowed=("sum",), parallel_tool_calls=False))
    assert allowed(only, SUMMED, OSLO) == [True, False]


def feed(text: str, cuts: Sequence[int], apart: Sequence[str] = ("sum",)) -> list[Piece]:
    parser = CallParser(
        {tool.name: isinstance(tool, CustomTool) for tool in TOOLS}, "<tool_call>", "</tool_call>", apart
    )
    pieces: list[Piece] = []
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    for begin, end in zip(places, places[1:], strict=False):
        pieces += parser.feed(text[begin:end])
    return joined([*pieces, *parser.finish()])


@pytest.mark.requirement("constrain:custom:lark")
@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (SUMMED, [ToolCallStart("sum", custom=True), ToolCallDelta("1+22")]),
        (SUMMED.removesuffix("\n</tool_call>"), [ToolCallStart("sum", custom=True), ToolCallDelta("1+22")]),
        (
            '<tool_call>\n{"name": "sum"}\n\n a\n</tool_cal \n\n</tool_call>\nDone.',
            [ToolCallStart("sum", custom=True), ToolCallDelta("\n a\n</tool_cal \n"), TextDelta("Done.")],
        ),
        ('<tool_call>\n{"name": "sum"}\n\n</tool_call>', [ToolCallStart("sum", custom=True)]),
        ('<tool_call>{"name": "sum"}</tool_call>', [ToolCallStart("sum", custom=True)]),
        ('<tool_call>{"name": "sum"} 1</tool_call>', [ToolCallStart("sum", custom=True), ToolCallDelta("1")]),
        ('<tool_call>\n{"name": "sum"}\n1\n</tool', [ToolCallStart("sum", custom=True), ToolCallDelta("1\n</tool")]),
        (call("sum", '{"input": "1"}'), [ToolCallStart("sum", custom=True), ToolCallDelta("1")]),
        (call("say", '{"input": "1"}'), [ToolCallStart("say", custom=True), ToolCallDelta("1")]),
        (
            f"{SUMMED}\n{SUMMED}",
            [ToolCallStart("sum", custom=True), ToolCallDelta("1+22")] * 2,
        ),
        ('<tool_call>\n{"nonsense": 1}\n</tool_call>', [TextDelta('\n{"nonsense": 1}\n')]),
    ],
)
@given(cuts=st.lists(st.integers(0, 100), max_size=6))
def test_such_an_input_is_read_back_however_the_text_is_cut(text: str, pieces: list[Piece], cuts: list[int]) -> None:
    assert feed(text, cuts) == pieces


@pytest.mark.requirement("constrain:custom:lark")
def test_past_inputs_stand_as_they_were_written_and_the_model_is_told_how() -> None:
    asked = Prompt(
        messages=[ChatMessage("user", "Hi")],
        tools=(SUM, TEXT),
        choice=ResolvedChoice("auto", ("sum", "say")),
    )
    messages, _ = named("generic").arrange(asked)
    assert '{\\"name\\": \\"sum\\"}' in messages[0].text()
    _, tools = named("hermes").arrange(asked)
    assert tools[0]["function"]["parameters"] == {"type": "object", "properties": {}}
    assert tools[1]["function"]["parameters"]["required"] == ["input"]


@pytest.mark.requirement("constrain:grammar:forced", "constrain:custom:lark")
@pytest.mark.parametrize("dialect", ["hermes", "generic"])
@pytest.mark.parametrize("parallel", [True, False])
def test_what_a_senseless_model_writes_is_read_back_as_valid_calls(dialect: str, parallel: bool) -> None:
    asked = prompt(parallel_tool_calls=parallel)
    grammar, names = whole(asked, dialect=named(dialect)), set[str]()
    for seed in range(60):
        text = draw(grammar, seed)
        if text is None:
            continue
        parser = named(dialect).parser(asked)
        pieces = joined([*parser.feed(text), *parser.finish()])
        starts = [piece for piece in pieces if isinstance(piece, ToolCallStart)]
        assert starts
        assert parallel or len(starts) == 1
        assert not any(isinstance(piece, TextDelta) for piece in pieces)
        names |= {start.name for start in starts}
        for place, piece in enumerate(pieces):
            if isinstance(piece, ToolCallStart) and not piece.custom:
                body = pieces[place + 1]
                assert isinstance(body, ToolCallDelta)
                assert isinstance(json.loads(body.text), dict)
            elif isinstance(piece, ToolCallStart) and piece.name == "sum":
                body = pieces[place + 1]
                assert isinstance(body, ToolCallDelta)
                assert accepts(str(SUM.format["definition"]) if SUM.format else "", body.text)
    assert names == set(NAMES)
