"""Events to chunks, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.client.stream import StreamDecoder
from antiphon.client.types import (
    ArgumentsFragment,
    Chunk,
    ContentChunk,
    ContentPartChunk,
    MetaChunk,
    Problem,
    ProviderBlock,
    StreamCutError,
    SummaryPart,
    ThinkingChunk,
    ToolCallChunk,
    ToolUsage,
    thinking_text,
)
from antiphon.protocol.sse import ServerSentEvent
from support.hosted_streams import SCENES, USAGE, Scene, message

Event = dict[str, Any]


def fed(*events: Event | str | ServerSentEvent, decoder: StreamDecoder | None = None) -> list[Chunk]:
    decoder = decoder or StreamDecoder()
    return [chunk for event in events for chunk in decoder.feed(event)]


def added(index: int = 0, **item: Any) -> Event:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int = 0, **item: Any) -> Event:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def delta(kind: str, text: str, index: int = 0, **more: Any) -> Event:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": text, **more}


def said(text: str, **more: Any) -> Event:
    return {"type": "message", "id": "m", "content": [{"type": "output_text", "text": text}], **more}


def scene_chunks(name: str) -> list[Chunk]:
    return fed(*SCENES[name].events())


def metas(chunks: list[Chunk], field: str) -> list[Any]:
    found = [getattr(chunk, field) for chunk in chunks if isinstance(chunk, MetaChunk)]
    return [value for value in found if value is not None]


def last(chunks: list[Chunk]) -> MetaChunk:
    terminal = [chunk for chunk in chunks if isinstance(chunk, MetaChunk) and chunk.terminal]
    assert [chunks[-1]] == terminal
    return terminal[0]


@pytest.mark.requirement("driver:S1")
def test_text_comes_as_it_arrives_with_its_phase_where_one_was_announced() -> None:
    assert fed(delta("output_text", "a"), delta("output_text", ""), delta("refusal", "b", 1)) == [
        ContentChunk("a"),
        ContentChunk("b", refusal=True),
    ]
    item = added(2, type="message", id="m", phase="commentary", content=[])
    assert fed(item, delta("output_text", "a", 2)) == [ContentChunk("a", phase="commentary", output_index=2)]


@pytest.mark.requirement("driver:S2")
@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_text.done", "text": "a"},
        {"type": "response.refusal.done", "refusal": "a"},
        {"type": "response.reasoning_text.done", "text": "a"},
        {"type": "response.reasoning.done", "text": "a"},
        {"type": "response.reasoning_summary_text.done", "text": "a"},
    ],
)
def test_the_whole_of_a_text_is_no_chunk(event: Event) -> None:
    assert fed({**event, "output_index": 0}) == []


@pytest.mark.requirement("driver:S3")
def test_thinking_comes_under_each_of_its_names() -> None:
    for name in ("reasoning", "reasoning_text"):
        assert fed(delta(name, "a", item_id="rs")) == [ThinkingChunk("a", "rs", 0)]
    chunks = fed(
        *(
            delta("reasoning_summary_text", text, item_id="rs", summary_index=part)
            for text, part in (("a", 0), ("b", 0), ("c", 1))
        )
    )
    assert chunks == [
        ThinkingChunk("a", "rs", 0, 0),
        ThinkingChunk("b", "rs", 0, 0),
        ThinkingChunk("c", "rs", 0, 1),
    ]
    assert thinking_text(chunks) == "ab\n\nc"


@pytest.mark.requirement("driver:S4")
def test_parts_of_a_summary_are_announced() -> None:
    name, place = "response.reasoning_summary_part", {"item_id": "rs", "output_index": 1, "summary_index": 2}
    part = {"type": "summary_text", "text": "all"}
    begun = {"type": f"{name}.added", **place, "part": {**part, "text": ""}}
    assert metas(fed(begun, {"type": f"{name}.done", **place, "part": part}), "reasoning_summary_part") == [
        SummaryPart("added", "rs", 1, 2),
        SummaryPart("done", "rs", 1, 2, "all"),
    ]


@pytest.mark.requirement("driver:S5")
def test_calls_are_announced_by_who_executes_them() -> None:
    chunks = fed(added(3, type="function_call", id="fc", call_id="c", name="f", arguments=""))
    assert chunks == [ToolCallChunk("c", "f", 3, expects_arg_fragments=True, metadata={"id": "fc"})]
    assert fed(added(type="function_call", id="fc", name="f"))[0] == ToolCallChunk(
        "fc", "f", 0, expects_arg_fragments=True, metadata={"id": "fc"}
    )
    assert metas(fed(added(1, type="web_search_call", id="ws")), "builtin_tool_started") == [
        {"id": "ws", "type": "web_search_call", "name": "web_search", "output_index": 1}
    ]
    item = {"type": "code_interpreter_call", "id": "ci", "code": ""}
    assert metas(fed(added(**item)), "code_interpreter_item") == [item]


@pytest.mark.requirement("driver:S6")
def test_arguments_come_in_fragments_or_whole_and_never_twice() -> None:
    begun = added(type="function_call", id="fc", call_id="c", name="f")
    whole = {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": '{"a":1}'}
    pieces = [delta("function_call_arguments", '{"a"'), delta("function_call_arguments", ":1}")]
    assert metas(fed(begun, *pieces, whole), "tool_call_args") == [
        ArgumentsFragment(0, '{"a"'),
        ArgumentsFragment(0, ":1}"),
    ]
    assert metas(fed(begun, whole, whole), "tool_call_args") == [ArgumentsFragment(0, '{"a":1}')]
    assert metas(fed(begun, pieces[0], whole), "tool_call_args") == [
        ArgumentsFragment(0, '{"a"'),
        ArgumentsFragment(0, ":1}"),
    ]
    custom = added(type="custom_tool_call", id="ctc", call_id="c", name="sql")
    chunks = fed(
        custom, delta("custom_tool_call_input", "SELECT"), done(type="custom_tool_call", id="ctc", input="SELECT")
    )
    assert metas(chunks, "tool_call_args") == [ArgumentsFragment(0, "SELECT")]


@pytest.mark.requirement("driver:S6")
def test_the_events_of_older_servers_make_a_call_too() -> None:
    decoder = StreamDecoder()
    chunks = fed(
        delta("function_call.name", "wea"),
        delta("function_call.name", "ther"),
        delta("function_call", '{"a":'),
        delta("function_call", "1}"),
        {"type": "response.completed"},
        decoder=decoder,
    )
    assert metas(chunks, "tool_call_args") == [ArgumentsFragment(0, '{"a":'), ArgumentsFragment(0, "1}")]
    calls = [chunk for chunk in chunks if isinstance(chunk, ToolCallChunk)]
    assert [(call.name, call.expects_arg_fragments) for call in calls] == [("weather", True)]
    assert [(call.name, call.arguments) for call in decoder.finish().tool_calls] == [("weather", '{"a":1}')]


@pytest.mark.requirement("driver:S7")
def test_a_done_item_brings_what_no_delta_brought() -> None:
    assert fed(done(**said("all"))) == [ContentChunk("all")]
    begun = added(type="message", id="m", content=[])
    assert fed(begun, delta("output_text", ""), done(**said("all"))) == [ContentChunk("all")]
    assert fed(begun, delta("output_text", "all"), done(**said("all"))) == [ContentChunk("all")]
    assert fed(begun, delta("output_text", "a"), done(**said("all"))) == [ContentChunk("a"), ContentChunk("ll")]
    thought = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]}
    assert fed(done(**thought)) == [ThinkingChunk("hm", "rs", 0, 0)]


@pytest.mark.requirement("driver:S7")
def test_a_done_call_is_whole_or_says_nothing_new() -> None:
    item = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"}
    assert fed(done(**item)) == [ToolCallChunk("c", "f", 0, "{}", metadata={"id": "fc"})]
    begun = added(**{**item, "arguments": ""})
    assert len(fed(begun, delta("function_call_arguments", "{}"), done(**item), done(**item))) == 2
    searched = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search"}}
    call = fed(done(**searched), done(**searched))
    assert call == [
        ToolCallChunk(
            "ws",
            "web_search",
            0,
            '{"action":{"type":"search"}}',
            builtin=True,
            type="web_search_call",
            metadata={"id": "ws", "status": "completed"},
        )
    ]
    packed = {"type": "compaction", "id": "cmp", "encrypted_content": "g"}
    assert fed(done(1, **packed), done(1, **packed)) == [
        ContentPartChunk(ProviderBlock("compaction", packed, "openai"), 1)
    ]


@pytest.mark.requirement("driver:S8")
def test_annotations_come_one_by_one_and_the_last_event_has_them_all() -> None:
    chunks = scene_chunks("file-search")
    cited = [annotation for found in metas(chunks, "annotations") for annotation in found]
    assert [annotation["file_id"] for annotation in cited] == ["file-1", "file-2"]
    meta = last(chunks).provider_meta
    assert meta is not None
    assert meta["annotations"] == cited


@pytest.mark.requirement("driver:S9")
def test_usage_may_come_by_itself() -> None:
    decoder = StreamDecoder()
    event = {"type": "response.usage", "usage": USAGE, "model": "m-1"}
    chunk = fed(event, {"type": "response.completed", "response": {"id": "r", "output": []}}, decoder=decoder)[0]
    assert isinstance(chunk, MetaChunk)
    assert chunk.usage is not None
    assert (chunk.model, chunk.usage.total_tokens, chunk.terminal) == ("m-1", 180, False)
    assert decoder.finish().usage == chunk.usage


@pytest.mark.requirement("driver:S10")
@pytest.mark.parametrize(
    ("name", "finish"),
    [("text", "stop"), ("refusal", "content_filter"), ("calls", "tool_calls"), ("web-searches", "stop")],
)
def test_the_last_event_says_how_and_with_what_the_answer_ended(name: str, finish: str) -> None:
    end = last(scene_chunks(name))
    assert (end.finish_reason, end.response_id, end.model, end.problem) == (finish, "resp_1", "model-1", None)
    assert end.usage is not None
    assert end.usage.total_tokens == 180
    assert end.provider_meta is not None
    assert end.provider_meta["api_type"] == "responses"
    assert None not in end.provider_meta.values()


@pytest.mark.requirement("driver:S10")
def test_the_last_event_has_what_the_next_request_needs() -> None:
    details = last(scene_chunks("reasoning")).reasoning_details
    assert details is not None
    assert [(found.signature, found.text) for found in details] == [("gAAA", "First I look.\n\nThen I leap.")]
    phases = last(scene_chunks("phases"))
    assert phases.phase == "final_answer"
    assert [item.phase for item in phases.phase_items or []] == ["commentary", "final_answer"]
    replay = last(scene_chunks("compaction")).responses_replay
    assert replay is not None
    assert replay.items == SCENES["compaction"].items
    assert last(scene_chunks("text")).responses_replay is None


@pytest.mark.requirement("driver:S11")
@pytest.mark.parametrize(
    ("event", "finish", "raw"),
    [
        (
            {"response": {"status": "incomplete", "incomplete_details": {"reason": "max_tokens"}}},
            "length",
            "max_tokens",
        ),
        ({"reason": "content_filter"}, "content_filter", "content_filter"),
        ({}, "length", "incomplete"),
    ],
)
def test_an_incomplete_answer_says_why_and_keeps_its_usage(event: Event, finish: str, raw: str) -> None:
    usage = {"type": "response.usage", "usage": USAGE}
    end = last(fed(delta("output_text", "a"), usage, {"type": "response.incomplete", **event}))
    assert (end.finish_reason, end.raw_finish_reason) == (finish, raw)
    assert end.usage is not None
    assert end.usage.output_tokens == 60


@pytest.mark.requirement("driver:S12")
@pytest.mark.parametrize(
    ("event", "problem"),
    [
        ({"response": {"error": {"message": "Broken.", "code": "x"}}}, Problem("Broken.", "x")),
        ({"response": {"error": {"message": None, "code": "x"}}}, Problem("x", "x")),
        ({"response": {"error": None}}, Problem("response failed")),
        ({"error": {"message": "Beside."}}, Problem("Beside.")),
        ({}, Problem("response failed")),
    ],
)
def test_a_failed_answer_ends_with_its_problem(event: Event, problem: Problem) -> None:
    end = last(fed({"type": "response.failed", **event}))
    assert (end.problem, end.finish_reason) == (problem, "error")


@pytest.mark.requirement("driver:S13")
@pytest.mark.parametrize(
    ("event", "problem"),
    [
        ({"type": "error", "message": "Flat.", "code": "x", "param": "p"}, Problem("Flat.", "x", None, "p")),
        ({"type": "error", "error": {"message": "In.", "code": "x", "type": "t"}}, Problem("In.", "x", "t")),
        ({"type": "error", "message": "Both.", "error": {"code": "x"}}, Problem("Both.", "x")),
        ({"type": "error", "error": "As text."}, Problem("As text.")),
        ({"type": "error", "code": None, "message": None}, Problem("stream error")),
        ({"error": {"message": "Of no type.", "code": 500}}, Problem("Of no type.", "500")),
        ({"type": "response.error", "error": {"code": "x"}}, Problem("x", "x")),
    ],
)
def test_an_error_event_of_either_shape_ends_the_stream(event: Event, problem: Problem) -> None:
    decoder = StreamDecoder()
    end = last(fed(event, delta("output_text", "late"), decoder=decoder))
    assert (end.problem, end.finish_reason) == (problem, "error")
    assert decoder.finish().problem == problem


@pytest.mark.requirement("driver:S13")
def test_an_error_keeps_what_came_before_it_and_what_failed_says_after_it() -> None:
    events = SCENES["failed"].events()
    cut = StreamDecoder()
    fed(*events[:-1], decoder=cut)
    assert (cut.finish().text, cut.finish().response_id, cut.finish().status) == ("It was a dark", "resp_1", "failed")
    assert cut.finish().usage.total_tokens == 0
    whole = StreamDecoder()
    assert last(fed(*events, decoder=whole)).problem == Problem("The model broke down.", "server_error", "server_error")
    assert whole.finish().usage.total_tokens == 180
    assert len(whole.responses) == 1


@pytest.mark.requirement("driver:S14")
def test_the_done_frame_ends_a_stream_that_nothing_else_ended() -> None:
    assert fed("[DONE]") == [MetaChunk(terminal=True)]
    assert fed(" [DONE] ") == StreamDecoder().feed(b"[DONE]") == [MetaChunk(terminal=True)]
    assert fed(ServerSentEvent("message", "[DONE]")) == [MetaChunk(terminal=True)]
    assert len([chunk for chunk in fed(*SCENES["text"].events(), "[DONE]") if getattr(chunk, "terminal", False)]) == 1
    decoder = StreamDecoder()
    end = last(fed(*SCENES["calls"].events()[:-1], "[DONE]", decoder=decoder))
    assert end.finish_reason == "tool_calls"
    assert [call.arguments for call in decoder.finish().tool_calls] == ['{"city":"Rome"}', '{"zone":"CET"}']
    with pytest.raises(StreamCutError):
        empty = StreamDecoder()
        empty.feed("[DONE]")
        empty.finish()


@pytest.mark.requirement("driver:S14")
@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.moon.rising", "phase": "full"},
        {"type": "keepalive"},
        {"delta": "of no type"},
        {"type": 7},
        "not JSON",
        "[1, 2]",
        "",
    ],
)
def test_events_that_nobody_knows_are_nothing(event: Event | str) -> None:
    decoder = StreamDecoder()
    assert decoder.feed(event) == []
    assert not decoder.ended


@pytest.mark.requirement("driver:S14")
def test_the_type_is_in_the_frame_or_in_the_data() -> None:
    text = '{"output_index":0,"delta":"a"}'
    assert fed(ServerSentEvent("response.output_text.delta", text)) == [ContentChunk("a")]
    assert fed(ServerSentEvent("message", '{"type":"response.output_text.delta",' + text[1:])) == [ContentChunk("a")]
    problem = last(fed(ServerSentEvent("error", '{"type":"overloaded_error","message":"Busy."}'))).problem
    assert problem == Problem("Busy.", type="overloaded_error")


@pytest.mark.requirement("driver:S15")
def test_calls_of_hosted_tools_are_counted_once_from_events_and_items() -> None:
    steps = [
        {"type": f"response.{kind}_call.{step}", "item_id": name}
        for kind, name in (("web_search", "ws_1"), ("web_search", "ws_2"), ("x_search", "xs_1"))
        for step in ("in_progress", "searching", "completed")
    ]
    searched = done(0, type="web_search_call", id="ws_1", status="completed")
    end = {"type": "response.completed", "response": {"id": "r", "output": [message("m")]}}
    counted = last(fed(*steps, searched, end)).usage
    assert counted is not None
    assert counted.tool_usage == {"web_search": ToolUsage(2), "x_search": ToolUsage(1)}
    everything = last(scene_chunks("web-searches")).usage
    assert everything is not None
    assert everything.tool_usage == {"web_search": ToolUsage(6)}


@pytest.mark.requirement("driver:cut-off")
def test_a_stream_that_breaks_off_says_where() -> None:
    decoder = StreamDecoder()
    fed(*SCENES["text"].events()[:6], decoder=decoder)
    assert not decoder.ended
    assert decoder.snapshot().text == "The sea is wid"
    with pytest.raises(StreamCutError) as caught:
        decoder.finish()
    assert (caught.value.response_id, caught.value.last_sequence_number) == ("resp_1", 5)
    assert decoder.responses == []


@pytest.mark.requirement("driver:several")
@pytest.mark.parametrize("lost", [0, 1])
def test_a_stream_may_hold_several_answers(lost: int) -> None:
    second = Scene([message("And then.")], beside={"id": "resp_2"}).events()[lost:]
    decoder = StreamDecoder()
    chunks = fed(*SCENES["calls"].events(), *second, decoder=decoder)
    assert [response.response_id for response in decoder.responses] == ["resp_1", "resp_2"]
    assert [response.finish_reason for response in decoder.responses] == ["tool_calls", "stop"]
    assert decoder.finish().text == "And then."
    assert len(metas(chunks, "usage")) == 2
