"""What the events of an upstream's response come to, exactly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.engines.responses.decoder import Reading, ResponsesDecoder
from antiphon.engines.responses.history import raw_item
from antiphon.engines.upstream.client import UpstreamLostError
from antiphon.errors import EngineError
from antiphon.machine.deltas import (
    AnnotationDelta,
    Delta,
    MessageStart,
    RawItemDelta,
    ReasoningDelta,
    RefusalDelta,
    Stop,
    SummaryDelta,
    TextDelta,
    ThoughtEnd,
    TokenUsage,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.protocol.items import RawItem
from antiphon.protocol.parts import Logprob
from antiphon.protocol.sse import ServerSentEvent

CREATED = {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}
USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 16,
}
USED = TokenUsage(9, 7, 4, 2)


def text(delta: str, index: int = 0) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "output_index": index, "content_index": 0, "delta": delta}


def end(status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {"id": "resp_1", "status": status, "usage": USAGE, **fields}}


def added(index: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def arguments(index: int, delta: str) -> dict[str, Any]:
    return {"type": "response.function_call_arguments.delta", "output_index": index, "delta": delta}


def read(*events: Any, **fields: Any) -> list[Delta]:
    """What the events come to, texts joined where they follow one another."""
    decoder = ResponsesDecoder(Reading(5, **fields))
    deltas: list[Delta] = []
    for event in events:
        data = event if isinstance(event, str) else json.dumps(event)
        for delta in decoder.feed(ServerSentEvent("message", data)):
            last = deltas[-1] if deltas else None
            if isinstance(delta, ToolCallDelta | ReasoningDelta) and type(last) is type(delta):
                deltas[-1] = type(delta)(last.text + delta.text)
            else:
                deltas.append(delta)
    return deltas if decoder.done else [*deltas, *decoder.end()]


@pytest.mark.requirement("responses-upstream:text", "responses-upstream:usage")
def test_text_thinking_and_refusals():
    thought = {"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 0, "delta": "hm"}
    renamed = {**thought, "type": "response.reasoning.delta", "delta": ", so"}
    refusal = {"type": "response.refusal.delta", "output_index": 1, "content_index": 1, "delta": "no"}
    deltas = read(CREATED, thought, renamed, text("A", 1), text("b", 1), refusal, end())
    assert deltas == [
        ReasoningDelta("hm, so"), TextDelta("A"), TextDelta("b"), RefusalDelta("no"), Stop("stop", USED)
    ]  # fmt: skip


@pytest.mark.requirement("responses-upstream:text")
def test_what_came_in_no_delta_comes_with_its_item_or_with_the_end():
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}
    assert read(CREATED, done(0, **message), end()) == [TextDelta("Hello"), Stop("stop", USED)]
    assert read(CREATED, text("He"), end(output=[message])) == [TextDelta("He"), TextDelta("llo"), Stop("stop", USED)]
    whole = {"object": "response", "status": "completed", "output": [message], "usage": USAGE}
    assert read(whole) == [TextDelta("Hello"), Stop("stop", USED)]
    unknown = {"type": "response.from.the.future", "output_index": 7}
    assert read(CREATED, unknown, text("Hello"), end(), "[DONE]") == [TextDelta("Hello"), Stop("stop", USED)]


@pytest.mark.requirement("responses-upstream:calls")
def test_calls_are_told_one_after_another():
    tools = {"f": False, "shout": True}
    events = [
        CREATED,
        added(0, type="function_call", call_id="c1", name="f", arguments=""),
        added(1, type="function_call", call_id="c2", name="f", arguments=""),
        arguments(1, '{"n":'),
        arguments(0, '{"n":1'),
        text("beside", 2),
        arguments(1, "2}"),
        arguments(0, "}"),
        done(0, type="function_call", call_id="c1", name="f", arguments='{"n":1}'),
        done(1, type="function_call", call_id="c2", name="f", arguments='{"n":2}'),
        end(),
    ]
    told = read(*events, tools=tools)
    first, second = ToolCallDelta('{"n":1}'), ToolCallDelta('{"n":2}')
    start, stop = ToolCallStart("f"), Stop("stop", USED)
    assert told == [start, first, start, second, TextDelta("beside"), stop]
    assert read(*events, tools=tools, one_call=True) == [start, first, TextDelta("beside"), stop]
    assert read(CREATED, done(0, type="function_call", call_id="c", name="f"), end(), tools=tools) == [
        start, ToolCallDelta("{}"), stop
    ]  # fmt: skip


@pytest.mark.requirement("responses-upstream:calls")
def test_custom_calls_come_as_they_are_or_out_of_a_function():
    tools = {"shout": True}
    start, stop = ToolCallStart("shout", custom=True), Stop("stop", USED)
    item = {"type": "custom_tool_call", "call_id": "c", "name": "shout", "input": ""}
    pieces = [
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": delta} for delta in ("H", "O")
    ]
    came = [CREATED, added(0, **item), *pieces, done(0, **{**item, "input": "HO"}), text("x", 1), end()]
    assert read(*came, tools=tools) == [start, ToolCallDelta("HO"), TextDelta("x"), stop]
    shown = done(0, type="function_call", call_id="c", name="shout", arguments='{"input":"HO"}')
    assert read(CREATED, shown, end(), tools=tools) == [start, ToolCallDelta("HO"), stop]


@pytest.mark.requirement("responses-upstream:end", "responses-upstream:usage")
def test_each_end_is_what_it_is():
    def stopped(**details: Any) -> Any:
        return read(CREATED, text("A"), end("incomplete", **details))[-1]

    assert stopped(incomplete_details={"reason": "max_output_tokens"}) == Stop("length", USED)
    assert stopped(incomplete_details={"reason": "content_filter"}) == Stop("content_filter", USED)
    assert stopped(incomplete_details={"reason": "max_tool_calls"}) == Stop("max_tool_calls", USED)
    assert stopped(incomplete_details={"reason": "something else"}) == Stop("length", USED)
    assert stopped() == Stop("length", USED)
    written = {**USAGE, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3}}
    assert read(CREATED, text("A"), end(usage=written))[-1] == Stop("stop", TokenUsage(9, 7, 4, 2, 3))
    estimate = read(CREATED, text("A"), text("b"), end(usage=None))[-1]
    assert estimate == Stop("stop", TokenUsage(5, 2))
    half = added(0, type="function_call", call_id="c", name="f", arguments="")
    cut = read(CREATED, half, arguments(0, '{"n'), end("incomplete"), tools={"f": False})
    assert cut == [ToolCallStart("f"), ToolCallDelta('{"n'), Stop("length", USED)]
    assert read(CREATED, text("A"), "[DONE]")[-1] == Stop("stop", TokenUsage(5, 1))


@pytest.mark.requirement("responses-upstream:error")
@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "rate_limit_exceeded", "message": "no"},
        {"type": "error", "error": {"code": "rate_limit_exceeded", "message": "no"}},
        {"type": "response.error", "error": {"code": "rate_limit_exceeded", "message": "no"}},
        {"error": {"code": "rate_limit_exceeded", "message": "no"}},
        end("failed", error={"code": "rate_limit_exceeded", "message": "no"}),
        {"object": "response", "status": "failed", "error": {"code": "rate_limit_exceeded", "message": "no"}},
    ],
)
def test_errors_of_every_shape_are_errors(event: dict[str, Any]):
    with pytest.raises(EngineError) as raised:
        read(CREATED, text("A"), event)
    assert (raised.value.code, raised.value.message) == ("rate_limit_exceeded", "The upstream failed: no")


@pytest.mark.requirement("responses-upstream:error")
def test_what_is_no_end_and_no_event_is_an_error():
    for events, kind, code in (
        ([CREATED, text("A")], UpstreamLostError, "upstream_lost"),
        (["[DONE]"], UpstreamLostError, "upstream_lost"),
        (["<html>"], EngineError, "upstream_invalid"),
        ([{"object": "response", "status": "in_progress", "output": []}], EngineError, "upstream_invalid"),
        (
            [CREATED, {"type": "response.incomplete", "response": {"status": "cancelled"}}],
            EngineError,
            "upstream_error",
        ),
        ([CREATED, arguments(0, "{}"), end()], EngineError, "invalid_tool_call"),
    ):
        with pytest.raises(kind) as raised:
            read(*events)
        assert raised.value.code == code, events


@pytest.mark.requirement("responses-upstream:logprobs")
def test_log_probabilities_go_with_their_text():
    entry = {"token": "A", "logprob": -0.5, "top_logprobs": []}
    came = {**text("A"), "logprobs": [entry]}
    assert read(CREATED, came, end(), logprobs=True)[0] == TextDelta("A", [Logprob("A", [65], -0.5, [])])
    assert read(CREATED, came, end())[0] == TextDelta("A")


SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}
CITATION = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}


@pytest.mark.requirement("responses-upstream:hosted")
def test_what_the_upstream_ran_itself_is_passed_on_whole():
    searched = RawItemDelta(
        {"type": "web_search_call", "status": "completed", "action": SEARCH["action"], "upstream_id": "ws_1"},
        begins=True,
    )
    listed = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "s", "tools": []}
    events = [
        CREATED,
        done(0, **listed),
        added(1, **{**SEARCH, "status": "in_progress"}),
        {"type": "response.web_search_call.searching", "output_index": 1, "item_id": "ws_1"},
        done(1, **SEARCH),
        text("A", 2),
        {
            "type": "response.output_text.annotation.added",
            "output_index": 2,
            "content_index": 0,
            "annotation_index": 0,
            "annotation": CITATION,
        },
    ]
    whole = {"type": "message", "content": [{"type": "output_text", "text": "A", "annotations": [CITATION, CITATION]}]}
    shown = RawItemDelta({"type": "mcp_list_tools", "server_label": "s", "tools": [], "upstream_id": "mcpl_1"})
    cited, stop = AnnotationDelta(CITATION), Stop("stop", USED)
    assert read(*events, done(2, **whole), end()) == [shown, searched, TextDelta("A"), cited, cited, stop]
    assert read(CREATED, text("A"), end(output=[SEARCH])) == [TextDelta("A"), searched, stop]
    further = read(CREATED, done(0, **listed, upstream_id="mcpl_0"), end())[0]
    assert further == RawItemDelta({**shown.body, "upstream_id": "mcpl_1 mcpl_0"})
    body = {"id": "mcpl_ours", **further.body}
    back = raw_item(RawItem("mcp_list_tools", "mcpl_ours", body), {})
    assert back == {**listed, "upstream_id": "mcpl_0"}


@pytest.mark.requirement("responses-upstream:thoughts")
def test_summaries_and_sealed_thoughts_are_kept_apart():
    def summed(delta: str, part: int) -> dict[str, Any]:
        kind = "response.reasoning_summary_text.delta"
        return {"type": kind, "output_index": 0, "summary_index": part, "delta": delta}

    sealed = done(0, type="reasoning", summary=[], encrypted_content="blob")
    events = [CREATED, summed("a", 0), summed("b", 0), summed("c", 1), sealed, text("A", 1), end()]
    first = [SummaryDelta("a"), SummaryDelta("b"), SummaryDelta("c", True)]
    rest = [TextDelta("A"), Stop("stop", USED)]
    assert read(*events, sealed=True) == [*first, ThoughtEnd("blob"), *rest]
    assert read(*events) == [*first, ThoughtEnd(), *rest]
    half = done(0, type="reasoning", summary=[], status="incomplete")
    assert read(CREATED, summed("a", 0), half, end("incomplete")) == [SummaryDelta("a"), Stop("length", USED)]
    alone = {"type": "reasoning", "summary": [], "encrypted_content": "blob", "status": "completed"}
    assert read(CREATED, sealed, text("A", 1), end(), sealed=True) == [RawItemDelta(alone), *rest]
    assert read(CREATED, sealed, text("A", 1), end()) == rest


@pytest.mark.requirement("responses-upstream:phases")
def test_messages_stay_apart_with_their_phases():
    first = added(0, type="message", role="assistant", content=[], phase="commentary")
    second = added(1, type="message", role="assistant", content=[])
    told = read(CREATED, first, text("A"), second, text("b", 1), end())
    assert told == [MessageStart("commentary"), TextDelta("A"), MessageStart(), TextDelta("b"), Stop("stop", USED)]
