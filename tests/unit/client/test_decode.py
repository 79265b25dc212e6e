"""Whole answers to one normalized response, rule by rule."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.client.decode import decode
from antiphon.client.types import (
    BodyError,
    Context,
    EndpointError,
    PhaseItem,
    Problem,
    ProviderBlock,
    Response,
    ResponseError,
    TextPart,
    ThinkingPart,
    ToolUsage,
    UsageReported,
)
from support.hosted_streams import SCENES, Scene, message, reasoning


def answer(*items: dict[str, Any], **more: Any) -> Response:
    return decode({"id": "resp_1", "status": "completed", "output": list(items), **more})


def parts(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(parts), **more}


@pytest.mark.requirement("driver:D1")
def test_a_refused_request_is_an_error_with_all_that_came_with_it() -> None:
    envelope = {"error": {"message": "No such model.", "type": "invalid_request_error", "param": "model", "code": "x"}}
    with pytest.raises(EndpointError) as caught:
        decode(msgspec.json.encode(envelope), status=404)
    error = caught.value
    assert error.reason == "OpenAI Responses API error"
    assert (error.status, error.response_body) == (404, envelope)
    assert (error.message, error.type, error.param, error.code) == (
        "No such model.",
        "invalid_request_error",
        "model",
        "x",
    )
    assert str(error) == "OpenAI Responses API error: status 404: No such model."


@pytest.mark.requirement("driver:D1")
@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"", b"[1]", b'{"detail": "no"}', b"\xff"])
def test_a_refusal_in_any_other_shape_keeps_its_body(body: bytes) -> None:
    with pytest.raises(EndpointError) as caught:
        decode(body, status=502)
    assert caught.value.message is None
    assert caught.value.response_body == (
        msgspec.json.decode(body) if body[:1] in (b"[", b"{") else body.decode(errors="replace")
    )


@pytest.mark.requirement("driver:D1")
@pytest.mark.parametrize("body", [b"<html>", b'{"id": "resp_1"', b'"text"', b"[]", b'{"choices": []}', b"[" * 100_000])
def test_what_is_no_answer_is_not_taken_for_an_empty_one(body: bytes) -> None:
    with pytest.raises(BodyError):
        decode(body)


@pytest.mark.requirement("driver:D1", "driver:problem")
def test_an_error_in_a_200_and_a_failed_answer_are_problems() -> None:
    shown = decode({"error": {"message": "Over quota.", "code": 429}})
    assert (shown.problem, shown.finish_reason) == (Problem("Over quota.", "429"), "error")
    failed = decode(SCENES["failed"].body())
    assert failed.problem == Problem("The model broke down.", "server_error")
    assert (failed.finish_reason, failed.text, failed.status) == ("error", "It was a dark", "failed")
    with pytest.raises(ResponseError, match="The model broke down") as caught:
        failed.raise_for_problem()
    assert (caught.value.code, caught.value.response_id) == ("server_error", "resp_1")
    assert decode({"status": "failed", "output": []}).problem == Problem("response failed")
    fine = decode(SCENES["text"].body())
    assert fine.raise_for_problem() is fine


@pytest.mark.requirement("driver:D2")
def test_text_is_joined_from_everywhere() -> None:
    response = answer(
        parts({"type": "output_text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "refusal", "refusal": "c"}),
        {"type": "output_text", "text": "d"},
        {"type": "message", "content": "e"},
        parts({"type": "image", "url": "x"}, {"type": "output_text", "text": None}),
    )
    assert response.text == "abcde"
    assert response.message.text == "abcde"


@pytest.mark.requirement("driver:D2")
def test_text_beside_the_output_counts_once() -> None:
    assert answer(output_text="alone").text == "alone"
    assert answer(message("same"), output_text="same").text == "same"
    assert answer(message("a"), message("b"), output_text="ab").text == "ab"
    assert answer(message("more"), output_text="some ").text == "some more"
    declined = parts({"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"})
    assert answer(declined, message("c"), output_text="ac").text == "abc"


@pytest.mark.requirement("driver:D3")
def test_a_commentary_that_is_the_answer_is_the_answer_once() -> None:
    response = decode(SCENES["twins"].body())
    assert (response.text, response.phase) == ("It is wide.", "final_answer")
    assert response.message.metadata.phase_items == []
    assert response.message.content == [TextPart("It is wide.", metadata={"phase": "final_answer"})]


@pytest.mark.requirement("driver:D3")
def test_distinct_messages_keep_their_phases_in_order() -> None:
    response = decode(SCENES["phases"].body())
    assert (response.text, response.phase) == ("I look.It is wide.", "final_answer")
    assert response.message.metadata.phase_items == [
        PhaseItem("I look.", "commentary", "msg_1"),
        PhaseItem("It is wide.", "final_answer", "msg_2"),
    ]
    later = answer(
        message("a", "m1", phase="commentary"),
        message("b", "m2", phase="commentary"),
        message("b", "m3", phase="final_answer"),
    )
    assert later.text == "abb"
    assert answer(message("a", phase="commentary")).phase == "commentary"


@pytest.mark.requirement("driver:D4")
def test_thinking_is_all_summaries_and_then_all_content() -> None:
    response = answer(
        reasoning("rs_1", "a", "b", content=["x"]), message("m"), reasoning("rs_2", "c", content=["y", "z"])
    )
    assert response.thinking == "a\n\nb\n\nc\n\nx\n\ny\n\nz"
    assert response.message.content == [ThinkingPart(response.thinking), TextPart("m")]


@pytest.mark.requirement("driver:D5")
def test_reasoning_is_kept_to_be_sent_back() -> None:
    response = decode(
        {
            "status": "completed",
            "output": [
                message("m"),
                reasoning("rs_1", encrypted_content="gAAA"),
                {"type": "reasoning", "id": "rs_2", "summary": "as text", "encrypted_content": None},
            ],
        },
        provider="azure",
    )
    first, second = response.reasoning_details
    assert (first.text, first.signature, first.encrypted) == (None, "gAAA", True)
    assert (first.index, first.provider, first.format) == (1, "azure", "openai-responses-v1")
    assert first.provider_data == {"id": "rs_1", "type": "reasoning", "summary": []}
    assert (second.text, second.signature, second.encrypted, second.index) == ("as text", None, False, 2)
    assert second.provider_data["summary"] == "as text"
    assert response.thinking == "as text"


@pytest.mark.requirement("driver:D6")
@pytest.mark.parametrize(
    ("given", "arguments"),
    [('{"a":1}', '{"a":1}'), (None, "{}"), ("", "{}"), ('{"a":', '{"a":'), ({"a": 1}, '{"a":1}')],
)
def test_a_function_call_keeps_its_arguments_as_they_came(given: Any, arguments: str) -> None:
    response = answer({"type": "function_call", "call_id": "call_1", "name": "f", "arguments": given, "id": "fc_1"})
    call = response.tool_calls[0]
    assert (call.id, call.name, call.arguments, call.builtin) == ("call_1", "f", arguments, False)
    assert response.finish_reason == "tool_calls"
    assert response.message.tool_calls == response.tool_calls == response.local_tool_calls


@pytest.mark.requirement("driver:D6")
def test_a_call_without_name_or_id_can_still_be_answered() -> None:
    first, second = answer({"type": "function_call", "id": "fc_1"}, {"type": "function_call"}).tool_calls
    assert (first.id, first.name, second.id) == ("fc_1", "unknown", "call_1")


@pytest.mark.requirement("driver:D6", "driver:kinds")
@pytest.mark.parametrize(
    ("scene", "name", "kind"),
    [
        ("custom", "sql", "custom_tool_call"),
        ("patch", "apply_patch", "apply_patch_call"),
        ("shell-local", "shell", "shell_call"),
        ("old-shell", "local_shell", "local_shell_call"),
        ("computer", "computer", "computer_call"),
        ("tool-search-client", "tool_search", "tool_search_call"),
    ],
)
def test_calls_of_other_kinds_wait_for_the_client_too(scene: str, name: str, kind: str) -> None:
    response = decode(SCENES[scene].body())
    call = response.local_tool_calls[0]
    assert (call.id, call.name, call.type) == ("call_1", name, kind)
    assert response.finish_reason == response.classification == "tool_calls"
    assert response.usage.tool_usage == {}


@pytest.mark.requirement("driver:kinds")
def test_what_else_a_call_says_is_kept_with_it() -> None:
    call = decode(SCENES["tool-search"].body()).local_tool_calls[0]
    assert call.metadata == {"id": "fc_1", "status": "completed", "namespace": "sky"}
    assert decode(SCENES["custom"].body()).tool_calls[0].arguments == "SELECT * FROM sea"


@pytest.mark.requirement("driver:D7")
@pytest.mark.parametrize(
    "kind", ["web_search_call", "web_search_preview_call", "file_search_call", "mcp_call", "x_search_call"]
)
def test_calls_of_the_server_are_not_ours_to_answer(kind: str) -> None:
    response = answer({"type": kind, "id": "x_1", "call_id": "c", "status": "failed", "queries": ["a"]}, message("m"))
    call = response.tool_calls[0]
    assert call.builtin
    assert msgspec.json.decode(call.arguments) == {"queries": ["a"]}
    assert call.metadata["status"] == "failed"
    assert (response.finish_reason, response.classification) == ("stop", "final_answer")
    assert response.local_tool_calls == []


@pytest.mark.requirement("driver:D7", "driver:kinds")
def test_who_executes_an_unknown_call_is_told_from_its_call_id() -> None:
    theirs, ours, answered = answer(
        {"type": "search_corpus_call", "id": "sc_1"},
        {"type": "telescope_call", "call_id": "c1"},
        {"type": "lamp_call", "call_id": "c2"},
        {"type": "lamp_call_output", "call_id": "c2"},
    ).tool_calls
    assert (theirs.builtin, ours.builtin, answered.builtin) == (True, False, True)


@pytest.mark.requirement("driver:D8")
def test_the_code_interpreter_is_in_the_metadata_only() -> None:
    response = decode(SCENES["code-interpreter"].body())
    assert response.provider_meta["code_interpreter"] == {"items": [response.output[0]]}
    assert (response.text, response.tool_calls) == ("It is 42.", [])


@pytest.mark.requirement("driver:D9")
def test_a_refusal_is_text_and_beats_tool_calls() -> None:
    body = SCENES["refusal"].body()
    body["output"].append({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"})
    response = decode(body, schema={"type": "object"})
    assert response.text == "I will not help with that."
    assert response.refusals == response.provider_meta["refusals"] == ["I will not help with that."]
    assert response.finish_reason == "content_filter"
    assert (response.object, response.object_error) == (None, None)
    assert response.message.content == [TextPart("I will not help with that.", refusal=True)]


@pytest.mark.requirement("driver:D10")
def test_annotations_are_gathered_in_order() -> None:
    response = decode(SCENES["file-search"].body())
    assert [found["index"] for found in response.annotations] == [11, 25]
    assert response.provider_meta["annotations"] == response.annotations


@pytest.mark.requirement("driver:D11")
def test_what_has_no_place_of_its_own_is_in_the_metadata() -> None:
    response = answer(message("m"), model="m-1", output_text="m", usage={}, service_tier="flex", x_vendor=None)
    assert response.provider_meta == {
        "status": "completed",
        "service_tier": "flex",
        "x_vendor": None,
        "api_type": "responses",
    }
    assert (response.response_id, response.model) == ("resp_1", "m-1")


@pytest.mark.requirement("driver:D12")
@pytest.mark.parametrize(
    ("status", "reason", "finish", "raw"),
    [
        ("completed", None, "stop", "completed"),
        (None, None, "stop", None),
        ("cancelled", None, "stop", "cancelled"),
        ("in_progress", None, "stop", "in_progress"),
        ("incomplete", None, "length", "incomplete"),
        *(("incomplete", word, "length", word) for word in ("stop", "length", "max_tokens", "max_output_tokens")),
        *(("incomplete", word, "length", word) for word in ("max_tool_calls", "context_window")),
        ("incomplete", "tool_calls", "tool_calls", "tool_calls"),
        ("incomplete", "content_filter", "content_filter", "content_filter"),
        ("incomplete", "steered", "error", "steered"),
    ],
)
def test_the_finish_reason(status: str | None, reason: str | None, finish: str, raw: str | None) -> None:
    details = {"reason": reason} if reason else None
    response = answer(message("m"), status=status, incomplete_details=details)
    assert (response.finish_reason, response.raw_finish_reason) == (finish, raw)


@pytest.mark.requirement("driver:D13")
def test_usage_is_read_under_each_of_its_names() -> None:
    usage = decode(SCENES["text"].body()).usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (120, 60, 180)
    assert (usage.cached_tokens, usage.cache_creation_tokens, usage.reasoning_tokens) == (20, 8, 32)
    assert usage.usage_reported == UsageReported(input=True, output=True)
    other = answer(
        usage={
            "input_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 4},
        }
    ).usage
    assert (other.cached_tokens, other.cache_creation_tokens, other.reasoning_tokens) == (3, None, 4)
    assert (other.output_tokens, other.total_tokens) == (0, 5)
    assert other.usage_reported == UsageReported(input=True, output=False)
    assert answer(usage={"reasoning_tokens": 7, "output_tokens_details": {"reasoning_tokens": 9}}).usage == (
        answer(usage={"reasoning_tokens": 7}).usage
    )
    nothing = answer(usage=None).usage
    assert (nothing.input_tokens, nothing.total_tokens, nothing.usage_reported) == (0, 0, UsageReported())


@pytest.mark.requirement("driver:D13")
def test_the_old_name_of_reasoning_tokens_warns() -> None:
    usage = decode(SCENES["text"].body()).usage
    with pytest.warns(DeprecationWarning, match="reasoning_tokens"):
        assert usage.reasoning == 32


@pytest.mark.requirement("driver:D13")
def test_the_use_of_tools_is_the_most_that_anything_says() -> None:
    searched = decode(SCENES["web-searches"].body()).usage.tool_usage
    assert searched == {"web_search": ToolUsage(6, "call")}
    told = answer(
        {"type": "web_search_call", "id": "ws_1"},
        {"type": "web_search_call", "id": "ws_1"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        usage={
            "server_side_tool_usage_details": {"web_search_calls": 3, "x_search_calls": 1, "mcp_calls": 0},
            "server_tool_use": {"web_search_requests": 2},
        },
    )
    assert told.usage.tool_usage == {"web_search": ToolUsage(3), "x_search": ToolUsage(1)}
    assert decode(SCENES["vendor"].body()).usage.tool_usage == {"search_corpus": ToolUsage(1)}


@pytest.mark.requirement("driver:D15")
def test_the_message_knows_where_it_came_from() -> None:
    response = decode(SCENES["phases"].body())
    metadata = response.message.metadata
    assert (metadata.response_id, metadata.phase) == ("resp_1", "final_answer")
    assert metadata.responses_replay is None
    context = response.append_to(Context())
    assert context.messages == [response.message]
    assert msgspec.json.decode(msgspec.json.encode(context), type=Context) == context


@pytest.mark.requirement("driver:D15")
def test_an_answer_with_a_compaction_is_replayed_as_it_came() -> None:
    response = decode(SCENES["compaction"].body())
    replay = response.message.metadata.responses_replay
    assert replay is not None
    assert (replay.items, replay.provider) == (response.output, "openai")
    assert response.message.content[1] == ProviderBlock("compaction", response.output[1], "openai")


@pytest.mark.requirement("driver:lossless")
@pytest.mark.parametrize("name", SCENES)
def test_every_item_stays_at_hand(name: str) -> None:
    scene: Scene = SCENES[name]
    assert decode(msgspec.json.encode(scene.body())).output == scene.items
