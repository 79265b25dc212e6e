"""What a request body may hold, and what is refused with which parameter."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InvalidRequestError
from antiphon.protocol.depth import MAX_DEPTH
from antiphon.protocol.items import ItemReference, Message, RawItem, encode_item
from antiphon.protocol.json import encode, loads
from antiphon.protocol.request import CreateResponse, decode_create_response
from antiphon.protocol.tools import AllowedTools, FunctionChoice, FunctionTool, NamedToolChoice

NULLABLE = (
    "include instructions max_output_tokens metadata previous_response_id user store stream background temperature "
    "top_p top_logprobs tools tool_choice text reasoning truncation conversation service_tier prompt prompt_cache_key "
    "safety_identifier parallel_tool_calls max_tool_calls stream_options"
).split()


def decode(**fields) -> CreateResponse:
    return decode_create_response(encode({"model": "m", "input": "hi", **fields}))


def refused(body) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        decode_create_response(body if isinstance(body, bytes) else encode(body))
    return caught.value


@pytest.mark.requirement("wire:request:tolerance", "subset:M3")
@pytest.mark.parametrize(
    "fields",
    [
        {"client_metadata": {"a": 1}, "x_vendor": [1, {"b": None}]},
        {"text": {}},
        {"metadata": {}},
        {"include": None},
        {"include": []},
        {"include": ["something.new"]},
        {"tools": [], "tool_choice": "auto"},
        {"stream_options": {"include_obfuscation": False, "x": 1}},
        dict.fromkeys(NULLABLE),
        {"input": [{"role": "user", "content": "hi"}]},
        {"input": [{"role": "assistant", "content": "hi", "phase": None, "id": None, "status": None}]},
        {"input": [{"type": "reasoning", "summary": None, "encrypted_content": "x", "content": None}]},
        {"input": [{"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}, "deep": [{"x": 1}]}]},
        {"input": [{"type": "brand_new_item", "a": 1}]},
        {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a"}]}]},
        {
            "input": [
                {
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "a", "annotations": None, "logprobs": None}],
                }
            ]
        },
        {
            "tools": [
                {"type": "web_search", "external_web_access": True},
                {"type": "namespace", "name": "n", "tools": []},
            ]
        },
        {"tools": [{"type": "function", "name": "f"}]},
    ],
)
def test_what_clients_are_seen_to_send_is_accepted(fields):
    assert isinstance(decode(**fields), CreateResponse)


@pytest.mark.requirement("wire:request:input-string", "subset:M2")
def test_a_string_is_one_user_message_with_one_text_part():
    (message,) = decode(input="hello").items
    assert loads(encode_item(message)) | {"id": None} == {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "hello"}],
        "id": None,
        "status": "completed",
    }


@pytest.mark.requirement("wire:items:chat-spellings")
def test_chat_spellings_of_parts_are_taken_as_the_parts_they_mean():
    content = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
        {"type": "image_url", "image_url": "https://x/z.png"},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        {"type": "video_url", "video_url": {"url": "https://x/v.mp4"}},
    ]
    for item in (
        {"role": "user", "content": content},
        {"type": "function_call_output", "call_id": "c", "output": content},
    ):
        (decoded,) = decode(input=[item]).items
        stored = loads(encode_item(decoded))
        assert [part["type"] for part in stored.get("content") or stored["output"]] == [
            "input_text",
            "input_image",
            "input_image",
            "input_audio",
            "video_url",
        ]
        assert (stored.get("content") or stored["output"])[1]["detail"] == "low"


@pytest.mark.requirement("wire:items:assistant-text")
def test_assistant_text_is_stored_as_output_text():
    (message,) = decode(input=[{"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}]).items
    assert isinstance(message, Message)
    assert message.content[0].__struct_config__.tag == "output_text"


@pytest.mark.requirement("wire:items:reference")
def test_an_id_without_type_and_role_is_a_reference():
    assert decode(input=[{"id": "msg_1"}]).items == [ItemReference("msg_1")]
    assert decode(input=[{"type": "item_reference", "id": "msg_1"}]).items == [ItemReference("msg_1")]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.requirement("wire:items:lossless")
@given(st.dictionaries(st.text(min_size=1, max_size=8), json_values, max_size=6), st.text(min_size=1, max_size=10))
def test_an_item_of_a_type_that_is_not_acted_on_is_kept_whole(extra, kind):
    item = {**extra, "type": f"x_{kind}", "id": "item_1"}
    (decoded,) = decode(input=[item]).items
    assert isinstance(decoded, RawItem)
    assert loads(encode_item(decoded)) == item


@pytest.mark.requirement("wire:tools:lossless", "subset:M8")
@given(st.dictionaries(st.text(min_size=1, max_size=8), json_values, max_size=6))
def test_a_tool_of_a_type_that_is_not_run_is_kept_whole(extra):
    tool = {**extra, "type": "web_search"}
    assert decode(tools=[tool]).tools == [tool]


@pytest.mark.requirement("wire:tool-choice")
def test_tool_choices_of_every_form_are_typed_and_the_nested_form_is_flat():
    assert decode(tool_choice="required").tool_choice == "required"
    assert decode(tool_choice={"type": "function", "name": "f"}).tool_choice == FunctionChoice("f")
    nested = decode(tool_choice={"type": "function", "function": {"name": "f"}}).tool_choice
    assert loads(encode(nested)) == {"type": "function", "name": "f"}
    allowed = decode(
        tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}
    )
    assert isinstance(allowed.tool_choice, AllowedTools)
    assert isinstance(decode(tool_choice={"type": "mcp", "server_label": "s"}).tool_choice, NamedToolChoice)


@pytest.mark.requirement("wire:tools:function")
def test_a_function_tool_needs_only_a_name():
    (tool,) = decode(tools=[{"type": "function", "name": "f", "unknown": 1}]).tools
    assert tool == FunctionTool("f")


REFUSALS = [
    ({"input": 5}, "input", "invalid_value"),
    ({"input": [5]}, "input[0]", "invalid_value"),
    ({"input": [{"type": "message", "content": "x"}]}, "input[0].role", "missing_required_parameter"),
    ({"input": [{"type": "message", "role": "robot", "content": "x"}]}, "input[0].role", "invalid_value"),
    ({"input": [{"role": "user", "content": 5}]}, "input[0].content", "invalid_value"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
        "input[0].content[0].text",
        "missing_required_parameter",
    ),
    ({"input": [{"role": "user", "content": [{"type": "hologram"}]}]}, "input[0].content[0].type", "invalid_value"),
    (
        {"input": [{"type": "function_call", "call_id": "c", "name": "f"}]},
        "input[0].arguments",
        "missing_required_parameter",
    ),
    ({"input": [{}]}, "input[0].id", "missing_required_parameter"),
    (
        {"input": [{"role": "user", "content": [{"type": "missing required field"}]}]},
        "input[0].content[0].type",
        "invalid_value",
    ),
    ({"text": {"verbosity": "shrill"}}, "text.verbosity", "invalid_value"),
    ({"stop": ["x"] * 17}, "stop", "array_above_max_length"),
    ({"stop": "x" * 257}, "stop", "array_above_max_length"),
    ({"repeat_penalty": 0}, "repeat_penalty", "invalid_value"),
    ({"temperature": 2.1}, "temperature", "invalid_value"),
    ({"temperature": "hot"}, "temperature", "invalid_value"),
    ({"top_p": -0.1}, "top_p", "invalid_value"),
    ({"top_logprobs": 21}, "top_logprobs", "invalid_value"),
    ({"max_output_tokens": 0}, "max_output_tokens", "integer_below_min_value"),
    ({"max_tool_calls": 0}, "max_tool_calls", "integer_below_min_value"),
    ({"truncation": "sometimes"}, "truncation", "invalid_value"),
    ({"metadata": {str(n): "v" for n in range(17)}}, "metadata", "object_above_max_properties"),
    ({"metadata": {"k" * 65: "v"}}, "metadata", "string_above_max_length"),
    ({"metadata": {"k": "v" * 513}}, "metadata.k", "string_above_max_length"),
    ({"metadata": {"k": 1}}, "metadata", "invalid_value"),
    ({"prompt_cache_key": "k" * 65}, "prompt_cache_key", "string_above_max_length"),
    ({"tools": [{"name": "f"}]}, "tools[0].type", "missing_required_parameter"),
    ({"tools": [{"type": "function"}]}, "tools[0].name", "missing_required_parameter"),
    ({"tools": [{"type": "function", "name": ""}]}, "tools[0].name", "invalid_value"),
    ({"tools": [{"type": "function", "name": "f", "parameters": "x"}]}, "tools[0].parameters", "invalid_value"),
    ({"tool_choice": "maybe"}, "tool_choice", "invalid_value"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.name", "missing_required_parameter"),
    ({"tool_choice": {"type": "function", "name": ""}}, "tool_choice.name", "missing_required_parameter"),
    ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice.tools", "invalid_value"),
    ({"tool_choice": 5}, "tool_choice", "invalid_value"),
    ({"text": {"format": {}}}, "text.format.type", "missing_required_parameter"),
    ({"reasoning": {"effort": 5}}, "reasoning.effort", "invalid_value"),
]


@pytest.mark.requirement("wire:request:param", "subset:M23", "subset:M29", "subset:M30")
@pytest.mark.parametrize(("fields", "param", "code"), REFUSALS, ids=[repr(row[0])[:60] for row in REFUSALS])
def test_a_field_at_fault_is_named_by_its_path(fields, param, code):
    error = refused({"model": "m", "input": "hi", **fields})
    assert (error.http_status, error.type, error.param, error.code) == (400, "invalid_request_error", param, code)


@pytest.mark.requirement("wire:request:limits")
def test_sixteen_metadata_entries_at_their_full_lengths_are_accepted():
    metadata = {str(n).rjust(64, "k"): "v" * 512 for n in range(16)}
    assert decode(metadata=metadata).metadata == metadata
    assert decode(max_output_tokens=1).max_output_tokens == 1


@pytest.mark.requirement("wire:json:malformed")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nul",
        b'{"model": "m",}',
        b'{"model": NaN}',
        b'{"temperature": Infinity}',
        b'{"temperature": 1e999}',
        b'{"input": "\\ud800"}',
        b'{"input": "\xff"}',
        b'{"input": "\xed\xa0\x80"}',
        b"[]",
        b'"text"',
        b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"input": [' + b'{"type":"x","a":' * 5_000 + b"1" + b"}" * 5_000 + b"]}",
        b'{"max_output_tokens": ' + b"9" * 4_301 + b"}",
    ],
    ids=range(15),
)
def test_malformed_deep_or_unfit_json_is_a_400(body):
    error = refused(body)
    assert error.http_status == 400
    assert error.type == "invalid_request_error"


def nested(levels: int) -> object:
    value: object = {"deep": ["}]", {}]}
    for _ in range(levels - 3):
        value = [value]
    return value


@pytest.mark.requirement("wire:json:depth")
@pytest.mark.parametrize(
    ("place", "around"),
    [
        (lambda deep: {"input": [{"type": "x", "a": deep}]}, 1),
        (
            lambda deep: {
                "input": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"a": deep}}]}]
            },
            1,
        ),
        (
            lambda deep: {
                "input": [
                    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "", "caller": {"a": deep}}
                ]
            },
            1,
        ),
        (lambda deep: {"tools": [{"type": "x", "a": deep}]}, 1),
        (lambda deep: {"tools": [{"type": "function", "name": "f", "parameters": {"a": deep}}]}, 1),
        (lambda deep: {"tool_choice": {"type": "mcp", "a": deep}}, 1),
        (lambda deep: {"text": {"format": {"type": "json_schema", "schema": {"a": deep}}}}, 1),
        (lambda deep: {"chat_template_kwargs": {"a": deep}}, 1),
        (lambda deep: {"prompt": {"a": deep}}, 1),
    ],
    ids=range(9),
)
def test_what_is_kept_whole_may_nest_128_levels_and_no_more(place, around):
    assert decode(**place(nested(MAX_DEPTH - around)))
    error = refused({"model": "m", "input": "hi", **place(nested(MAX_DEPTH - around + 1))})
    assert error.code == "invalid_json"


@pytest.mark.requirement("wire:json:depth")
def test_a_long_string_full_of_brackets_costs_what_any_string_costs():
    text = "[" * 200 + "a" * 8_000_000
    began = time.process_time()
    assert decode(tools=[{"type": "x", "a": text}], input=[{"type": "y", "a": text}])
    assert time.process_time() - began < 2


@pytest.mark.requirement("wire:request:quoted")
@pytest.mark.parametrize(
    "fields",
    [
        {"truncation": "x" * 100_000},
        {"input": [{"role": "x" * 100_000, "content": "a"}]},
        {"tool_choice": "x" * 100_000},
        {"text": {"verbosity": "x" * 100_000}},
        {"input": [{"role": "user", "content": [{"type": "x" * 100_000}]}]},
    ],
)
def test_a_message_repeats_only_a_little_of_what_was_sent(fields):
    assert len(refused({"model": "m", "input": "hi", **fields}).message) < 500


@pytest.mark.requirement("wire:json:malformed")
@given(st.binary(max_size=200))
def test_no_body_raises_anything_but_a_400(body):
    try:
        decode_create_response(body)
    except InvalidRequestError as error:
        assert error.message
