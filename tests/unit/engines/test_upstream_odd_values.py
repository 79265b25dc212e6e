"""Values of an upstream that no reader of JSON takes as they stand: what is told of them is finite and well-formed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.engines.responses.decoder import Reading as ResponseReading
from antiphon.engines.responses.decoder import ResponsesDecoder
from antiphon.engines.upstream.decoder import ChatDecoder
from antiphon.engines.upstream.decoder import Reading as ChatReading
from antiphon.engines.upstream.logprobs import read_logprobs
from antiphon.errors import EngineError
from antiphon.machine.deltas import Delta, Stop, ToolCallStart
from antiphon.protocol.json import encode
from antiphon.protocol.parts import Logprob, TopLogprob
from antiphon.protocol.sse import ServerSentEvent

HALF = "\ud800"
NOTHING = TopLogprob("", [], -9999.0)
HALVED = TopLogprob("�", [239, 191, 189], -2.5)


def of_chat(*events: Any) -> list[Delta]:
    decoder = ChatDecoder(ChatReading(5, {"get": False}, logprobs=True))
    return [delta for event in events for delta in decoder.feed(json.dumps(event))] + decoder.feed("[DONE]")


def of_response(*events: Any) -> list[Delta]:
    decoder = ResponsesDecoder(ResponseReading(5, {"get": False}, logprobs=True))
    return [delta for event in events for delta in decoder.feed(ServerSentEvent(event["type"], json.dumps(event)))]


def ended(**usage: Any) -> dict[str, Any]:
    return {"type": "response.completed", "response": {"status": "completed", "usage": usage}}


@pytest.mark.requirement("upstream:logprobs", "responses-upstream:logprobs")
@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"token": "a", "logprob": -1, "bytes": [300]}, Logprob("a", [97], -1.0, [])),
        ({"token": "a", "logprob": float("-inf"), "bytes": [-1]}, Logprob("a", [97], -9999.0, [])),
        ({"token": "a", "logprob": float("nan"), "bytes": [True]}, Logprob("a", [97], -9999.0, [])),
        ({"token": "a", "logprob": 10**400, "bytes": []}, Logprob("a", [], -9999.0, [])),
        ({"token": "a", "logprob": None, "top_logprobs": [None, {}]}, Logprob("a", [97], -9999.0, [NOTHING])),
        ({"token": HALF, "logprob": True}, Logprob("�", [239, 191, 189], -9999.0, [])),
        ({"token": "b", "top_logprobs": [{"token": HALF, "logprob": -2.5}]}, Logprob("b", [98], -9999.0, [HALVED])),
    ],
)
def test_a_log_probability_is_a_finite_number_with_bytes(entry: dict[str, Any], expected: Logprob):
    assert read_logprobs([entry, {"logprob": 1}, 7]) == [expected]
    assert json.loads(encode(expected))["logprob"] == expected.logprob


@pytest.mark.requirement("upstream:logprobs")
@pytest.mark.parametrize("given", [None, 5, "x", {}, [], [[]], {"content": 5}, {"content": [{"token": 5}]}])
def test_log_probabilities_that_cannot_be_read_are_none(given: Any):
    assert read_logprobs(given if not isinstance(given, dict) else given.get("content")) == []


@pytest.mark.requirement("upstream:usage", "responses-upstream:usage")
@pytest.mark.parametrize("count", [2**53, 2**63, 10**30, -1])
def test_a_count_of_tokens_that_makes_no_sense_is_none(count: int):
    found = [
        *of_chat({"usage": {"prompt_tokens": count, "completion_tokens": count}}),
        *of_response(ended(input_tokens=count, output_tokens=count)),
    ]
    assert [(delta.usage.input_tokens, delta.usage.output_tokens) for delta in found if isinstance(delta, Stop)] == [
        (5, 0),
        (5, 0),
    ]


@pytest.mark.requirement("responses-upstream:calls")
@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call"])
def test_a_name_with_half_a_pair_is_told_well_formed(kind: str):
    item = {"type": kind, "name": f"g{HALF}", "call_id": "c", "arguments": "{}", "input": "x"}
    found = of_response({"type": "response.output_item.done", "output_index": 0, "item": item}, ended())
    assert isinstance(found[0], ToolCallStart)
    assert found[0].name == "g�"
    assert all(encode(delta) for delta in found)


@pytest.mark.requirement("upstream:words", "responses-upstream:error")
def test_words_with_half_a_pair_are_told_well_formed():
    with pytest.raises(EngineError, match="The upstream failed: no �"):
        of_response({"type": "response.failed", "response": {"error": {"message": f"no {HALF}"}}})


@pytest.mark.requirement("responses-upstream:text")
@pytest.mark.parametrize("kind", [[], {}, 7, True, None, ["response.completed"]])
def test_an_event_of_no_type_says_nothing(kind: Any):
    decoder = ResponsesDecoder(ResponseReading(5))
    body = {"type": kind, "response": {}, "item": {"type": kind}, "output_index": 0, "delta": "Hi"}
    assert decoder.feed(ServerSentEvent("message", json.dumps(body))) == []
    assert isinstance(decoder.feed(ServerSentEvent("message", json.dumps(ended())))[-1], Stop)


@pytest.mark.requirement("responses-upstream:text", "driver:loose")
@pytest.mark.parametrize("place", [2**63, -(2**70), 1e300])
def test_a_place_that_no_list_has_is_none(place: float):
    text = {"type": "response.output_text.delta", "output_index": place, "content_index": place, "delta": "Hi"}
    thought = {"type": "response.reasoning_summary_text.delta", "output_index": place, "summary_index": place}
    found = of_response({**text, "sequence_number": place}, {**thought, "delta": "so"}, ended())
    assert isinstance(found[-1], Stop)
