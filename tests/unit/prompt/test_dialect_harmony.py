from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.machine.deltas import ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects import detect, named
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt, ToolCall
from antiphon.protocol.tools import CustomTool
from support.dialects import TOOLS, check_calls, cuts, folded, grammar, prompt_of
from support.grammar_walk import accepts, complaints, walk

NAME = "harmony"
START = "<|start|>assistant"
MARKERS = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
OSLO_CALL = ("get_weather", '{"city": "Oslo"}')


def thinking(text: str) -> str:
    return f"<|channel|>analysis<|message|>{text}<|end|>{START}"


def final(text: str) -> str:
    return f"<|channel|>final<|message|>{text}<|return|>"


def call(name: str, arguments: str) -> str:
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>"


OSLO = call("get_weather", '{"city": "Oslo"}')


class Thought(str):
    """A text that was thought."""

    __slots__ = ()


def answer(texts: Sequence[str] | str, prompt: Prompt | None = None) -> list[Any]:
    """Thinking, texts and calls of an answer that comes in these parts."""
    dialect = named(NAME)
    splitter, parser = dialect.splitter(("<think>", "</think>"), primed=False), dialect.parser(prompt or prompt_of())
    result: list[Any] = []
    pieces: list[Any] = []

    def add(deltas: Sequence[ReasoningDelta | TextDelta]) -> None:
        for delta in deltas:
            assert delta.text
            if isinstance(delta, TextDelta):
                pieces.extend(parser.feed(delta.text))
                continue
            flush()
            if result and isinstance(result[-1], Thought):
                result[-1] = Thought(result[-1] + delta.text)
            else:
                result.append(Thought(delta.text))

    def flush() -> None:
        result.extend(folded(pieces))
        pieces.clear()

    for text in [texts] if isinstance(texts, str) else texts:
        add(splitter.feed(text))
    add(splitter.finish())
    pieces.extend(parser.finish())
    flush()
    return result


@pytest.mark.requirement("prompt:dialect:harmony")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (final("Hello."), ["Hello."]),
        (thinking("Hm, \n well.\n") + final("Hello."), [Thought("Hm, \n well."), "Hello."]),
        (thinking(" \n") + final("Hello."), ["Hello."]),
        (thinking("One.") + thinking("Two.") + final("x"), [Thought("One.\n\nTwo."), "x"]),
        (OSLO, [OSLO_CALL]),
        (thinking("Hm.") + OSLO, [Thought("Hm."), OSLO_CALL]),
        (f"{OSLO}{START}{OSLO}", [OSLO_CALL] * 2),
        (OSLO.replace("<|call|>", "<|end|>") + START + OSLO, [OSLO_CALL] * 2),
        ("<|channel|>commentary<|message|>Let me see.<|end|>" + START + OSLO, ["Let me see.", OSLO_CALL]),
        (f"<|channel|>commentary<|message|>A <|end|>{START}" + final("B"), ["A \n\nB"]),
        (OSLO.removesuffix("<|call|>"), [OSLO_CALL]),
        (f" to=functions.get_weather<|channel|>commentary json<|message|>{OSLO_CALL[1]}<|call|>", [OSLO_CALL]),
        ("<|channel|>commentary to=get_time json<|message|>{}", [("get_time", "{}")]),
        ("<|channel|>commentary to=functions.get_time<|message|><|call|>", [("get_time", "")]),
        (OSLO.replace("commentary", "analysis"), [OSLO_CALL]),
        (f"<|channel|>analysis<|message|>Call it: {OSLO}", [Thought("Call it:"), OSLO_CALL]),
        (call("get_weather", '{"city": "a<|call|>\\"<|end|>"}'), [("get_weather", '{"city": "a<|call|>\\"<|end|>"}')]),
        (thinking("a") + f"<|channel|>analysis<|message|>b<|end|>{OSLO}", [Thought("a\n\nb"), OSLO_CALL]),
        ("Plain text.", ["Plain text."]),
        ("  to be or not", ["  to be or not"]),
        ("to=be", ["to=be"]),
        ("<|channel|>final<|message|>A<|end|>\nB", ["A\n\nB"]),
        (final('{"name": "get_time", "arguments": {}}'), [("get_time", "{}")]),
        (final(""), []),
    ],
)  # fmt: skip
def test_channels_are_told_apart(text: str, expected: list[Any]) -> None:
    assert answer(text) == expected
    assert answer(list(text)) == expected
    assert [type(item) for item in answer(text)] == [type(item) for item in expected]


@pytest.mark.requirement("prompt:dialect:no-markup")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<|channel|>commentary to=functions.get_weath", []),
        ("<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>", [("get_weather", "")]),
        ('<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"ci', [("get_weather", '{"ci')]),
        ("<|channel|>analysis<|message|>Hm", [Thought("Hm")]),
        ("<|channel|>final<|message|>a <|", ["a <|"]),
        ("<|channel|>final<|message|>a<|message|>b<|constrain|>", ["ab"]),
        ("<|end|><|end|>x", ["x"]),
        ("<|channel|>" + "x" * 600, ["x" * 600]),
    ],
)
def test_markup_reaches_nobody(text: str, expected: list[Any]) -> None:
    assert answer(text) == expected
    assert answer(list(text)) == expected


@pytest.mark.requirement("prompt:dialect:look-alikes")
def test_a_message_to_an_undeclared_tool_is_text() -> None:
    assert answer(call("other", '{"a": 1}')) == ['{"a": 1}']
    assert answer(OSLO, prompt_of(mode="none")) == [OSLO_CALL[1]]
    assert answer(thinking("Hm.") + final("x"), prompt_of(mode="none")) == [Thought("Hm."), "x"]
    assert answer(OSLO, prompt_of(allowed=["get_time"])) == [OSLO_CALL[1]]


@pytest.mark.requirement("prompt:dialect:streamed-arguments")
def test_arguments_leave_while_they_are_generated() -> None:
    dialect = named(NAME)
    parser = dialect.parser(prompt_of())
    assert parser.feed("<|channel|>commentary to=functions.get_weather <|constrain|>json<|mess") == []
    assert not parser.in_text
    assert parser.feed('age|>{"ci') == [ToolCallStart("get_weather"), ToolCallDelta('{"ci')]
    assert parser.feed('ty": "Os') == [ToolCallDelta('ty": "Os')]
    assert parser.calls == 0
    assert parser.feed('lo"}') == [ToolCallDelta('lo"}')]
    assert parser.calls == 1
    assert parser.feed("<|call|>") == []
    assert parser.calls == 1


@pytest.mark.requirement("prompt:dialect:harmony")
def test_thinking_leaves_while_it_is_generated() -> None:
    splitter = named(NAME).splitter(("<think>", "</think>"), primed=False)
    assert splitter.feed("<|channel|>analysis<|message|>") == []
    assert splitter.thinking
    assert splitter.feed(" Well") == [ReasoningDelta("Well")]
    assert splitter.feed(" ") == []
    assert splitter.feed("so<|e") == [ReasoningDelta(" so")]
    assert splitter.feed(f"nd|>{START}<|channel|>fin") == []
    assert not splitter.thinking
    assert splitter.feed("al<|message|>") == [TextDelta(f"{START}<|channel|>final<|message|>")]


@pytest.mark.requirement("prompt:dialect:custom-tools")
def test_a_custom_tool_takes_its_input_as_text() -> None:
    lark = CustomTool(name="sum", format={"type": "grammar", "syntax": "lark", "definition": "start: /[0-9]+/"})
    prompt = prompt_of([*TOOLS, lark])
    assert answer(call("shell", '{"input": "echo \\"a\\"\\n"}')) == [("shell", 'echo "a"\n')]
    assert answer("<|channel|>commentary to=functions.shell code<|message|> ls\n<|call|>") == [("shell", " ls\n")]
    assert answer("<|channel|>commentary to=functions.sum code<|message|> {1}<|call|>", prompt) == [("sum", " {1}")]
    parser = named(NAME).parser(prompt)
    assert parser.feed("<|channel|>commentary to=functions.shell<|message|>ec") == [
        ToolCallStart("shell", custom=True),
        ToolCallDelta("ec"),
    ]
    assert parser.calls == 0
    assert parser.feed("ho<|call|>") == [ToolCallDelta("ho")]
    assert parser.calls == 1
    made = grammar(NAME, prompt_of([lark]))
    assert accepts(made, "<|channel|>commentary to=functions.sum code<|message|>12<|call|>")
    assert not accepts(made, "<|channel|>commentary to=functions.sum code<|message|>a<|call|>")
    _, tools = named(NAME).arrange(prompt)
    assert tools[-1]["function"]["parameters"] == {"type": "object", "properties": {}}


FRAGMENTS = st.sampled_from(
    [
        *MARKERS, OSLO, thinking("Hm."), final("x"), START, "analysis", "commentary", "final", " to=functions.get_time",
        "to=", "functions.", "get_weather", " json", '{"city": "', '"}', "{", "}", '"', "\\", "\n", " ", "word", "<",
        "<|", "|>", "é", '{"name": "get_time"}', " to=functions.shell",
    ]
)  # fmt: skip


@pytest.mark.requirement("prompt:dialect:cuts")
@settings(deadline=None, max_examples=200)
@given(fragments=st.lists(FRAGMENTS, max_size=16), data=st.data())
def test_cuts_change_nothing(fragments: list[str], data: st.DataObject) -> None:
    text = "".join(fragments)
    whole = answer(text)
    assert answer(cuts(data, text)) == whole
    assert answer(list(text)) == whole
    for part in whole:
        # Around a dropped marker, pieces of another one can come together; that is text of the model's own making.
        if isinstance(part, str) and not {"<", "<|", "|>"} & set(fragments):
            assert not any(marker in part for marker in MARKERS)


@pytest.mark.requirement("prompt:dialect:grammar")
@pytest.mark.parametrize("opened", ["", "to=functions."])
@pytest.mark.parametrize("parallel", [True, False])
def test_what_the_grammar_lets_through_is_read_as_valid_calls(opened: str, parallel: bool) -> None:
    prompt = prompt_of(parallel=parallel)
    made = grammar(NAME, prompt, opened=opened)
    assert complaints(made) == []
    texts = [text for seed in range(40) if (text := walk(made, seed, endings=['"}'])) is not None]
    assert len(texts) > 30
    for text in texts:
        items = answer(opened + text, prompt)
        check_calls(items)
        assert parallel or len(items) == 1
        assert answer(list(opened + text), prompt) == items


@pytest.mark.requirement("prompt:dialect:grammar")
def test_the_grammar_holds_to_names_types_and_order() -> None:
    made = grammar(NAME, prompt_of(allowed=["get_weather", "get_time"], mode="required", parallel=False))
    assert accepts(made, OSLO)
    assert accepts(made, call("get_time", "{}"))
    for wrong in (
        call("get_weather", "{}"),
        call("search", "{}"),
        final("x"),
        OSLO + START + OSLO,
        thinking("a") + OSLO,
    ):
        assert not accepts(made, wrong), wrong
    lark = Lark()
    thought = named(NAME).thought(lark)
    assert thought is not None
    made = lark.text(f"({thought})? {named(NAME).framed(lark, lark.rule('object', lark.json({'type': 'boolean'})))}")
    assert complaints(made) == []
    assert accepts(made, thinking("a <| b") + "<|channel|>final<|message|>true")
    assert not accepts(made, thinking("a<|message|>b") + "<|channel|>final<|message|>true")
    assert not accepts(made, "true")


@pytest.mark.requirement("prompt:dialect:grammar")
def test_control_tokens_stand_in_the_grammar_as_tokens() -> None:
    lark = Lark({marker: 200 + place for place, marker in enumerate(MARKERS)})
    dialect = named(NAME)
    rule = dialect.calls(prompt_of(parallel=False), lark)
    framed = dialect.framed(lark, '"x"')
    text = lark.text(f"{dialect.thought(lark)}? ({rule} | {framed})")
    assert "<[205]>" in text
    assert framed.endswith('"x" <[206]>')
    rules = [line for line in text.splitlines() if not line.startswith("ANALYSIS")]
    assert not any(marker in line for marker in MARKERS for line in rules)


@pytest.mark.requirement("prompt:dialect:detect", "prompt:dialect:harmony")
def test_the_template_is_known_and_gets_one_call_a_message() -> None:
    assert detect("<|start|> <|channel|>final<|message|>", {}).name == NAME
    calls = [ToolCall("c1", "get_time", "{}"), ToolCall("c2", "get_weather", '{"city": "Oslo"}')]
    messages = [
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", "Let me see.", reasoning="Hm.", tool_calls=calls),
        ChatMessage("tool", "12:00", tool_call_id="c1"),
        ChatMessage("tool", "Rain.", tool_call_id="c2"),
    ]
    arranged, tools = named(NAME).arrange(Prompt(messages, tools=TOOLS))
    assert [message.role for message in arranged] == ["user", "assistant", "tool", "assistant", "tool"]
    assert (arranged[1].content, arranged[1].reasoning) == ("Hm.\n\nLet me see.", "")
    assert [len(message.tool_calls) for message in arranged] == [0, 1, 0, 1, 0]
    assert len(tools) == len(TOOLS)


@pytest.mark.requirement("prompt:calls:linear")
@pytest.mark.parametrize(
    ("start", "part"),
    [
        ("", "\n" * 16),
        ("<|channel|>analysis<|message|>", "\n" * 16),
        ("<|channel|>final<|message|>", "<| " * 8),
        ("<|channel|>commentary to=functions.get_weather<|message|>{", '"\\"" ' * 4),
        ("", "<|channel|>"),
        ("", "<|end|>"),
        ("<|channel|>commentary to=functions.shell<|message|>", " " * 16),
    ],
)
def test_endless_text_costs_linear_time(start: str, part: str) -> None:
    dialect = named(NAME)
    splitter, parser = dialect.splitter(("", ""), primed=False), dialect.parser(prompt_of())
    began = time.process_time()
    for text in (start, *[part] * 8_000):
        for delta in splitter.feed(text):
            if isinstance(delta, TextDelta):
                parser.feed(delta.text)
    assert time.process_time() - began < 2
