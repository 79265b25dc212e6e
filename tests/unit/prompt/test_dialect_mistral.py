from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.machine.deltas import ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects import detect, named
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from support.dialects import TOOLS, check_calls, cuts, folded, pieces_of, prompt_of
from support.families import FAMILIES
from support.grammar_walk import accepts, complaints, walk

NEW, IDS, OLD = (FAMILIES[name].text() for name in ("mistral", "mistral_ids", "mistral_array"))
TEMPLATES = pytest.mark.parametrize("template", [NEW, IDS, OLD], ids=["new", "ids", "old"])
OSLO = '[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}'
LIST = '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "abcdefgh1"}]'
OSLO_CALL = ("get_weather", '{"city": "Oslo"}')
TIME = ("get_time", "{}")


def read(text: str | Sequence[str], prompt: Prompt | None = None, template: str = NEW) -> list[Any]:
    parts = [text] if isinstance(text, str) else text
    return folded(pieces_of(named("mistral", template), parts, prompt or prompt_of()))


def grammar(template: str, prompt: Prompt, opened: str = "") -> str:
    lark = Lark()
    rule = named("mistral", template).calls(prompt, lark, opened=opened)
    assert rule is not None
    return lark.text(rule)


@TEMPLATES
@pytest.mark.requirement("prompt:dialect:mistral")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OSLO, [OSLO_CALL]),
        (LIST, [OSLO_CALL]),
        ('[TOOL_CALLS] [{"name": "get_time", "arguments": {}}, {"arguments": {}, "name": "get_time"}]\n', [TIME] * 2),
        ("[TOOL_CALLS]get_time[CALL_ID]abcdefgh1[ARGS]{}", [TIME]),
        ("[TOOL_CALLS]get_time[CALL_ID]abcdefgh1[ARGS]{}[TOOL_CALLS]get_time[CALL_ID]abcdefgh2[ARGS]{}", [TIME] * 2),
        (OSLO * 2, [OSLO_CALL] * 2),
        (f"I look.\n{OSLO}", ["I look.", OSLO_CALL]),
        (f"I look.{LIST} Done.", ["I look.", OSLO_CALL, "Done."]),
        (f"{OSLO}\nDone.", [OSLO_CALL, "Done."]),
        ('[TOOL_CALLS]get_weather{"city": "Oslo"}', [OSLO_CALL]),
        ('[TOOL_CALLS] get_weather [ARGS] {"city": "Oslo"}', [OSLO_CALL]),
        ('[TOOL_CALLS]get_weather[ARGS]"{\\"city\\": \\"Oslo\\"}"', [OSLO_CALL]),
        ('[TOOL_CALLS]{"name": "get_time"}', [TIME]),
        ('[{"name": "get_weather", "arguments": {"city": "Oslo"}}]', [OSLO_CALL]),
        ('Sure:\n[\n {"name": "get_time"},\n {"name": "get_time"}\n]\nok', ["Sure:", TIME, TIME, "ok"]),
        ('```json\n[{"name": "get_time"}]\n```', [TIME]),
        ('{"name": "get_weather", "arguments": {"city": "Oslo"}}', [OSLO_CALL]),
        ('[TOOL_CALLS]get_weather[ARGS]{"city": "[TOOL_CALLS]x[ARGS]{}"}',
         [("get_weather", '{"city": "[TOOL_CALLS]x[ARGS]{}"}')]),
        ('[TOOL_CALLS]get_weather[ARGS]{"city": "a\nb",}', [("get_weather", '{"city": "a\\nb"}')]),
    ],
)  # fmt: skip
def test_calls_of_every_form_are_read_whatever_the_template(template: str, text: str, expected: list[Any]) -> None:
    assert read(text, template=template) == expected
    assert read(list(text), template=template) == expected


@pytest.mark.requirement("prompt:dialect:no-markup")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[TOOL_CALLS]", []),
        ("Well. [TOOL_CALLS]get_wea", ["Well."]),
        ("[TOOL_CALLS]get_weather[ARG", []),
        ("[TOOL_CALLS]get_weather[CALL_ID]abc", []),
        ('[TOOL_CALLS]get_weather[ARGS]{"city": "Osl', [("get_weather", '{"city": "Osl')]),
        ('[TOOL_CALLS][{"name": "get_weather", "argu', []),
        ('[TOOL_CALLS][{"name": "get_weather", "arguments": {"days": 1', [("get_weather", '{"days":')]),
        (f"{OSLO}[TOOL_CALLS]get_ti", [OSLO_CALL]),
        ("a [ARGS] b[CALL_ID]", ["a  b"]),
        ('[TOOL_CALLS]other[ARGS]{"a": 1}', ['other{"a": 1}']),
        ('[TOOL_CALLS][{"name": "other"}]', ['[{"name": "other"}]']),
        ("[TOOL_CALLS] is the marker.", [" is the marker."]),
        ("[TOOL_CALLS]get_weather is a tool.", ["get_weather is a tool."]),
        ("[TOOL_CALLS]get_weather[ARGS]Oslo", ["get_weatherOslo"]),
        (OSLO + "get_weather says so", [OSLO_CALL, "get_weather says so"]),
    ],
)  # fmt: skip
def test_markup_reaches_nobody(text: str, expected: list[Any]) -> None:
    assert read(text) == expected
    assert read(list(text)) == expected


@pytest.mark.requirement("prompt:dialect:look-alikes")
@pytest.mark.parametrize(
    "text",
    [
        "[TOOL_CALL] and [TOOLS] and [ARGS",
        "[TOOL",
        "see [1] and [2]\n[3]: x",
        "[1, 2, 3]",
        '[{"name": "Ada"}]',
        "[\n",
        '[{"name": "get_time", "age": 3}]',
        "[]",
        "[[]]",
        '{"name": "Ada"}; {"name": "Bob"}',
        "get_weather[ARGS",
    ],
)
def test_what_only_looks_like_a_call_stays_text(text: str) -> None:
    assert read(text) == [text]
    assert read(list(text)) == [text]


@pytest.mark.requirement("prompt:dialect:look-alikes")
def test_tools_that_may_not_be_called_stay_text() -> None:
    assert read(OSLO, prompt_of(allowed=["get_time"])) == ['get_weather{"city": "Oslo"}']
    assert read(OSLO, prompt_of(mode="none")) == [OSLO]


@pytest.mark.requirement("prompt:dialect:streamed-arguments")
def test_arguments_leave_while_they_are_generated() -> None:
    parser = named("mistral").parser(prompt_of())
    assert parser.feed("[TOOL_CALLS]get_weather[AR") == []
    assert not parser.in_text
    assert parser.feed("GS]") == []
    assert parser.feed('{"ci') == [ToolCallStart("get_weather"), ToolCallDelta('{"ci')]
    assert parser.feed('ty": "Os') == [ToolCallDelta('ty": "Os')]
    assert parser.calls == 0
    assert parser.feed('lo"}[TOOL') == [ToolCallDelta('lo"}')]
    assert parser.calls == 1
    assert parser.feed('_CALLS]get_time[ARGS]{}[TOOL_CALLS]shell[ARGS]{"input": "l') == [
        ToolCallStart("get_time"),
        ToolCallDelta("{}"),
        ToolCallStart("shell", custom=True),
        ToolCallDelta("l"),
    ]
    assert parser.feed('s"}') == [ToolCallDelta("s")]
    assert parser.calls == 3
    assert parser.finish() == []


FRAGMENTS = st.sampled_from(
    [
        OSLO, LIST, "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "get_weather", "get_time", "shell", "other", "abcdefgh1",
        '{"city": "', '"}', '{"input": "\\', "{}", "{", "}", "[", "]", ",", ";", "\n", " ", "[TOOL", "_CALLS]",
        '{"name": "get_time"}', '{"name": "get_time"', "```", "json\n", "word", '"', "null", "é",
    ]
)  # fmt: skip


@pytest.mark.requirement("prompt:dialect:cuts")
@settings(deadline=None, max_examples=200)
@given(fragments=st.lists(FRAGMENTS, max_size=14), data=st.data())
def test_cuts_change_nothing(fragments: list[str], data: st.DataObject) -> None:
    text = "".join(fragments)
    whole = read(text)
    assert read(cuts(data, text)) == whole
    assert read(list(text)) == whole
    for part in whole:
        # Around a dropped marker, pieces of another one can come together; that is text of the model's own making.
        if isinstance(part, str) and "[TOOL" not in fragments:
            assert "[TOOL_CALLS]" not in part


@TEMPLATES
@pytest.mark.requirement("prompt:dialect:grammar")
@pytest.mark.parametrize("opened", ["", "[TOOL_CALLS]"])
@pytest.mark.parametrize("parallel", [True, False])
def test_what_the_grammar_lets_through_is_read_as_valid_calls(template: str, opened: str, parallel: bool) -> None:
    prompt = prompt_of(parallel=parallel)
    made = grammar(template, prompt, opened)
    assert complaints(made) == []
    texts = [text for seed in range(30) if (text := walk(made, seed)) is not None]
    assert len(texts) > 20
    for text in texts:
        items = read(opened + text, prompt, template)
        check_calls(items)
        assert parallel or len(items) == 1
        assert read(list(opened + text), prompt, template) == items
    assert {item[0] for text in texts for item in read(opened + text, prompt)} == {tool.name for tool in TOOLS}


@pytest.mark.requirement("prompt:dialect:grammar")
def test_each_form_is_bound_as_its_template_writes_it() -> None:
    two = prompt_of(allowed=["get_weather", "get_time"])
    identified = '[TOOL_CALLS]get_weather[CALL_ID]abcdefgh1[ARGS]{"city": "Oslo"}'
    for template, right, others in (
        (NEW, OSLO, [identified, LIST]),
        (IDS, identified, [OSLO, LIST]),
        (OLD, LIST, [OSLO, identified]),
    ):
        made = grammar(template, two)
        assert accepts(made, right)
        more = f"{LIST[:-1]}, {LIST[len('[TOOL_CALLS][') :]}" if template == OLD else right * 2
        assert accepts(made, more)
        assert not accepts(grammar(template, prompt_of(parallel=False)), more)
        for wrong in (*others, right.replace("Oslo", "x" * 21), right.replace("city", "town"), f"Well. {right}"):
            assert not accepts(made, wrong), wrong
        assert not accepts(grammar(template, prompt_of(allowed=["get_time"])), right)
    assert named("mistral").calls(prompt_of(mode="none"), Lark()) is None


@pytest.mark.requirement("prompt:dialect:detect")
def test_the_template_is_known_by_its_marker() -> None:
    for template in (NEW, IDS, OLD):
        assert detect(template, {"supports_tools": True}).name == "mistral"


@pytest.mark.requirement("prompt:dialect:mistral")
def test_ids_have_the_form_that_templates_demand() -> None:
    calls = [ToolCall("call_0123456789", "get_time", "{}"), ToolCall("abcDEF123", "shell", "ls")]
    history = [
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", "", tool_calls=calls),
        ChatMessage("tool", "a", tool_call_id="abcDEF123"),
        ChatMessage("tool", "12:00", tool_call_id="call_0123456789"),
    ]
    messages, tools = named("mistral").arrange(Prompt(history, tools=TOOLS))
    ids = [call.id for call in messages[1].tool_calls]
    assert all(len(identifier) == 9 and identifier.isalnum() for identifier in ids)
    assert ids[1] == "abcDEF123"
    assert [(message.tool_call_id, message.content) for message in messages[2:]] == [(ids[0], "12:00"), (ids[1], "a")]
    assert messages == named("mistral").arrange(Prompt(history, tools=TOOLS))[0]
    assert [json.loads(json.dumps(tool))["type"] for tool in tools] == ["function"] * len(TOOLS)


@pytest.mark.requirement("prompt:calls:linear")
@pytest.mark.parametrize(
    ("start", "part", "end"),
    [
        ("[TOOL_CALLS]", "\n" * 16, "get_time[ARGS]{}"),
        ("[TOOL_CALLS]", "[" * 16, "x"),
        ("[TOOL_CALLS]get_time[ARGS]", " " * 16, "{}"),
        ("[TOOL_CALLS]get_time[CALL_ID]", "a" * 16, "[ARGS]{}"),
        (OSLO, "[" * 16, "x"),
        ("", "[TOOL_CALLS]x", ""),
        ("", "\n[", ""),
        ("", '\n[{"name": "get_time"', ""),
        ('{"name": "get_time"};', " " * 16, "x"),
        ('[{"name": "get_time"}', ", " * 8, "]"),
    ],
)
def test_endless_text_costs_linear_time(start: str, part: str, end: str) -> None:
    parser = named("mistral").parser(prompt_of())
    began = time.process_time()
    parser.feed(start)
    for _ in range(8_000):
        parser.feed(part)
    parser.feed(end)
    parser.finish()
    assert time.process_time() - began < 3
