"""Chat and text choices: what a stream tells is the whole answer, however the deltas come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import EngineError
from antiphon.machine.chat import ChatChoices
from antiphon.machine.choices import Choices
from antiphon.machine.deltas import (
    Delta,
    RawItemDelta,
    ReasoningDelta,
    RefusalDelta,
    Stop,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.machine.text import TextChoices
from antiphon.protocol.chat_answer import AnswerHead
from antiphon.protocol.parts import Logprob, TopLogprob
from support.chatting import gathered

pytestmark = pytest.mark.requirement("chat:choices")
requirement = pytest.mark.requirement

HEAD = AnswerHead(id="chatcmpl-1", object="chat.completion.chunk", created=7, model="m", system_fingerprint="fp_1")
USAGE = TokenUsage(input_tokens=5, output_tokens=3, cached_tokens=2, reasoning_tokens=1)
START = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m","system_fingerprint":"fp_1",'
)


def chat(deltas: Sequence[Delta], reason: str = "stop", **options: Any) -> ChatChoices:
    choices = ChatChoices(HEAD, [5], **{"stream": True, **options})
    assert choices.feed(0, [*deltas, Stop(reason, USAGE)])
    choices.finish()
    return choices


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def merged(frames: Sequence[bytes], index: int = 0) -> dict[str, Any]:
    return gathered([msgspec.json.decode(frame.removeprefix(b"data: ")) for frame in frames], index)


def test_the_bytes_of_a_stream_are_these():
    deltas = [ReasoningDelta("hm"), TextDelta("Hi"), ToolCallStart("f"), ToolCallDelta('{"a":'), ToolCallDelta("1}")]
    choices = chat(deltas, include_usage=True)
    call_id = choices.answer().choices[0].message.tool_calls[0].id  # type: ignore[index]
    choice, end = b'"choices":[{"index":0,"delta":', b',"logprobs":null,"finish_reason":null}],"usage":null}\n\n'
    assert choices.frames == [
        START + choice + b'{"role":"assistant","content":null}' + end,
        START + choice + b'{"reasoning_content":"hm","reasoning":"hm"}' + end,
        START + choice + b'{"content":"Hi"}' + end,
        START
        + choice
        + b'{"tool_calls":[{"index":0,"id":"%s","type":"function","function":{"arguments":"","name":"f"}}]}'
        % call_id.encode()
        + end,
        START + choice + b'{"tool_calls":[{"index":0,"function":{"arguments":"{\\"a\\":"}}]}' + end,
        START + choice + b'{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}' + end,
        START + choice + b'{},"logprobs":null,"finish_reason":"tool_calls"}],"usage":null}\n\n',
        START + b'"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,'
        b'"prompt_tokens_details":{"cached_tokens":2},"completion_tokens_details":{"reasoning_tokens":1}}}\n\n',
    ]


TEXT = st.text(max_size=4)
ENTRY = Logprob("t", [116], -0.5, [TopLogprob("u", [117], -1.0)])
DELTAS = st.lists(
    st.one_of(
        st.builds(TextDelta, TEXT, st.sampled_from([None, [ENTRY], [ENTRY, ENTRY]])),
        st.builds(ReasoningDelta, TEXT),
        st.builds(RefusalDelta, TEXT),
        st.builds(ToolCallStart, st.sampled_from(["f", "g"]), st.booleans()),
        st.builds(ToolCallDelta, TEXT),
        st.just(RawItemDelta({"type": "web_search_call"})),
    ),
    max_size=12,
)


@given(DELTAS, st.sampled_from(["stop", "length", "content_filter"]), st.booleans(), st.booleans(), st.booleans())
def test_the_chunks_are_the_whole_answer(
    deltas: list[Delta], reason: str, logprobs: bool, alias: bool, parallel: bool
) -> None:
    choices = chat(deltas, reason, logprobs=logprobs, alias=alias, parallel_tool_calls=parallel)
    whole = plain(choices.answer().choices[0])
    told = merged(choices.frames)
    assert told["message"] == whole["message"]
    assert told["finish_reason"] == whole["finish_reason"]
    assert told["logprobs"] == (whole["logprobs"] or {"content": []})["content"]


@given(DELTAS, st.lists(st.integers(0, 2), max_size=12))
def test_the_whole_answer_is_the_same_however_many_are_told_at_once(deltas: list[Delta], order: list[int]) -> None:
    """Each of three turns says the same, in any order of their deltas; call ids apart."""
    alone = plain(chat(deltas, stream=False).answer().choices[0])
    choices = ChatChoices(HEAD, [5, 5, 5], stream=True)
    rest = {index: [*deltas, Stop("stop", USAGE)] for index in range(3)}
    for index in [*order, *(index for index in rest for _ in range(len(deltas) + 1))]:
        if rest[index]:
            choices.feed(index, [rest[index].pop(0)])
    answer = plain(choices.answer())
    for index, choice in enumerate(answer["choices"]):
        assert merged(choices.frames, index)["message"] == choice["message"]
        assert without_ids(choice) == without_ids({**alone, "index": index})
    assert answer["usage"]["prompt_tokens"] == 5
    assert answer["usage"]["completion_tokens"] == 9


def without_ids(choice: dict[str, Any]) -> dict[str, Any]:
    for call in choice["message"].get("tool_calls", ()):
        call.pop("id", None)
    return choice


@pytest.mark.parametrize(
    ("deltas", "reason", "parallel", "message"),
    [
        ([], "stop", True, {"content": ""}),
        ([], "length", True, {"content": ""}),
        ([ReasoningDelta("hm")], "length", True, {"content": "", "reasoning_content": "hm", "reasoning": "hm"}),
        ([RefusalDelta("No"), RefusalDelta(".")], "stop", True, {"content": None, "refusal": "No."}),
        ([ToolCallStart("f")], "stop", True, {"content": None, "calls": [("f", "{}")]}),
        ([ToolCallStart("f")], "length", True, {"content": None, "calls": [("f", "")]}),
        (
            [ToolCallStart("f"), ToolCallStart("g"), ToolCallDelta("{}")],
            "stop",
            True,
            {"content": None, "calls": [("f", "{}"), ("g", "{}")]},
        ),
        (
            [ToolCallStart("f"), ToolCallStart("g"), ToolCallDelta("[]")],
            "stop",
            False,
            {"content": None, "calls": [("f", "{}")]},
        ),
        ([ToolCallStart("f", namespace="ns")], "stop", True, {"content": None, "calls": [("ns__f", "{}")]}),
    ],
)
def test_what_a_turn_says_stands_in_its_message(
    deltas: list[Delta], reason: str, parallel: bool, message: dict[str, Any]
) -> None:
    choice = plain(chat(deltas, reason, parallel_tool_calls=parallel).answer().choices[0])
    found = choice["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in found.pop("tool_calls", ())]
    assert found == {"role": "assistant", "refusal": None, **{k: v for k, v in message.items() if k != "calls"}}
    assert calls == message.get("calls", [])
    assert choice["finish_reason"] == ("length" if reason == "length" else "tool_calls" if calls else "stop")


def test_a_custom_call_has_its_text_as_input():
    choices = chat([ToolCallStart("note", custom=True), ToolCallDelta("a"), ToolCallDelta("b")])
    (call,) = plain(choices.answer().choices[0])["message"]["tool_calls"]
    assert call == {"id": call["id"], "type": "custom", "custom": {"name": "note", "input": "ab"}}


def text_choices(inputs: Sequence[int] = (5,), **options: Any) -> TextChoices:
    return TextChoices(HEAD, inputs, **{"stream": True, **options})


@requirement("completions:choices")
def test_the_chunks_of_text_are_the_whole_text():
    choices = text_choices([5, 5, 2, 2], turns_a_prompt=2, echoes=["a", "a", "", ""], logprobs=True, include_usage=True)
    entries = [Logprob("x", [120], -1.0, [TopLogprob("y", [121], -2.0)]), Logprob("éz", [0], -0.5, [])]
    for index in range(4):
        assert not choices.feed(
            index, [TextDelta("xéz", entries), ReasoningDelta("never"), TextDelta("w", entries[:1])]
        )
        assert choices.feed(index, [TextDelta(""), Stop("length", USAGE)])
    choices.finish()
    answer = plain(choices.answer())
    chunks = [msgspec.json.decode(frame.removeprefix(b"data: ")) for frame in choices.frames]
    assert chunks.pop()["usage"] == answer["usage"]
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (10, 12)
    for choice in answer["choices"]:
        told = [entry for chunk in chunks for entry in chunk["choices"] if entry["index"] == choice["index"]]
        assert "".join(entry["text"] for entry in told) == choice["text"]
        assert [entry["finish_reason"] for entry in told if entry["finish_reason"]] == [choice["finish_reason"]]
        lists: dict[str, list[Any]] = {}
        for entry in told:
            for name, values in (entry["logprobs"] or {}).items():
                lists[name] = [*lists.get(name, ()), *values]
        assert lists == choice["logprobs"]
    assert [choice["text"] for choice in answer["choices"]] == ["axézw", "axézw", "xézw", "xézw"]
    assert answer["choices"][0]["logprobs"] == {
        "tokens": ["x", "éz", "x"],
        "token_logprobs": [-1.0, -0.5, -1.0],
        "top_logprobs": [{"y": -2.0}, {}, {"y": -2.0}],
        "text_offset": [0, 1, 3],
    }


@pytest.mark.parametrize("choices", [ChatChoices(HEAD, [5, 5], stream=True), text_choices([5, 5])])
@requirement("completions:choices")
def test_an_answer_that_fails_ends_with_its_error_and_counts_what_was_seen(choices: Choices):
    choices.feed(0, [TextDelta("a"), TextDelta("b"), Stop("stop", USAGE)])
    choices.feed(1, [TextDelta("c"), TextDelta("d")])
    choices.fail(EngineError("It died."))
    assert choices.frames[-1] == (
        b'data: {"error":{"message":"It died.","type":"server_error","param":null,"code":"server_error"}}\n\n'
    )
    assert choices.usage.output_tokens == 5
    with pytest.raises(LookupError):
        choices.answer()
