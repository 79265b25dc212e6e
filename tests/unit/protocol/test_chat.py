"""Chat bodies: every field lands where a request for a response has it, and what is at fault has its chat name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InvalidRequestError, UnsupportedError
from antiphon.protocol.chat import LOGPROBS, ChatRequest, check_choices, decode_chat_request
from antiphon.protocol.completions import decode_completion_request
from antiphon.protocol.items import encode_item
from antiphon.protocol.tools import AllowedTools, CustomTool, FunctionChoice, FunctionTool, NamedToolChoice

requirement = pytest.mark.requirement
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


def read(messages: Any = None, **fields: Any) -> ChatRequest:
    return decode_chat_request(msgspec.json.encode({"messages": HI if messages is None else messages, **fields}))


def items(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    """The items of messages, without ids, defaults and what is empty."""
    found = [msgspec.json.decode(encode_item(item)) for item in read(list(messages)).request.items]
    return [
        {name: value for name, value in item.items() if name not in ("id", "status") and value not in ([], None)}
        for item in found
    ]


def refusal(data: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        decode_chat_request(data if isinstance(data, bytes) else msgspec.json.encode(data))
    return caught.value


@requirement("chat:messages")
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            {"role": "developer", "content": "Be kind."},
            [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]}],
        ),
        (
            {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            [
                {
                    "type": "message",
                    "role": "system",
                    "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
                }
            ],
        ),
        (
            {
                "role": "user",
                "name": "ann",
                "content": [
                    {"type": "image_url", "image_url": {"url": "https://a.example/i.png", "detail": "low"}},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                    {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
                    {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,AA=="}},
                    {"type": "file", "file": {"file_id": "file_1"}},
                ],
            },
            [
                {
                    "type": "message",
                    "role": "user",
                    "content": [
                        {
                            "type": "input_image",
                            "image_url": "https://a.example/i.png",
                            "file_id": None,
                            "detail": "low",
                        },
                        {
                            "type": "input_image",
                            "image_url": "data:image/png;base64,AA==",
                            "file_id": None,
                            "detail": "auto",
                        },
                        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
                        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,AA=="},
                        {"type": "input_file", "file_id": "file_1"},
                    ],
                }
            ],
        ),
        (
            {
                "role": "assistant",
                "content": "Let me see.",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                    {"id": "c2", "function": {"name": "f", "arguments": {"a": 2}}},
                    {"id": "c3", "type": "custom", "custom": {"name": "note", "input": "x"}},
                ],
            },
            [
                {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}],
                },
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
                {"type": "function_call", "call_id": "c2", "name": "f", "arguments": '{"a":2}'},
                {"type": "custom_tool_call", "call_id": "c3", "name": "note", "input": "x"},
            ],
        ),
        (
            {"role": "assistant", "content": None, "reasoning": "aha", "refusal": "No."},
            [
                {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "aha"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            ],
        ),
        ({"role": "assistant", "content": "", "reasoning": {"text": "no text"}}, []),
        (
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "12"}]},
            [
                {
                    "type": "function_call_output",
                    "call_id": "c1",
                    "output": [{"type": "input_text", "text": "12"}],
                }
            ],
        ),
        (
            {"role": "function", "name": "f", "content": "12"},
            [{"type": "function_call_output", "call_id": "function_call", "output": "12"}],
        ),
    ],
)
def test_a_message_is_the_items_of_a_response(message: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    assert items(message) == expected


@requirement("chat:messages")
def test_what_a_custom_tool_gave_is_known_by_its_call() -> None:
    called = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "n", "input": ""}}]}
    gave = {"role": "tool", "tool_call_id": "c1", "content": "done"}
    assert [item["type"] for item in items(called, gave)] == ["custom_tool_call", "custom_tool_call_output"]
    old = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
    assert [item["call_id"] for item in items(old, {"role": "function", "content": "x"})] == ["function_call"] * 2


@requirement("chat:request")
def test_the_fields_of_a_chat_request_are_those_of_a_response() -> None:
    asked = read(
        model="m",
        reasoning_effort="high",
        max_tokens=5,
        n=3,
        logprobs=True,
        top_logprobs=2,
        verbosity="low",
        response_format={"type": "json_object"},
        parallel_tool_calls=False,
        temperature=0.5,
        top_p=0.9,
        top_k=3,
        min_p=0.1,
        presence_penalty=1,
        frequency_penalty=-1,
        repeat_penalty=1.1,
        seed=4,
        stop="end",
        metadata={"a": "b"},
        user="u",
        store=True,
        stream=True,
        stream_options={"include_usage": True},
        chat_template_kwargs={"enable_thinking": False},
        service_tier="flex",
        safety_identifier="s",
        prompt_cache_key="k",
        truncation="auto",
        unknown={"x": 1},
        modalities=["text"],
    )
    request = asked.request
    assert (asked.choices, asked.include_usage, asked.limit) == (3, True, "max_tokens")
    assert (request.model, request.reasoning.effort, request.max_output_tokens) == ("m", "high", 5)
    assert (request.include, request.top_logprobs) == ([LOGPROBS], 2)
    assert request.text.format is not None
    assert (request.text.format.type, request.text.verbosity) == ("json_object", "low")
    assert (request.temperature, request.top_p, request.top_k, request.min_p) == (0.5, 0.9, 3, 0.1)
    assert (request.presence_penalty, request.frequency_penalty, request.repeat_penalty) == (1, -1, 1.1)
    assert (request.seed, request.stop, request.parallel_tool_calls) == (4, ["end"], False)
    assert (request.metadata, request.user, request.store, request.stream) == ({"a": "b"}, "u", True, True)
    assert (request.chat_template_kwargs, request.truncation) == ({"enable_thinking": False}, "auto")
    assert not request.background
    assert request.previous_response_id is None


@requirement("chat:request")
def test_a_null_is_an_absent_field() -> None:
    names = ("tools", "tool_choice", "response_format", "n", "logprobs", "top_logprobs", "stream_options", "stop")
    more = ("functions", "function_call", "audio", "modalities", "reasoning", "max_tokens", "metadata")
    assert read(**dict.fromkeys([*names, *more])) == read()


@requirement("chat:request")
def test_the_newer_limit_wins_and_reasoning_may_be_an_object() -> None:
    asked = read(max_tokens=5, max_completion_tokens=7, reasoning={"effort": "low"})
    assert (asked.request.max_output_tokens, asked.limit) == (7, "max_completion_tokens")
    assert asked.request.reasoning.effort == "low"
    assert read(reasoning={"effort": "low"}, reasoning_effort="none").request.reasoning.effort == "none"


@requirement("chat:tools")
def test_tools_come_nested_or_flat() -> None:
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "a"'}}
    tools = read(
        tools=[
            {"type": "function", "function": function},
            {"type": "function", **function},
            {"type": "custom", "custom": {"name": "note"}},
            {"type": "custom", "custom": {"name": "poem", "format": grammar}},
            {"type": "custom", "custom": {"name": "free", "format": {"type": "text"}}},
        ]
    ).request.tools
    assert tools[0] == tools[1] == FunctionTool("f", {"type": "object"}, True, "d")
    assert tools[2] == CustomTool("note")
    assert tools[3] == CustomTool("poem", format={"type": "grammar", "syntax": "lark", "definition": 'start: "a"'})
    assert tools[4] == CustomTool("free", format={"type": "text"})


@requirement("chat:tools")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("required", "required"),
        ({"type": "function", "function": {"name": "f"}}, FunctionChoice("f")),
        ({"type": "function", "name": "f"}, FunctionChoice("f")),
        (
            {"type": "custom", "custom": {"name": "note"}},
            NamedToolChoice("custom", "note", {"type": "custom", "name": "note"}),
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function"}]}},
            AllowedTools("auto", [{"type": "function"}]),
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function"}]},
            AllowedTools("auto", [{"type": "function"}]),
        ),
    ],
)
def test_every_form_of_tool_choice_is_read(given: Any, expected: Any) -> None:
    assert read(tool_choice=given).request.tool_choice == expected


DEEP: Any = "x"
for _ in range(200):
    DEEP = [DEEP]


@requirement("chat:errors")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [*HI, {"content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "video", "x": 1}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]},
            "messages[0].tool_calls[0].id",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]}]},
            "messages[0].tool_calls[0].function",
        ),
        ({"messages": HI * 10_001}, "messages"),
        ({"messages": HI, "n": 0}, "n"),
        ({"messages": HI, "n": 129}, "n"),
        ({"messages": HI, "max_tokens": 0}, "max_tokens"),
        ({"messages": HI, "max_completion_tokens": 0}, "max_completion_tokens"),
        ({"messages": HI, "top_logprobs": 2}, "top_logprobs"),
        ({"messages": HI, "logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"messages": HI, "temperature": 3}, "temperature"),
        ({"messages": HI, "verbosity": "loud"}, "verbosity"),
        ({"messages": HI, "tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"messages": HI, "tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"messages": HI, "tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"messages": HI, "tools": [{"function": {"name": "f"}}]}, "tools[0].type"),
        (
            {"messages": HI, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": DEEP}}}]},
            "tools[0].function",
        ),
        ({"messages": HI, "tool_choice": "perhaps"}, "tool_choice"),
        (
            {"messages": HI, "response_format": {"type": "json_schema", "json_schema": {"schema": {"a": DEEP}}}},
            "response_format.json_schema",
        ),
        ({"messages": HI, "functions": [{"name": "f"}]}, "functions"),
        ({"messages": HI, "function_call": "auto"}, "function_call"),
        ({"messages": HI, "modalities": ["text", "audio"]}, "modalities"),
        ({"messages": HI, "audio": {"voice": "ash"}}, "audio"),
        ({"messages": HI, "web_search_options": {"user_location": None}}, "web_search_options"),
        ({"messages": HI, "logit_bias": {"one": 2}}, "logit_bias"),
        ({"messages": HI, "metadata": {"k": "v" * 513}}, "metadata.k"),
    ],
)
def test_a_field_at_fault_is_named(body: dict[str, Any], param: str) -> None:
    assert refusal(body).param == param


@requirement("chat:errors")
def test_what_is_no_body_is_refused() -> None:
    for body in (b"", b"[]", b"{", b'{"messages":[NaN]}', b'{"messages":' + b"[" * 100_000):
        assert refusal(body).http_status == 400


@requirement("chat:errors")
@pytest.mark.parametrize(
    ("param", "chat", "message", "told"),
    [
        ("input", "messages", "The 'input' is empty.", "The 'messages' is empty."),
        ("input", "messages", "No word of JSON for 'text.format'.", "No word of JSON for 'response_format'."),
        ("input[2].content[1]", "messages[1].content[1]", "no", "no"),
        ("input[1].output[0]", "messages[1].content[0]", "no", "no"),
        ("text.format.type", "response_format.type", "Invalid 'text.format.type'.", "Invalid 'response_format.type'."),
        ("text.format.schema", "response_format.json_schema.schema", "no", "no"),
        ("max_output_tokens", "max_tokens", "Invalid 'max_output_tokens'.", "Invalid 'max_tokens'."),
        ("reasoning.effort", "reasoning_effort", "no", "no"),
        ("tools[0].name", "tools[0].function.name", "At 'tools[0].name'.", "At 'tools[0].function.name'."),
        ("tools[1].parameters", "tools[1].parameters", "no", "no"),
        ("tools[2].format", "tools[2].custom.format", "no", "no"),
        ("tools[0]", "tools[0]", "no", "no"),
        ("tools", "tools", "no", "no"),
        (None, None, "no", "no"),
    ],
)
def test_an_error_about_the_response_gets_its_chat_name(
    param: str | None, chat: str | None, message: str, told: str
) -> None:
    assistant = {"role": "assistant", "content": "a", "reasoning_content": "r"}
    tools = [{"type": "function", "function": {"name": "f"}}, {"type": "function", "name": "f"}]
    asked = read([*HI, assistant], max_tokens=3, tools=[*tools, {"type": "custom", "custom": {"name": "n"}}])
    assert asked.places == [0, 1, 1]
    error = asked.named(InvalidRequestError(message, param=param))
    assert (error.param, error.message) == (chat, told)


@requirement("chat:choices:bound")
def test_the_number_of_answers_is_bounded_by_what_may_run() -> None:
    check_choices(4, 4)
    check_choices(128, 1000)
    for turns, most in ((5, 4), (129, 1000)):
        with pytest.raises(InvalidRequestError) as caught:
            check_choices(turns, most)
        assert caught.value.param == "n"


WORDS = ("type", "role", "content", "id", "function", "name", "text", "custom", "tool_calls")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("messages", "tools", "tool_choice", "response_format", "prompt", "n", "logprobs", "stop", "stream_options")


@requirement("chat:errors")
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON)))
def test_any_json_is_read_or_refused(body: dict[str, Any]) -> None:
    for decode in (decode_chat_request, decode_completion_request):
        try:
            decode(msgspec.json.encode(body))
        except InvalidRequestError as error:
            assert error.http_status == 400


@requirement("completions:request")
@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (None, [""]),
        ("", [""]),
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_a_prompt_is_text_or_tokens_or_several(prompt: Any, expected: list[Any]) -> None:
    asked = decode_completion_request(msgspec.json.encode({"prompt": prompt}))
    assert asked.prompts == expected
    assert asked.request.max_output_tokens == 16


@requirement("completions:request", "subset:M7")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": "  \n"}, "prompt"),
        ({"prompt": ["a", " "]}, "prompt[1]"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [1, [2]]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [2**31]}, "prompt"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "best_of": 2}, "best_of"),
        ({"prompt": "a", "logit_bias": {"1": 101}}, "logit_bias"),
        ({"prompt": "a", "echo": True, "logprobs": 1}, "echo"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
        ({"prompt": "a", "n": 0}, "n"),
    ],
)
def test_a_field_of_a_completion_at_fault_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_completion_request(msgspec.json.encode(fields))
    assert caught.value.param is not None
    assert caught.value.param.startswith(param)
    assert isinstance(caught.value, UnsupportedError) == (param in ("suffix", "best_of", "echo"))


@requirement("completions:request")
def test_fields_that_change_nothing_are_taken() -> None:
    fields = {"suffix": "", "best_of": 2, "n": 2, "logit_bias": {}, "echo": False, "logprobs": None, "user": "u"}
    asked = decode_completion_request(msgspec.json.encode({"prompt": "a", **fields, "stream_options": None}))
    assert (asked.choices, asked.echo, asked.include_usage, asked.request.include) == (2, False, False, [])
