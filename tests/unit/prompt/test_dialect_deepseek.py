from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.machine.deltas import ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects import detect, named
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from support.dialects import TOOLS, check_bound, cuts, grammar, prompt_of, read
from support.families import FAMILIES
from support.grammar_walk import accepts

NEW, R1 = FAMILIES["deepseek"].text(), FAMILIES["deepseek_r1"].text()
TEMPLATES = pytest.mark.parametrize("template", [NEW, R1], ids=["new", "r1"])
OPEN, CLOSE = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
BEGIN, SEPARATOR, END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
OSLO = f'{BEGIN}get_weather{SEPARATOR}{{"city": "Oslo"}}{END}'
CODED = f'{BEGIN}function{SEPARATOR}get_weather\n```json\n{{"city": "Oslo"}}\n```{END}'
OSLO_CALL = ("get_weather", '{"city": "Oslo"}')
TIME = ("get_time", "{}")
DISTILLED = (OPEN + CODED + CLOSE).replace("▁", "_")


def parse(text: str | list[str], prompt: Prompt | None = None, template: str = NEW) -> list[Any]:
    return read(named("deepseek", template), text, prompt)


@TEMPLATES
@pytest.mark.requirement("prompt:dialect:deepseek")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{OPEN}{OSLO}{CLOSE}", [OSLO_CALL]),
        (f"{OPEN}{CODED}{CLOSE}", [OSLO_CALL]),
        (f"{OPEN}{OSLO}{BEGIN}get_time{SEPARATOR}{{}}{END}{CLOSE}", [OSLO_CALL, TIME]),
        (f"{OPEN}{CODED}\n{CODED}{CLOSE}", [OSLO_CALL, OSLO_CALL]),
        (f"I look.\n\n{OPEN}{CODED}{CLOSE}\nDone.", ["I look.", OSLO_CALL, "Done."]),
        (OSLO, [OSLO_CALL]),
        (CODED, [OSLO_CALL]),
        (DISTILLED, [OSLO_CALL]),
        (DISTILLED.replace("_", "\\_").replace("get\\_weather", "get_weather"), [OSLO_CALL]),
        (f"{BEGIN}function{SEPARATOR}get_weather\n```\n{{\n}}\n```\n{END}", [("get_weather", "{\n}")]),
        (f"{BEGIN}function{SEPARATOR}get_time{{}}{END}", [TIME]),
        (f"{BEGIN}get_time{SEPARATOR}{END}{BEGIN}get_time{END}", [TIME, TIME]),
        (f'{OPEN}{{"name": "get_time"}}{CLOSE}', [TIME]),
        ('```json\n{"name": "get_time"}\n```', [TIME]),
    ],
)
def test_calls_of_both_forms_are_read_whatever_the_template(template: str, text: str, expected: list[Any]) -> None:
    assert parse(text, template=template) == expected
    assert parse(list(text), template=template) == expected


@pytest.mark.requirement("prompt:dialect:no-markup")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OPEN, []),
        (f"Well.{OPEN}{BEGIN}func", ["Well."]),
        (f"{BEGIN}function{SEPARATOR}get_weather\n```js", []),
        (f'{BEGIN}function{SEPARATOR}get_weather\n```json\n{{"city": "Osl', [("get_weather", '{"city": "Osl')]),
        (f'{BEGIN}get_weather{SEPARATOR}{{"days": 1{END}{CLOSE}', [("get_weather", '{"days": 1')]),
        (f"{BEGIN}function{SEPARATOR}other\n```json\n{{}}\n```{END}ok", ["functionother\n```json\n{}\n```ok"]),
        (f"{BEGIN} begins.", [" begins."]),
        (f"a{CLOSE}b{SEPARATOR}c{END}", ["abc"]),
    ],
)
def test_markup_reaches_nobody(text: str, expected: list[Any]) -> None:
    assert parse(text) == expected
    assert parse(list(text)) == expected


@pytest.mark.requirement("prompt:dialect:look-alikes")
@pytest.mark.parametrize("text", ["<｜tool▁call", "<｜User｜>", "get_time<|tool", "a <｜ b", "```json\n{}\n```"])
def test_what_only_looks_like_a_call_stays_text(text: str) -> None:
    assert parse(text) == [text]
    assert parse(list(text)) == [text]
    assert parse(OSLO, prompt_of(allowed=["get_time"])) == ['get_weather{"city": "Oslo"}']


@pytest.mark.requirement("prompt:dialect:streamed-arguments", "prompt:dialect:custom-tools")
def test_arguments_leave_while_they_are_generated() -> None:
    parser = named("deepseek").parser(prompt_of())
    assert parser.feed(f"{OPEN}{BEGIN}function{SEPARATOR}get_weather\n```json\n") == []
    assert not parser.in_text
    assert parser.feed('{"city": "Os') == [ToolCallStart("get_weather"), ToolCallDelta('{"city": "Os')]
    assert parser.feed('lo"}') == [ToolCallDelta('lo"}')]
    assert parser.calls == 1
    assert parser.feed(f'\n```{END}\n{BEGIN}shell{SEPARATOR}{{"input": "l') == [
        ToolCallStart("shell", custom=True),
        ToolCallDelta("l"),
    ]
    assert parser.feed(f's"}}{END}{CLOSE}') == [ToolCallDelta("s")]
    assert parser.calls == 2
    assert parser.finish() == []


FRAGMENTS = st.sampled_from(
    [
        OSLO, CODED, DISTILLED, OPEN, CLOSE, BEGIN, SEPARATOR, END, "function", "get_weather", "get_time",
        "\n```json\n", "\n```", "```", '{"city": "', '"}', "{}", "{", "}", "\n", " ", "<｜tool▁call", "s▁begin｜>",
        "word", "<｜", "_",
    ]
)  # fmt: skip


@pytest.mark.requirement("prompt:dialect:cuts")
@settings(deadline=None, max_examples=200)
@given(fragments=st.lists(FRAGMENTS, max_size=14), data=st.data())
def test_cuts_change_nothing(fragments: list[str], data: st.DataObject) -> None:
    text = "".join(fragments)
    whole = parse(text)
    assert parse(cuts(data, text)) == whole
    assert parse(list(text)) == whole
    for part in whole:
        # Around a dropped marker, pieces of another one can come together; that is text of the model's own making.
        if isinstance(part, str) and not {"<｜tool▁call", "<｜"} & set(fragments):
            assert not any(marker in part for marker in (OPEN, CLOSE, BEGIN, SEPARATOR, END))


@TEMPLATES
@pytest.mark.requirement("prompt:dialect:grammar")
@pytest.mark.parametrize("opened", ["", OPEN, BEGIN])
@pytest.mark.parametrize("parallel", [True, False])
def test_what_the_grammar_lets_through_is_read_as_valid_calls(template: str, opened: str, parallel: bool) -> None:
    names = check_bound(named("deepseek", template), prompt_of(parallel=parallel), opened=opened)
    assert names == {tool.name for tool in TOOLS}


@pytest.mark.requirement("prompt:dialect:grammar")
def test_each_form_is_bound_as_its_template_writes_it() -> None:
    prompt = prompt_of(allowed=["get_weather"])
    for template, right, wrong, between in ((NEW, OSLO, CODED, ""), (R1, CODED, OSLO, "\n")):
        made = grammar(named("deepseek", template), prompt)
        single = grammar(named("deepseek", template), prompt_of(parallel=False))
        assert accepts(made, f"{OPEN}{right}{CLOSE}")
        assert accepts(made, f"{OPEN}{right}{between}{right}{CLOSE}")
        assert not accepts(single, f"{OPEN}{right}{between}{right}{CLOSE}")
        for other in (wrong, right.replace("city", "town"), right.replace("get_weather", "get_time"), right + "x"):
            assert not accepts(made, f"{OPEN}{other}{CLOSE}"), other
        assert accepts(grammar(named("deepseek", template), prompt, opened=BEGIN), right.removeprefix(BEGIN))


@pytest.mark.requirement("prompt:dialect:detect")
def test_the_template_is_known_by_its_markers() -> None:
    assert detect(NEW, {}).name == detect(R1, {"supports_tools": True}).name == "deepseek"


HISTORY = [
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "Hi"),
    ChatMessage("assistant", "I look.", tool_calls=[ToolCall("c1", "get_time", "{}"), ToolCall("c2", "shell", "ls")]),
    ChatMessage("tool", "a.txt", tool_call_id="c2"),
    ChatMessage("tool", "12:00", tool_call_id="c1"),
]


@pytest.mark.requirement("prompt:dialect:deepseek")
def test_a_template_that_shows_no_tools_is_given_them_as_text() -> None:
    messages, tools = named("deepseek", NEW).arrange(Prompt(HISTORY, tools=TOOLS))
    assert tools == []
    assert messages[0].text().startswith("Be brief.\n\n")
    assert '"name":"get_weather"' in messages[0].text()
    assert f'{BEGIN}NAME{SEPARATOR}{{"PARAMETER": "VALUE"}}{END}' in messages[0].text()
    assert [call.name for call in messages[2].tool_calls] == ["get_time", "shell"]
    assert [message.content for message in messages[3:]] == ["12:00", "a.txt"]
    assert named("deepseek", NEW).arrange(Prompt(HISTORY))[0][0] == HISTORY[0]


@pytest.mark.requirement("prompt:dialect:deepseek")
def test_past_calls_of_the_older_form_are_text_behind_the_text() -> None:
    dialect = named("deepseek", R1, {"supports_tools": True})
    messages, tools = dialect.arrange(Prompt(HISTORY, tools=TOOLS))
    assert len(tools) == len(TOOLS)
    assert messages[2].tool_calls == ()
    assert messages[2].content == (
        f"I look.{OPEN}{BEGIN}function{SEPARATOR}get_time\n```json\n{{}}\n```{END}\n"
        f'{BEGIN}function{SEPARATOR}shell\n```json\n{{"input": "ls"}}\n```{END}{CLOSE}'
    )
    assert parse(messages[2].text()) == ["I look.", TIME, ("shell", "ls")]


@pytest.mark.requirement("prompt:calls:linear")
@pytest.mark.parametrize(
    ("start", "part", "end"),
    [
        (OPEN, "\n" * 16, OSLO),
        (BEGIN, " " * 16, "x"),
        (f"{BEGIN}function{SEPARATOR}get_time", "\n" * 16, "{}"),
        (OSLO, "`" * 16, "x"),
        ("", BEGIN, ""),
        ("", CODED, ""),
        ("", "<｜tool▁call", ""),
    ],
)
def test_endless_text_costs_linear_time(start: str, part: str, end: str) -> None:
    parser = named("deepseek").parser(prompt_of())
    began = time.process_time()
    parser.feed(start)
    for _ in range(4_000):
        parser.feed(part)
    parser.feed(end)
    parser.finish()
    assert time.process_time() - began < 3
