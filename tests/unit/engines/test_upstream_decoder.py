"""Streams of chat completions in every shape that servers write, and what they decode to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engines.upstream.decoder import ChatDecoder, Reading
from antiphon.errors import EngineError
from antiphon.machine.deltas import (
    Delta,
    ReasoningDelta,
    RefusalDelta,
    Stop,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.protocol.sse import SSEParser

TOOLS = {"get": False, "get_weather": False, "look": False, "patch": True}
READING = Reading(7, TOOLS)
KINDS = {TextDelta: "text", ReasoningDelta: "thinking", RefusalDelta: "refusal"}


def decoded(events: Iterable[Any], reading: Reading = READING, *, end: bool = True) -> list[Delta]:
    """The deltas of events; plain values are JSON, texts stand as they are."""
    decoder = ChatDecoder(reading)
    deltas: list[Delta] = []
    for event in events:
        deltas += decoder.feed(event if isinstance(event, str) else json.dumps(event))
    return deltas + (decoder.end() if end else [])


def joined(deltas: Sequence[Delta]) -> list[Any]:
    """What deltas add up to."""
    found: list[Any] = []
    for delta in deltas:
        if isinstance(delta, ToolCallStart):
            found.append(["custom" if delta.custom else "call", delta.name, ""])
        elif isinstance(delta, ToolCallDelta):
            assert found[-1][0] in ("call", "custom")
            found[-1][2] += delta.text
        elif isinstance(delta, Stop):
            found.append(["stop", delta.reason])
        else:
            kind = KINDS[type(delta)]  # type: ignore[index]
            if not found or found[-1][0] != kind:
                found.append([kind, ""])
            found[-1][1] += delta.text  # type: ignore[union-attr]
    return found


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def piece(index: int | None = None, id: str | None = None, name: Any = None, arguments: Any = None) -> dict[str, Any]:  # noqa: A002
    fields: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
    if index is not None:
        fields["index"] = index
    if id is not None:
        fields["id"] = id
    return fields


def calls(*pieces: dict[str, Any]) -> dict[str, Any]:
    return chunk(tool_calls=list(pieces))


@pytest.mark.requirement("upstream:text", "upstream:thinking")
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([chunk(role="assistant", content=""), chunk(content="Hel"), chunk(content="lo")], [["text", "Hello"]]),
        ([chunk(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])], [["text", "ab"]]),
        ([chunk(content=None), chunk(content="x", made_up={"deep": [1]})], [["text", "x"]]),
        ([{"choices": [{"message": {"role": "assistant", "content": "whole"}}]}], [["text", "whole"]]),
        ([chunk(reasoning_content="\nthink "), chunk(content="\n\nso")], [["thinking", "think "], ["text", "so"]]),
        ([chunk(reasoning="why"), chunk(content="so")], [["thinking", "why"], ["text", "so"]]),
        ([chunk(reasoning="why", reasoning_content="why")], [["thinking", "why"]]),
        (
            [chunk(content="<thi"), chunk(content="nk>a</think"), chunk(content="> b")],
            [["thinking", "a"], ["text", "b"]],
        ),
        (
            [chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}]), chunk(content="b")],
            [["thinking", "a"], ["text", "b"]],
        ),
        ([chunk(content="say <think> aloud")], [["text", "say <think> aloud"]]),
        ([chunk(refusal="I "), chunk(refusal="will not")], [["refusal", "I will not"]]),
        ([{"choices": [{"index": 1, "delta": {"content": "other"}}]}, chunk(content="x")], [["text", "x"]]),
        ([{"type": "ping"}, {"choices": None}, chunk(content="x")], [["text", "x"]]),
    ],
)
def test_text_and_thinking_are_read_wherever_they_stand(events: list[Any], expected: list[Any]):
    assert joined(decoded([*events, chunk("stop"), "[DONE]"])) == [*expected, ["stop", "stop"]]


@pytest.mark.requirement("upstream:thinking")
def test_a_primed_answer_begins_inside_thinking():
    reading = Reading(1, primed=True)
    events = [chunk(content="because"), chunk(content="</think>\n\nyes"), chunk("stop")]
    assert joined(decoded(events, reading)) == [["thinking", "because"], ["text", "yes"], ["stop", "stop"]]


A, B = '{"city":"Bonn"}', '{"q":[1,"}"]}'
SHAPES: dict[str, list[Any]] = {
    "openai": [
        calls(piece(0, "c1", "get_weather", "")),
        calls(piece(0, None, None, A[:5])),
        calls(piece(0, None, None, A[5:])),
        calls(piece(1, "c2", "look", "")),
        calls(piece(1, None, None, B)),
    ],
    "index missing, id once": [
        calls(piece(None, "c1", "get_weather", A[:5])),
        calls(piece(None, None, None, A[5:])),
        calls(piece(None, "c2", "look", B)),
    ],
    "index and id missing": [
        calls(piece(None, None, "get_weather", A[:5])),
        calls(piece(None, None, None, A[5:])),
        calls(piece(None, None, "look", B)),
    ],
    "index 0 for all": [calls(piece(0, "c1", "get_weather", A)), calls(piece(0, "c2", "look", B))],
    "index 0 for all, no ids": [calls(piece(0, None, "get_weather", A)), calls(piece(0, None, "look", B))],
    "id in each piece": [
        calls(piece(0, "c1", "get_weather", A[:5])),
        calls(piece(0, "c1", None, A[5:])),
        calls(piece(1, "c2", "look", B[:3])),
        calls(piece(1, "c2", "", B[3:])),
    ],
    "a new id in each piece": [
        calls(piece(0, "x1", "get_weather", "")),
        calls(piece(0, "x2", None, A)),
        calls(piece(1, "x3", "look", "")),
        calls(piece(1, "x4", None, B)),
    ],
    "name in parts": [
        calls(piece(0, "c1", "get", None)),
        calls(piece(0, None, "_weather", None)),
        calls(piece(0, None, None, A)),
        calls(piece(1, "c2", "lo", "")),
        calls(piece(1, None, "ok", B)),
    ],
    "name whole in each piece": [
        calls(piece(0, "c1", "get_weather", A[:4])),
        calls(piece(0, "c1", "get_weather", A[4:])),
        calls(piece(1, "c2", "look", B[:4])),
        calls(piece(1, "c2", "look", B[4:])),
    ],
    "name grows": [
        calls(piece(0, "c1", "get_w", None)),
        calls(piece(0, "c1", "get_weather", A)),
        calls(piece(1, "c2", "look", B)),
    ],
    "name whole in each piece, no index and no id": [
        calls(piece(None, None, "get_weather", A[:4])),
        calls(piece(None, None, "get_weather", A[4:])),
        calls(piece(None, None, "look", B)),
    ],
    "objects": [calls(piece(0, "c1", "get_weather", {"city": "Bonn"}), piece(1, "c2", "look", {"q": [1, "}"]}))],
    "an empty object first": [
        calls(piece(0, "c1", "get_weather", "{}")),
        calls(piece(0, None, None, A[:5])),
        calls(piece(0, None, None, A[5:])),
        calls(piece(1, "c2", "look", {})),
        calls(piece(1, None, None, B)),
    ],
    "interleaved": [
        calls(piece(0, "c1", "get_weather", ""), piece(1, "c2", "look", "")),
        calls(piece(1, None, None, B[:3])),
        calls(piece(0, None, None, A[:3])),
        calls(piece(1, None, None, B[3:])),
        calls(piece(0, None, None, A[3:])),
    ],
    "one list": [calls(piece(None, None, "get_weather", A), piece(None, None, "look", B))],
    "a whole message": [
        {
            "choices": [
                {
                    "message": {
                        "content": None,
                        "tool_calls": [piece(None, "c1", "get_weather", A), piece(None, "c2", "look", B)],
                    }
                }
            ]
        }
    ],
    "legacy": [
        chunk(function_call={"name": "get_weather", "arguments": A[:6]}),
        chunk(function_call={"arguments": A[6:]}),
        chunk(function_call={"name": "look", "arguments": B}),
    ],
}


@pytest.mark.requirement("upstream:calls")
@pytest.mark.parametrize("shape", SHAPES)
def test_calls_are_read_in_every_shape(shape: str):
    found = joined(decoded([*SHAPES[shape], chunk("tool_calls"), "[DONE]"]))
    assert [entry[:2] for entry in found] == [["call", "get_weather"], ["call", "look"], ["stop", "stop"]]
    assert [json.loads(entry[2]) for entry in found[:2]] == [json.loads(A), json.loads(B)]


@pytest.mark.requirement("upstream:calls:arguments")
@pytest.mark.parametrize("arguments", [None, "", {}, "{}"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_call_without_arguments_has_an_empty_object(arguments: Any, count: int):
    pieces = [piece(number, f"c{number}", "look", arguments) for number in range(count)]
    found = joined(decoded([calls(*pieces), chunk("tool_calls")]))
    assert found == [["call", "look", "{}"]] * count + [["stop", "stop"]]


@pytest.mark.requirement("upstream:calls")
def test_arguments_leave_while_they_come():
    decoder = ChatDecoder(READING)
    assert decoder.feed(json.dumps(calls(piece(0, "c1", "look", "")))) == []
    assert decoder.feed(json.dumps(calls(piece(0, None, None, '{"q":')))) == [
        ToolCallStart("look"),
        ToolCallDelta('{"q":'),
    ]
    assert decoder.feed(json.dumps(calls(piece(0, None, None, "1}")))) == [ToolCallDelta("1}")]


@pytest.mark.requirement("upstream:calls:order")
def test_what_comes_beside_a_call_waits_until_its_arguments_are_complete():
    decoder = ChatDecoder(READING)
    decoder.feed(json.dumps(calls(piece(0, "c1", "look", '{"q":'))))
    assert decoder.feed(json.dumps(chunk(content="beside"))) == []
    assert decoder.feed(json.dumps(calls(piece(1, "c2", "get", '{"a":1')))) == []
    found = decoder.feed(json.dumps(calls(piece(0, None, None, "1}"))))
    assert found == [ToolCallDelta("1}"), TextDelta("beside"), ToolCallStart("get"), ToolCallDelta('{"a":1')]
    assert decoder.feed(json.dumps(calls(piece(1, None, None, "}")))) == [ToolCallDelta("}")]


@pytest.mark.requirement("upstream:calls:order")
def test_blank_text_beside_calls_is_none():
    events = [chunk(content="\n\n"), calls(piece(0, "c", "look", "{}")), chunk(content="\n"), chunk("tool_calls")]
    assert joined(decoded(events)) == [["call", "look", "{}"], ["stop", "stop"]]
    assert joined(decoded([chunk(content="\n"), chunk("stop")])) == [["text", "\n"], ["stop", "stop"]]


@pytest.mark.requirement("upstream:calls:one")
def test_only_the_first_call_is_kept_where_calls_may_not_be_parallel():
    reading = Reading(1, TOOLS, one_call=True)
    assert joined(decoded([*SHAPES["interleaved"], chunk("tool_calls")], reading)) == [
        ["call", "get_weather", A],
        ["stop", "stop"],
    ]


@pytest.mark.requirement("upstream:custom")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([r'{"inp', r'ut":"a\n', r'\"b\""}'], 'a\n"b"'),
        ([{"input": "as an object"}], "as an object"),
        (["*** Begin", " Patch"], "*** Begin Patch"),
        ([None], ""),
    ],
)
def test_a_custom_tool_is_called_with_its_text(arguments: list[Any], expected: str):
    events = [calls(piece(0, "c", "patch", part)) for part in arguments]
    assert joined(decoded([*events, chunk("tool_calls")])) == [["custom", "patch", expected], ["stop", "stop"]]


@pytest.mark.requirement("upstream:custom")
@pytest.mark.parametrize("text", ["*** Begin Patch", '{"input": 1}', "{}", "", "[]"])
def test_a_call_of_a_custom_tool_as_openai_writes_it_is_its_text(text: str):
    def custom(**fields: Any) -> dict[str, Any]:
        return calls({"index": 0, "type": "custom", "custom": fields})

    streamed = [
        custom(name="patch", input=""),
        *(custom(input=letter) for letter in text),
        calls(piece(1, "d", "look", B)),
    ]
    whole = [
        calls({"id": "c", "type": "custom", "custom": {"name": "patch", "input": text}}, piece(None, "d", "look", B))
    ]
    for events in (streamed, whole):
        found = joined(decoded([*events, chunk("tool_calls")]))
        assert found == [["custom", "patch", text], ["call", "look", B], ["stop", "stop"]]


@pytest.mark.requirement("upstream:custom")
@pytest.mark.parametrize("arguments", ['{"text":"x"}', '{"input":"x', '{"input" "x"}'])
def test_an_input_that_cannot_be_read_is_a_failure(arguments: str):
    with pytest.raises(EngineError) as caught:
        decoded([calls(piece(0, "c", "patch", arguments)), chunk("tool_calls")])
    assert caught.value.code == "invalid_tool_call"


@pytest.mark.requirement("upstream:request:form")
@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (['{"name":"get","argu', 'ments":{"a": 1}}'], [["call", "get", '{"a": 1}']]),
        (['<think>so</think>{"name":"get"}'], [["thinking", "so"], ["call", "get", "{}"]]),
        ([r'{"name":"patch","arguments":{"input":"a\n"}}'], [["custom", "patch", "a\n"]]),
        (["I will not."], [["text", "I will not."]]),
        ([], []),
    ],
)
def test_a_call_that_is_a_format_is_read_as_a_call(texts: list[str], expected: list[Any]):
    events = [*(chunk(content=text) for text in texts), chunk("stop"), "[DONE]"]
    assert joined(decoded(events, Reading(1, TOOLS, form=True))) == [*expected, ["stop", "stop"]]


@pytest.mark.requirement("upstream:end")
@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "stop"),
        ("tool_calls", "stop"),
        ("function_call", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
    ],
)
@pytest.mark.parametrize("done", [True, False])
def test_the_finish_reason_says_how_a_turn_ended(finish: str, reason: str, done: bool):
    events = [chunk(content="x"), chunk(finish), *(["[DONE]"] if done else [])]
    assert joined(decoded(events)) == [["text", "x"], ["stop", reason]]


@pytest.mark.requirement("upstream:end")
def test_a_call_that_was_cut_stays_as_it_is():
    events = [calls(piece(0, "c", "look", '{"q":')), calls(piece(1, "d", "look", "")), chunk("length")]
    assert joined(decoded(events)) == [["call", "look", '{"q":'], ["call", "look", ""], ["stop", "length"]]


@pytest.mark.requirement("upstream:end")
def test_a_stream_without_a_finish_reason_ends_by_its_last_event_only():
    assert joined(decoded([chunk(content="x"), "[DONE]"])) == [["text", "x"], ["stop", "stop"]]
    with pytest.raises(EngineError, match="in the middle") as caught:
        decoded([chunk(content="x")])
    assert caught.value.code == "upstream_lost"


@pytest.mark.requirement("upstream:usage")
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (
            [
                {
                    "choices": [],
                    "usage": {
                        "prompt_tokens": 40,
                        "completion_tokens": 9,
                        "prompt_tokens_details": {"cached_tokens": 32},
                        "completion_tokens_details": {"reasoning_tokens": 3},
                    },
                }
            ],
            TokenUsage(40, 9, 32, 3),
        ),
        (
            [
                {**chunk(content="x"), "usage": {"prompt_tokens": 5, "completion_tokens": 1}},
                {**chunk(content="y"), "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
                {"choices": [], "usage": None},
            ],
            TokenUsage(5, 2),
        ),
        ([{"choices": [], "timings": {"cache_n": 30, "prompt_n": 4, "predicted_n": 6}}], TokenUsage(34, 6, 30)),
        ([{"usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_cache_hit_tokens": 8}}], TokenUsage(9, 4, 8)),
        ([{"usage": {"prompt_tokens": 9, "completion_tokens": 4, "reasoning_tokens": 99}}], TokenUsage(9, 4, 0, 4)),
    ],
)
def test_usage_is_what_the_upstream_says(events: list[Any], expected: TokenUsage):
    stop = decoded([chunk("stop"), *events, "[DONE]"])[-1]
    assert isinstance(stop, Stop)
    assert stop.usage == expected


@pytest.mark.requirement("upstream:usage")
def test_usage_that_is_not_told_is_estimated():
    stop = decoded([chunk(reasoning="a"), chunk(content="x"), chunk(content="y" * 40), chunk("stop")])[-1]
    assert isinstance(stop, Stop)
    assert stop.usage == TokenUsage(7, 12, 0, 1)


@pytest.mark.requirement("upstream:logprobs")
def test_log_probabilities_go_with_their_text():
    choice = {
        "index": 0,
        "delta": {"content": "é"},
        "logprobs": {
            "content": [
                {"token": "é", "logprob": -0.5, "top_logprobs": [{"token": "e", "logprob": -1, "bytes": [101]}]}
            ]
        },
    }
    deltas = decoded([{"choices": [choice]}, chunk("stop")], Reading(1, logprobs=True))
    assert isinstance(deltas[0], TextDelta)
    assert deltas[0].logprobs is not None
    entry = deltas[0].logprobs[0]
    assert (entry.token, entry.bytes, entry.logprob) == ("é", [195, 169], -0.5)
    assert [(top.token, top.bytes) for top in entry.top_logprobs] == [("e", [101])]


@pytest.mark.requirement("upstream:error", "upstream:words")
@pytest.mark.parametrize(
    ("event", "data", "code", "words"),
    [
        (
            "message",
            '{"error":{"message":"KV cache is full","type":"server_error"}}',
            "upstream_error",
            "KV cache is full",
        ),
        ("message", '{"error":"plain words"}', "upstream_error", "plain words"),
        ("message", '{"object":"error","message":"bad thing","code":500}', "upstream_error", "bad thing"),
        ("error", '{"message":"named","code":"rate_limit_exceeded"}', "rate_limit_exceeded", "named"),
        ("message", '{"error":{"message":"of its own","code":"server_error"}}', "server_error", "of its own"),
        ("message", '{"error":{"message":"of its own","code":"resume_diverged"}}', "upstream_error", "of its own"),
        ("error", "no json at all", "upstream_error", "no json at all"),
        ("error", "{}", "upstream_error", "does not say why"),
        (
            "message",
            '{"error":{"message":"at http://10.0.0.7:8000/v1 in /srv/llm/a.py, 10.0.0.7:80 0x7f00aa11 h-1:90\\nmore"}}',
            "upstream_error",
            "at … in … … … …",
        ),
        (
            "message",
            '{"error":{"message":"Incorrect API key provided: sk-abcdef123456"}}',
            "upstream_error",
            "provided: …",
        ),
        ("message", "{", "upstream_invalid", "no part of a chat completion"),
        ("message", "[]", "upstream_invalid", "no part of a chat completion"),
        ("message", '{"choices":[{"finish_reason":"error"}]}', "upstream_error", "'error'"),
        (
            "message",
            '{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{}"}}]}}]}',
            "invalid_tool_call",
            "names no",
        ),
    ],
)
def test_an_error_in_the_stream_is_one(event: str, data: str, code: str, words: str):
    decoder = ChatDecoder(READING)
    decoder.feed(json.dumps(chunk(content="x")))
    with pytest.raises(EngineError) as caught:
        decoder.feed(data, event)
        decoder.feed("[DONE]")
    assert caught.value.code == code
    assert words in caught.value.message
    assert len(caught.value.message) < 300
    for hidden in ("10.0.0.7", "/srv", "h-1", "0x7f", "sk-", "more"):
        assert hidden not in caught.value.message


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="<"), min_size=1, max_size=12).filter(str.strip)
ARGUMENTS = st.dictionaries(
    st.sampled_from("abc"), st.integers() | TEXTS | st.lists(st.booleans(), max_size=2), max_size=3
)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """The events of a turn in some shape, and what they add up to."""
    events: list[Any] = []
    expected: list[Any] = []

    def cut(text: str) -> list[str]:
        places = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=3)))
        return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]

    if draw(st.booleans()):
        thought = draw(TEXTS).strip()
        key = draw(st.sampled_from(["reasoning_content", "reasoning", "tags"]))
        parts = cut(f"<think>{thought}</think>" if key == "tags" else thought)
        events += [chunk(**{"content" if key == "tags" else key: part}) for part in parts]
        expected.append(["thinking", thought])
    if draw(st.booleans()):
        said = draw(TEXTS).strip()
        events += [chunk(content=part) for part in cut(said)]
        expected.append(["text", said])
    made = [
        (draw(st.sampled_from(["get", "get_weather", "look"])), json.dumps(draw(ARGUMENTS)))
        for _ in range(draw(st.integers(0, 3)))
    ]
    indexed, repeated = draw(st.booleans()), draw(st.booleans())
    queues: list[list[dict[str, Any]]] = []
    for number, (name, arguments) in enumerate(made):
        index = number if indexed else None
        parts = cut(arguments)
        queue = [calls(piece(index, f"c{number}", name, parts[0]))]
        queue += [
            calls(piece(index, f"c{number}" if repeated else None, name if repeated else None, p)) for p in parts[1:]
        ]
        queues.append(queue)
        expected.append(["call", name, arguments])
    if indexed and draw(st.booleans()):
        events += [queue.pop(0) for queue in queues]
        while any(queues):
            events.append(draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    else:
        events += [event for queue in queues for event in queue]
    events += [chunk("tool_calls" if made else "stop"), "[DONE]"]
    return events, [*expected, ["stop", "stop"]]


@pytest.mark.requirement("upstream:cuts")
@settings(max_examples=150, deadline=None)
@given(programs(), st.data())
def test_any_cut_of_the_bytes_gives_the_same(program: tuple[list[Any], list[Any]], data: st.DataObject):
    events, expected = program
    frames = [f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode() for event in events]
    stream = b": comment\n\n" + b"".join(frames)
    places = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=12)))
    parser, decoder = SSEParser(), ChatDecoder(READING)
    deltas: list[Delta] = []
    for start, stop in zip([0, *places], [*places, len(stream)], strict=True):
        for event in parser.feed(stream[start:stop]):
            deltas += decoder.feed(event.data, event.event)
    deltas += decoder.end()
    assert joined(deltas) == expected
    assert joined(decoded(events)) == expected


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(max_size=6)
    | st.sampled_from(["{}", "[", "stop"])
)
NAMES = (
    "choices delta message content reasoning reasoning_content refusal tool_calls function_call function name "
    "arguments index id finish_reason logprobs token logprob top_logprobs bytes usage prompt_tokens "
    "completion_tokens text type prompt_tokens_details cached_tokens timings cache_n prompt_n predicted_n error "
    "object code thinking"
).split()
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
)
PIECES = st.dictionaries(st.sampled_from(NAMES), ANYTHING, max_size=4)
CHUNKS = st.one_of(
    ANYTHING,
    st.builds(
        lambda piece, more: {"choices": [{"delta": piece}], **more}, PIECES, PIECES.filter(lambda p: "choices" not in p)
    ),
    st.builds(lambda piece: {"choices": [{"delta": {"tool_calls": [piece]}}]}, PIECES),
    st.builds(
        lambda name, args: {"choices": [{"delta": {"function_call": {"name": name, "arguments": args}}}]},
        st.none() | st.sampled_from(list(TOOLS)),
        ANYTHING,
    ),
)


@pytest.mark.requirement("upstream:error")
@settings(max_examples=40, deadline=None)
@given(st.lists(CHUNKS, max_size=5))
def test_whatever_comes_is_deltas_or_an_error(events: list[Any]):
    try:
        deltas = decoded([*events, "[DONE]"], Reading(3, TOOLS, logprobs=True))
    except EngineError as error:
        assert len(error.message) < 400
    else:
        assert isinstance(deltas[-1], Stop)
        assert all(not isinstance(delta, Stop) for delta in deltas[:-1])


@pytest.mark.requirement("upstream:error")
@pytest.mark.parametrize("code", [[], {}, [["a"]], 7, None, True])
def test_a_code_of_any_kind_is_an_error_as_well(code: Any):
    with pytest.raises(EngineError) as caught:
        decoded([{"error": {"message": "Out of memory", "code": code, "type": code}}])
    assert (caught.value.code, caught.value.message) == ("upstream_error", "The upstream failed: Out of memory")


@pytest.mark.requirement("upstream:error")
@pytest.mark.parametrize("field", ["content", "reasoning", "arguments"])
def test_what_is_nested_deeply_breaks_nothing(field: str):
    deep = '{"a":' * 700 + "1" + "}" * 700 if field == "arguments" else "[" * 700 + "]" * 700
    piece = (
        f'{{"function_call":{{"name":"get","arguments":{deep}}}}}' if field == "arguments" else f'{{"{field}":{deep}}}'
    )
    decoder = ChatDecoder(READING)
    try:
        decoder.feed(f'{{"choices":[{{"delta":{piece}}}]}}')
        assert isinstance(decoder.feed("[DONE]")[-1], Stop)
    except EngineError as error:
        assert error.code == "upstream_invalid"


SAID = st.sampled_from(["a", "dummy", '\u00e9\n"q"', "", "  ", "<think>", "</think>", "\u2028", "[DONE]", "content"])


@st.composite
def chunks_of_one_stream(draw: st.DrawFn) -> list[str]:
    """Chunks as servers write them: mostly the same but for their text, and now and then something else."""
    spaced, escaped = draw(st.booleans()), draw(st.booleans())
    model = draw(st.sampled_from(["dummy", "a", "content"]))
    written: list[str] = []
    for number in range(draw(st.integers(1, 12))):
        text = draw(SAID)
        event: dict[str, Any] = {"model": model, **chunk(content=text)}
        match draw(st.integers(0, 9)):
            case 0:
                event["created"] = number
            case 1:
                event = {**event, **chunk(reasoning_content=text)}
            case 2:
                event["usage"] = {"prompt_tokens": 3, "completion_tokens": number}
            case 3:
                event = {**event, **chunk(content=text, refusal=draw(SAID))}
            case 4:
                event["note"] = {"content": text, "choices": []}
            case _:
                pass
        written.append(json.dumps(event, ensure_ascii=escaped, separators=None if spaced else (",", ":")))
    return written


@pytest.mark.requirement("upstream:text", "upstream:cuts")
@given(chunks_of_one_stream(), st.booleans())
def test_events_that_come_together_decode_to_what_they_do_one_by_one(written: list[str], tags: bool) -> None:
    reading = Reading(7, TOOLS, tags=tags)
    together = ChatDecoder(reading)
    deltas: list[Delta] = []
    events = SSEParser().feed("".join(f"data: {data}\n\n" for data in [*written, "[DONE]"]).encode())
    together.read(events, deltas)
    assert deltas == decoded([*written, "[DONE]"], reading)
