"""What becomes of messages: each part as an item that the endpoint takes, and nothing that it has already."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from antiphon.client.context import (
    Context,
    FilePart,
    ImagePart,
    Message,
    MessageMetadata,
    PhaseItem,
    ProviderBlock,
    ReasoningDetail,
    ResponsesReplay,
    TextPart,
    ThinkingPart,
    ToolCall,
    assistant,
    developer,
    system,
    tool_result,
    user,
)
from antiphon.client.encode import encode
from antiphon.client.errors import ContextError
from antiphon.client.options import RequestWarning
from antiphon.client.profiles import ANTIPHON, AZURE, GENERIC, META, OPENAI, VLLM, Profile

requirement = pytest.mark.requirement
PNG = b"\x89PNG\r\n\x1a\n0000"
CALL = ToolCall("call_1", "look", '{"at":"sky"}')


def sent(*messages: Message, profile: Profile = OPENAI, **options: Any) -> list[dict[str, Any]]:
    return encode(Context(list(messages)), options, profile, "gpt-4.1")["input"]


def answer(response_id: str | None = None, text: str = "yes", **fields: Any) -> Message:
    message = assistant(text)
    message.metadata.response_id = response_id
    for name, value in fields.items():
        setattr(message, name, value)
    return message


@requirement("driver:E4", "driver:E5")
def test_text_is_of_who_said_it_and_roles_stay() -> None:
    assert sent(system("be brief"), developer("no jokes"), user("hi", "you"), assistant("ho")) == [
        {"role": "system", "content": [{"type": "input_text", "text": "be brief"}]},
        {"role": "developer", "content": [{"type": "input_text", "text": "no jokes"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "input_text", "text": "you"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "ho"}]},
    ]


@requirement("driver:E4")
def test_a_message_of_nothing_is_left_out() -> None:
    assert sent(user(), assistant(), user("hi"), assistant(ThinkingPart("hm"))) == sent(user("hi"))


@requirement("driver:E4")
def test_what_an_assistant_said_is_a_string_where_its_parts_are_not_taken() -> None:
    said = assistant("one ", "two")
    assert sent(said, profile=VLLM) == [{"role": "assistant", "content": "one two"}]
    assert sent(assistant("see", ImagePart(url="http://i/1.png")), profile=VLLM)[0]["content"] == [
        {"type": "output_text", "text": "see"},
        {"type": "input_image", "image_url": "http://i/1.png"},
    ]


@requirement("driver:E4")
def test_a_string_a_message_and_a_list_are_conversations() -> None:
    wanted = sent(user("hi"))
    for conversation in ("hi", user("hi"), [user("hi")], Context([user("hi")])):
        assert encode(conversation)["input"] == wanted


@requirement("driver:E6")
@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        (ImagePart(url="https://i/1.png"), {"image_url": "https://i/1.png"}),
        (ImagePart(data=b"x", media_type="image/webp"), {"image_url": "data:image/webp;base64,eA=="}),
        (ImagePart(data=PNG), {"image_url": "data:image/png;base64," + base64.b64encode(PNG).decode()}),
        (ImagePart(file_id="file-1", detail="low"), {"file_id": "file-1", "detail": "low"}),
    ],
)
def test_images_go_by_url_data_or_id(part: ImagePart, wanted: dict[str, Any]) -> None:
    assert sent(user(part))[0]["content"] == [{"type": "input_image", **wanted}]


@requirement("driver:E6")
def test_an_image_of_no_known_kind_is_refused() -> None:
    with pytest.raises(ContextError, match="media_type"):
        sent(user(ImagePart(data=b"what")))
    with pytest.raises(ContextError, match="needs"):
        sent(user(ImagePart()))


@requirement("driver:E7")
@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        (FilePart(file_id="file-1"), {"file_id": "file-1"}),
        (FilePart(file_id="file-1", filename="a.pdf"), {"file_id": "file-1", "filename": "a.pdf"}),
        (FilePart(file_id="file-1", provider_file_ids={"openai": "file-2"}), {"file_id": "file-2"}),
        (FilePart(file_id="file-1", provider_file_ids={"azure": "file-2"}), {"file_id": "file-1"}),
        (
            FilePart(data=b"x", filename="a.pdf"),
            {"file_data": "data:application/pdf;base64,eA==", "filename": "a.pdf"},
        ),
        (FilePart(data=b"x", media_type="image/gif"), {"file_data": "data:image/gif;base64,eA=="}),
        (FilePart(data=b"RIFF0000WEBP"), {"file_data": "data:image/webp;base64,UklGRjAwMDBXRUJQ"}),
        (FilePart(url="https://f/a.pdf"), {"file_url": "https://f/a.pdf"}),
    ],
)
def test_files_go_by_id_data_or_url(part: FilePart, wanted: dict[str, Any]) -> None:
    assert sent(user(part))[0]["content"] == [{"type": "input_file", **wanted}]


@requirement("driver:E7")
@pytest.mark.parametrize(
    "part",
    [
        FilePart(data=b"x", media_type="text/html"),
        FilePart(data=b"x"),
        FilePart(data=b"x", filename="a.zip"),
        FilePart(),
    ],
)
def test_a_file_that_the_provider_does_not_take_is_refused(part: FilePart) -> None:
    with pytest.raises(ContextError):
        sent(user(part))


@requirement("driver:E7")
def test_a_provider_may_take_files_of_any_kind() -> None:
    sent(user(FilePart(data=b"x", media_type="text/html")), profile=ANTIPHON)


@requirement("driver:E8")
def test_breakpoints_go_with_parts_of_the_input() -> None:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    parts = (
        TextPart("a", metadata=mark),
        ImagePart(url="http://i", metadata=mark),
        FilePart(file_id="f", metadata=mark),
    )
    assert all(part["prompt_cache_breakpoint"] == {"mode": "explicit"} for part in sent(user(*parts))[0]["content"])
    assert sent(assistant(TextPart("a", metadata=mark)))[0]["content"] == [{"type": "output_text", "text": "a"}]
    fields = {"prompt_cache_key": "k", "prompt_cache_options": {"mode": "explicit"}}
    body = encode("hi", fields, OPENAI, "gpt-4.1")
    assert {name: body[name] for name in fields} == fields


@requirement("driver:E9")
def test_calls_go_after_what_was_said_and_those_of_the_server_do_not() -> None:
    calls = [CALL, ToolCall("ws_1", "web_search_call", "{}", builtin=True, type="web_search_call")]
    assert sent(user("?"), assistant("I look", tool_calls=calls))[1:] == [
        {"role": "assistant", "content": [{"type": "output_text", "text": "I look"}]},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at":"sky"}'},
    ]


@requirement("driver:E9", "driver:E10")
def test_calls_of_other_kinds_go_in_their_own_shape_and_so_do_their_results() -> None:
    calls = [
        ToolCall("c1", "patch", "*** Begin", type="custom_tool_call"),
        ToolCall("c2", "spawn", "{}", metadata={"namespace": "agents", "id": "fc_1"}),
        ToolCall("c3", "shell", '{"action":{"commands":["ls"]}}', type="shell_call", metadata={"status": "completed"}),
    ]
    shown = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    results = (tool_result("c1", "done"), tool_result("c2", 1), tool_result("c3", shown))
    assert sent(assistant(tool_calls=calls), *results) == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** Begin"},
        {"type": "function_call", "call_id": "c2", "name": "spawn", "arguments": "{}", "namespace": "agents"},
        {"type": "shell_call", "call_id": "c3", "action": {"commands": ["ls"]}, "status": "completed"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
        {"type": "function_call_output", "call_id": "c2", "output": "1"},
        {"type": "shell_call_output", "call_id": "c3", "output": shown},
    ]
    with pytest.raises(ContextError, match="not JSON"):
        sent(assistant(tool_calls=[ToolCall("c3", "shell", "{", type="shell_call")]))


class Place(msgspec.Struct):
    x: int


class Model(BaseModel):
    x: int


@dataclass
class Point:
    x: int


class Odd:
    def __str__(self) -> str:
        return "odd"


@requirement("driver:E10")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain ü", "plain ü"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        ([1, 2], "[1,2]"),
        (7, "7"),
        (True, "true"),
        (None, "null"),
        (Place(1), '{"x":1}'),
        (Model(x=1), '{"x":1}'),
        (Point(1), '{"x":1}'),
        (Odd(), "odd"),
    ],
)
def test_results_are_text(value: Any, text: str) -> None:
    assert sent(tool_result("call_1", value)) == [{"type": "function_call_output", "call_id": "call_1", "output": text}]


@requirement("driver:E10")
def test_results_with_images_are_parts() -> None:
    message = tool_result("call_1", {"n": 1}, "see", ImagePart(url="http://i/1"))
    assert sent(message)[0]["output"] == [
        {"type": "input_text", "text": '{"n":1}'},
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "http://i/1"},
    ]
    assert sent(Message("tool", [TextPart("a"), TextPart("b")], tool_call_id="c"))[0]["output"] == "ab"


@requirement("driver:E10")
def test_a_result_of_no_call_is_left_out() -> None:
    assert sent(user("hi"), Message("tool", [TextPart("lost")])) == sent(user("hi"))


@requirement("driver:E10")
def test_every_round_of_calls_goes_with_its_results() -> None:
    rounds = [
        message
        for number in range(3)
        for message in (
            assistant(tool_calls=[ToolCall(f"c{number}", "look")]),
            tool_result(f"c{number}", number),
        )
    ]
    kinds = [(item["type"], item["call_id"]) for item in sent(*rounds)]
    assert kinds == [(kind, f"c{n}") for n in range(3) for kind in ("function_call", "function_call_output")]


@requirement("driver:E11")
def test_results_beside_the_context_come_last_and_know_their_call() -> None:
    calls = [CALL, ToolCall("c2", "patch", "x", type="custom_tool_call")]
    outputs = [{"call_id": "call_1", "output": {"a": 1}}, {"call_id": "c2", "output": "ok"}, {"output": "nothing"}]
    assert sent(assistant(tool_calls=calls), user("well?"), tool_outputs=outputs)[-3:] == [
        *sent(user("well?")),
        {"type": "function_call_output", "call_id": "call_1", "output": '{"a":1}'},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
    ]


def thought(provider: str, index: int = 0, **fields: Any) -> ReasoningDetail:
    return ReasoningDetail(index, provider, provider_data={"id": f"rs_{index}", "type": "reasoning"}, **fields)


@requirement("driver:E19")
def test_a_request_goes_on_from_the_last_answer() -> None:
    details = [thought("openai", signature="enc")]
    messages = [
        user("one"),
        answer("resp_1", reasoning_details=details, tool_calls=[CALL]),
        tool_result("call_1", "blue"),
        answer("resp_2", reasoning_details=details),
        user("two"),
    ]
    body = encode(Context(messages), {}, OPENAI, "gpt-5")
    assert (body["previous_response_id"], body["store"]) == ("resp_2", True)
    assert body["input"] == sent(user("two"))


@requirement("driver:E19")
def test_an_option_comes_before_what_the_messages_say() -> None:
    messages = [user("one"), answer("resp_1"), user("two"), answer("resp_2"), user("three")]
    body = encode(messages, {"previous_response_id": "resp_1"}, OPENAI, "gpt-4.1")
    assert body["previous_response_id"] == "resp_1"
    assert body["input"] == sent(user("two"), answer("resp_2"), user("three"), chain=False)
    other = encode(messages, {"previous_response_id": "resp_9"}, OPENAI, "gpt-4.1")
    assert len(other["input"]) == 5


@requirement("driver:E19")
def test_a_result_knows_the_kind_of_its_call_though_the_endpoint_has_that() -> None:
    call = ToolCall("c2", "patch", "x", type="custom_tool_call")
    body = encode([user("go"), answer("resp_1", tool_calls=[call]), tool_result("c2", "ok")], {}, OPENAI)
    assert body["input"] == [{"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"}]


@requirement("driver:E19")
def test_all_is_sent_to_who_keeps_nothing_or_is_asked_to_forget() -> None:
    messages = [user("one"), answer("resp_1"), user("two")]
    for profile, options in ((VLLM, {}), (GENERIC, {}), (OPENAI, {"chain": False})):
        body = encode(messages, options, profile, "gpt-4.1")
        assert "previous_response_id" not in body
        assert "store" not in body
        assert len(body["input"]) == 3


@requirement("driver:E19")
def test_a_conversation_has_its_answers_already() -> None:
    messages = [user("one"), answer("resp_1"), user("two")]
    body = encode(messages, {"conversation": "conv_1"}, OPENAI, "gpt-4.1")
    assert body["conversation"] == "conv_1"
    assert "previous_response_id" not in body
    assert body["input"] == sent(user("two"))


@requirement("driver:E20")
def test_what_is_not_stored_is_not_gone_on_from_but_on_a_socket() -> None:
    messages = [user("one"), answer("resp_1", reasoning_details=[thought("openai", signature="enc")]), user("two")]
    body = encode(messages, {"store": False}, OPENAI, "gpt-5")
    assert body["store"] is False
    assert "previous_response_id" not in body
    assert [item.get("type", item.get("role")) for item in body["input"]] == ["user", "reasoning", "assistant", "user"]
    with pytest.warns(RequestWarning, match="previous_response_id"):
        encode(messages, {"store": False, "previous_response_id": "resp_1"}, OPENAI, "gpt-5")
    socket = encode(messages, {"store": False}, OPENAI, "gpt-5", websocket=True)
    assert (socket["store"], socket["previous_response_id"]) == (False, "resp_1")


@requirement("driver:E20")
@pytest.mark.parametrize("model", ["gpt-5-codex", "codex-mini-latest", "gpt-5.1-codex-max"])
def test_codex_models_do_not_store_unless_asked_to(model: str) -> None:
    messages = [user("one"), answer("resp_1"), user("two")]
    body = encode(messages, {}, OPENAI, model)
    assert body["store"] is False
    assert "previous_response_id" not in body
    assert encode(messages, {"store": True}, OPENAI, model)["previous_response_id"] == "resp_1"


@requirement("driver:E21")
def test_reasoning_goes_back_in_order_and_always_with_a_summary() -> None:
    details = [
        ReasoningDetail(3, "openai", text="b", signature="e3"),
        thought("openai", 1, signature="e1", encrypted=True),
        ReasoningDetail(
            2,
            "openai",
            text="a\n\nb",
            provider_data={"id": "rs_2", "summary": [{"type": "summary_text", "text": t} for t in "ab"]},
        ),
    ]
    assert sent(answer(reasoning_details=details)) == [
        {"type": "reasoning", "id": "rs_1", "encrypted_content": "e1", "summary": []},
        {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": t} for t in "ab"]},
        {"type": "reasoning", "encrypted_content": "e3", "summary": [{"type": "summary_text", "text": "b"}]},
        *sent(assistant("yes")),
    ]


@requirement("driver:E21")
@pytest.mark.parametrize("profile", [OPENAI, AZURE, META, ANTIPHON])
def test_reasoning_goes_back_to_the_provider_that_made_it(profile: Profile) -> None:
    own = thought(profile.name, signature="mine")
    other = thought("openai" if profile is not OPENAI else "azure", 1, signature="theirs")
    items = sent(answer(reasoning_details=[own, other]), profile=profile)
    assert [item.get("encrypted_content") for item in items] == ["mine", None]


@requirement("driver:E21")
def test_others_get_no_reasoning_back() -> None:
    message = answer(reasoning_details=[thought("generic", signature="x"), thought("vllm", signature="y")])
    assert sent(message, profile=GENERIC) == sent(assistant("yes"))
    assert [item["role"] for item in sent(message, profile=VLLM)] == ["assistant"]


BLOCK = {"type": "compaction", "id": "cmp_1", "encrypted_content": "zip"}


@requirement("driver:E22")
def test_a_leading_compaction_is_before_the_reasoning_and_others_where_they_were() -> None:
    own = ProviderBlock("compaction", BLOCK, "openai")
    message = assistant(own, "a", ProviderBlock("compaction", BLOCK | {"id": "cmp_2"}, "openai"), "b")
    message.reasoning_details = [thought("openai", signature="enc")]
    found = [item.get("id") or item["content"][0]["text"] for item in sent(message)]
    assert found == ["cmp_1", "rs_0", "a", "cmp_2", "b"]
    assert sent(message)[0] == BLOCK


@requirement("driver:E22")
def test_compactions_of_others_and_blocks_of_other_kinds_do_not_go() -> None:
    foreign = ProviderBlock("compaction", BLOCK, "azure")
    other = ProviderBlock("redacted", {"type": "redacted"}, "openai")
    assert sent(assistant(foreign, "a", other)) == sent(assistant("a"))


@requirement("driver:E22")
def test_items_that_were_kept_go_as_they_came() -> None:
    items = [BLOCK, {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []}]
    message = answer(metadata=MessageMetadata(responses_replay=ResponsesReplay(items, "openai")))
    assert sent(message) == items
    assert sent(message, profile=AZURE) == sent(assistant("yes"))


@requirement("driver:E22")
def test_nothing_of_that_goes_where_the_endpoint_has_it() -> None:
    message = answer("resp_1", metadata=MessageMetadata(responses_replay=ResponsesReplay([BLOCK], "openai")))
    message.content.insert(0, ProviderBlock("compaction", BLOCK, "openai"))
    assert sent(message, previous_response_id="resp_0") == sent(assistant("yes"))


@requirement("driver:E23")
def test_phases_are_kept_of_messages_items_and_parts() -> None:
    def said(text: str, phase: str | None) -> dict[str, Any]:
        item = {"role": "assistant", "content": [{"type": "output_text", "text": text}]}
        return item | {"phase": phase} if phase else item

    one = answer(metadata=MessageMetadata(phase="final_answer"))
    assert sent(one) == [said("yes", "final_answer")]
    items = [PhaseItem("hm", "commentary"), PhaseItem("so", None), PhaseItem("yes", "final_answer")]
    several = answer(text="hmsoyes", metadata=MessageMetadata(phase="final_answer", phase_items=items))
    assert sent(several) == [said("hm", "commentary"), said("so", None), said("yes", "final_answer")]
    parts = assistant(
        TextPart("a", metadata={"phase": "commentary"}),
        TextPart("b", metadata={"phase": "commentary"}),
        TextPart("c", metadata={"phase": "final_answer"}),
        TextPart("d", metadata={"phase": "other"}),
    )
    assert [(len(item["content"]), item.get("phase")) for item in sent(parts)] == [
        (2, "commentary"),
        (1, "final_answer"),
        (1, None),
    ]
    assert sent(answer(metadata=MessageMetadata(phase="other"))) == [said("yes", None)]
