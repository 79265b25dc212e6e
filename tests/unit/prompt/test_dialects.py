from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.machine.deltas import TextDelta, ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects import CallParser, Piece, detect, named
from antiphon.prompt.prompt import ChatMessage, Prompt, ResolvedChoice, ToolCall
from antiphon.protocol.tools import CustomTool, FunctionTool

WEATHER = FunctionTool(name="get_weather", description="The weather.", parameters={"type": "object", "properties": {}})
TIME = FunctionTool(name="get_time")
SHELL = CustomTool(name="shell", description="Runs a command.")
TOOLS = [WEATHER, TIME, SHELL]
USER = ChatMessage("user", "Hi")


def parse(pieces: Sequence[str], tools: Sequence[Any] = TOOLS, allowed: Sequence[str] = ()) -> list[Any]:
    """Text as strings, calls as (name, arguments), in order."""
    prompt = Prompt([USER], tools=tools, choice=ResolvedChoice("auto", allowed))
    parser = named("hermes").parser(prompt)
    found = [piece for text in pieces for piece in parser.feed(text)] + list(parser.finish())
    return folded(found)


def folded(found: Sequence[Piece]) -> list[Any]:
    result: list[Any] = []
    for piece in found:
        if isinstance(piece, ToolCallStart):
            result.append((piece.name, ""))
        elif isinstance(piece, ToolCallDelta):
            assert piece.text
            result[-1] = (result[-1][0], result[-1][1] + piece.text)
        else:
            assert piece.text
            if result and isinstance(result[-1], str):
                result[-1] += piece.text
            else:
                result.append(piece.text)
    return result


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
OSLO = ("get_weather", '{"city": "Oslo"}')


@pytest.mark.requirement("prompt:hermes:calls")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CALL, [OSLO]),
        (f"Let me see.\n\n{CALL}\n", ["Let me see.", OSLO]),
        (f"{CALL}\n{CALL}", [OSLO, OSLO]),
        (f"{CALL}\nDone.", [OSLO, "Done."]),
        ('<tool_call>{"arguments": {"a": 1}, "name": "get_time"}</tool_call>', [("get_time", '{"a": 1}')]),
        ('<tool_call>{"name": "get_time"}</tool_call>', [("get_time", "{}")]),
        ('<tool_call>{"name": "get_time", "arguments": null}</tool_call>', [("get_time", "{}")]),
        ('<tool_call>{"name": "get_time", "arguments": "{\\"a\\": 1}"}</tool_call>', [("get_time", '{"a": 1}')]),
        ('<tool_call>{"name": "get_time", "parameters": {"a": 1}}</tool_call>', [("get_time", '{"a": 1}')]),
        ('<tool_call>[{"name": "get_time"}, {"name": "get_time"}]</tool_call>', [("get_time", "{}")] * 2),
        ('<tool_call>{"name": "get_time", "arguments": {"s": "}</tool_call>\\""}}</tool_call>',
         [("get_time", '{"s": "}</tool_call>\\""}')]),
        ('<tool_call>{"type": "function", "function": {"name": "get_time", "arguments": {"a": 1}}}</tool_call>',
         [("get_time", '{"a":1}')]),
        ('<tool_call>{"name": "get_time", "arguments": {}}}</tool_call>', [("get_time", "{}")]),
        ('<tool_call>{"name": "get_time", "arguments": {"a": 1</tool_call>b', [("get_time", '{"a": 1'), "b"]),
    ],
)  # fmt: skip
def test_calls_are_read(text: str, expected: list[Any]) -> None:
    assert parse([text]) == expected
    assert parse(list(text)) == expected


@pytest.mark.requirement("prompt:hermes:no-markup")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<tool_call>\nnot JSON\n</tool_call>", ["\nnot JSON\n"]),
        ('<tool_call>{"name": "unknown", "arguments": {}}</tool_call>', ['{"name": "unknown", "arguments": {}}']),
        ("a </tool_call> b", ["a  b"]),
        ("<tool_call>\n</tool_call>", ["\n"]),
        ('<tool_call>{"name": "get_w', []),
        ("<tool_call>", []),
    ],
)
def test_markers_never_reach_the_text(text: str, expected: list[Any]) -> None:
    result = parse([text])
    assert result == expected
    assert parse(list(text)) == result


@pytest.mark.requirement("prompt:hermes:streamed-arguments")
def test_arguments_leave_while_they_are_generated() -> None:
    parser = CallParser({"get_weather": False}, "<tool_call>", "</tool_call>")
    assert parser.feed('<tool_call>\n{"name": "get_weather", "argu') == []
    assert not parser.in_text
    assert parser.feed('ments": {"ci') == [ToolCallStart("get_weather"), ToolCallDelta('{"ci')]
    assert parser.feed('ty": "Os') == [ToolCallDelta('ty": "Os')]
    assert parser.calls == 0
    assert parser.feed('lo"}}') == [ToolCallDelta('lo"}')]
    assert parser.calls == 1
    assert parser.feed("\n</tool_call>") == []
    assert parser.finish() == []


@pytest.mark.requirement("prompt:lenient:calls")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "get_weather", "arguments": {"city": "Oslo"}}', [OSLO]),
        ('Sure:\n{"name": "get_weather", "arguments": {"city": "Oslo"}}', ["Sure:", OSLO]),
        ('```json\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n```', [OSLO]),
        ('```\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n```\nok', [OSLO, "ok"]),
        ('```json\n{"name": "get_time"}\n{"name": "get_time"}\n```', [("get_time", "{}")] * 2),
    ],
)
def test_bare_and_fenced_objects_of_declared_tools_are_calls(text: str, expected: list[Any]) -> None:
    assert parse([text]) == expected
    assert parse(list(text)) == expected


@pytest.mark.requirement("prompt:lenient:text")
@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ada", "age": 36}',
        '{"city": "Oslo"}',
        'An object: {"name": "get_time"} in a line.',
        '```python\nprint({"name": "get_time"})\n```\n',
        '```json\n{"a": [1, 2, {"b": null}]}\n```',
        "```\n```",
        "{not JSON}\n\n  {",
        "{",
        "{}",
        '[1, 2, {"name": "x"}]',
        "  leading and trailing  \n",
        '{"name": "get_time", "age": 3}',
        '{"name" "get_time"}',
        '{"name": "get_ti',
        "a < b and <tool",
    ],
)
def test_everything_else_stays_text_byte_for_byte(text: str) -> None:
    assert parse([text]) == [text]
    assert parse(list(text)) == [text]


@pytest.mark.requirement("prompt:lenient:text")
def test_without_tools_nothing_is_a_call() -> None:
    assert parse([CALL], tools=[]) == [CALL]
    prompt = Prompt([USER], tools=TOOLS, choice=ResolvedChoice("none", ()))
    assert named("hermes").parser(prompt).feed(CALL) == [TextDelta(CALL)]
    bare = '{"name": "get_time"}'
    assert parse([bare], allowed=["get_weather"]) == [bare]


@pytest.mark.requirement("prompt:custom-tools")
def test_a_custom_tool_takes_its_input_as_text() -> None:
    call = {"name": "shell", "arguments": {"input": 'echo "hi"\n'}}
    prompt = Prompt([USER], tools=TOOLS)
    parser = named("hermes").parser(prompt)
    text = f"<tool_call>{json.dumps(call)}</tool_call>"
    pieces = [piece for char in text for piece in parser.feed(char)]
    assert pieces[0] == ToolCallStart("shell", custom=True)
    assert folded(pieces) == [("shell", 'echo "hi"\n')]
    assert len(pieces) == 1 + len('echo "hi"\n')
    _, tools = named("hermes").arrange(prompt)
    assert tools[2]["function"]["parameters"]["required"] == ["input"]


FRAGMENTS = st.sampled_from(
    [
        "<tool_call>", "</tool_call>", CALL, '{"name": "get_weather", "arguments": {"city": "Oslo"}}', "```",
        "```json\n", '{"name": "get_time"', ', "arguments": {', '"a": "\\""', "}", "{", "[", ",", "\n", " ",
        "word", "<tool", "_call>", '"', '{"name": "other"}', '{"function": {"name": "get_time"}}', "\\", "`",
        "``", "json", '{"type":',
    ]
)  # fmt: skip


@pytest.mark.requirement("prompt:hermes:cuts")
@settings(max_examples=200)
@given(fragments=st.lists(FRAGMENTS, max_size=14), data=st.data())
def test_cuts_change_nothing(fragments: list[str], data: st.DataObject) -> None:
    text = "".join(fragments)
    places = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=10)))
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    whole = parse([text])
    assert parse(pieces) == whole
    assert parse(list(text)) == whole
    for part in whole:
        # Around a dropped marker, pieces of another one can come together; that is text of the model's own making.
        if isinstance(part, str) and "<tool" not in fragments:
            assert "<tool_call>" not in part
            assert "</tool_call>" not in part


@pytest.mark.requirement("prompt:lenient:text")
@given(text=st.text(alphabet='ab {}[]"`\n:,json', max_size=60))
def test_text_without_calls_is_kept(text: str) -> None:
    assert "".join(parse(list(text))) == text


@pytest.mark.requirement("prompt:lenient:text")
def test_an_answer_of_endless_beginnings_costs_linear_time() -> None:
    text = '{"arguments":\n' * 10_000
    began = time.process_time()
    assert parse([text]) == [text]
    assert parse([text + CALL]) == [text, OSLO] or parse([text + CALL]) == [text.rstrip(), OSLO]
    assert time.process_time() - began < 20


NEWLINES = ["\n" * 16] * 8_000


@pytest.mark.requirement("prompt:calls:linear")
@pytest.mark.parametrize(
    ("start", "end"),
    [
        ([], ["x"]),
        ([CALL], [CALL]),
        (["<tool_call>"], ['{"name": "get_time"}']),
        (["```json"], ['\n{"name": "get_time"}\n```']),
        (['```\n{"name": "get_time"}'], ["```"]),
        ([], ["</tool_call>"] * 8_000),
        ([], ["<tool_call></tool_call>"] * 8_000),
    ],
    ids=["text", "between calls", "in a block", "in a fence", "before a fence ends", "lone markers", "empty blocks"],
)
def test_endless_whitespace_costs_linear_time(start: list[str], end: list[str]) -> None:
    parser = CallParser({"get_weather": False, "get_time": False}, "<tool_call>", "</tool_call>")
    began = time.process_time()
    for text in (*start, *NEWLINES, *end):
        parser.feed(text)
    parser.finish()
    assert time.process_time() - began < 2


@pytest.mark.requirement("prompt:dialect:detect")
def test_the_template_decides_the_dialect() -> None:
    tools = {"supports_tools": True}
    assert detect("{{ '<tool_call>' }}", tools).name == "hermes"
    assert detect("{{ '<tool_call>\n<function=' }}", tools).name == "qwen3_coder"
    assert detect("{{ '[SOME_CALLS]' }}", tools).name == "generic"
    assert detect("{{ messages }}", {}).name == "generic"
    with pytest.raises(KeyError):
        named("no such dialect")


HISTORY = [
    ChatMessage("system", "Be brief."),
    USER,
    ChatMessage(
        "assistant", "", tool_calls=[ToolCall("c1", "get_time", '{"zone": "UTC"}'), ToolCall("c2", "shell", "ls")]
    ),
    ChatMessage("tool", "12:00", tool_call_id="c1"),
    ChatMessage("tool", "a.txt", tool_call_id="c2"),
]


@pytest.mark.requirement("prompt:generic:messages")
def test_the_generic_dialect_writes_everything_as_text() -> None:
    messages, tools = named("generic").arrange(Prompt(HISTORY, tools=[WEATHER]))
    assert tools == []
    assert [message.role for message in messages] == ["system", "user", "assistant", "user"]
    system = messages[0].text()
    assert system.startswith("Be brief.\n\n")
    assert '"name":"get_weather"' in system
    assert messages[2].tool_calls == ()
    assert parse([messages[2].text()]) == [("get_time", '{"zone": "UTC"}'), ("shell", "ls")]
    assert messages[3].text() == ("<tool_response>\n12:00\n</tool_response>\n<tool_response>\na.txt\n</tool_response>")


@pytest.mark.requirement("prompt:calls:linear")
def test_outputs_that_follow_each_other_are_one_message_in_linear_time() -> None:
    outputs = [ChatMessage("tool", "x" * 1024, tool_call_id="c") for _ in range(20_000)]
    began = time.process_time()
    messages, _ = named("generic").arrange(Prompt([USER, *outputs, USER]))
    assert time.process_time() - began < 2
    assert [message.role for message in messages] == ["user", "user", "user"]
    assert messages[1].text().count("<tool_response>") == 20_000


@pytest.mark.requirement("prompt:generic:messages")
def test_without_a_choice_the_generic_dialect_tells_of_no_tools() -> None:
    messages, _ = named("generic").arrange(Prompt([USER], tools=[WEATHER], choice=ResolvedChoice("none", ())))
    assert messages == [USER]
    messages, _ = named("generic").arrange(Prompt([USER], tools=[WEATHER]))
    assert [message.role for message in messages] == ["system", "user"]
