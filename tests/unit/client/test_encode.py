"""What becomes of options: each field as the provider and the model take it, with a warning where it is changed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from antiphon.client.context import Context, Message, MessageMetadata, ReasoningDetail, Tool, assistant, system, user
from antiphon.client.encode import encode, encode_compact, socket_frame
from antiphon.client.errors import DriverError
from antiphon.client.formats import format_schema
from antiphon.client.options import KNOWN_OPTIONS, RequestWarning
from antiphon.client.profiles import ANTIPHON, AZURE, GENERIC, META, MIXEDBREAD, OPENAI, VLLM, Profile

requirement = pytest.mark.requirement


def body_of(options: Mapping[str, Any] | None = None, profile: Profile = OPENAI, model: str = "gpt-4.1") -> Any:
    return encode("hi", options, profile, model)


@requirement("driver:E2")
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"max_output_tokens": 100, "max_completion_tokens": 200, "max_tokens": 300}, 100),
        ({"max_completion_tokens": 200, "max_tokens": 300}, 200),
        ({"max_tokens": 300}, 300),
        ({"max_output_tokens": None, "max_tokens": 16}, 16),
    ],
)
def test_the_first_name_of_the_token_limit_counts(options: dict[str, Any], wanted: int) -> None:
    body = body_of(options)
    assert body["max_output_tokens"] == wanted
    assert not {"max_completion_tokens", "max_tokens"} & body.keys()


@requirement("driver:E2")
@pytest.mark.parametrize("profile", [OPENAI, AZURE, MIXEDBREAD])
def test_too_few_tokens_are_raised_with_a_warning(profile: Profile) -> None:
    with pytest.warns(RequestWarning, match="16 instead of 15"):
        assert body_of({"max_tokens": 15}, profile)["max_output_tokens"] == 16


@requirement("driver:E2", "driver:profiles")
@pytest.mark.parametrize("profile", [ANTIPHON, VLLM, GENERIC])
def test_others_take_a_single_token(profile: Profile) -> None:
    assert body_of({"max_tokens": 1}, profile)["max_output_tokens"] == 1


@requirement("driver:E3")
@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-mini", "gpt-5.1", "o1", "o3-mini", "o4-mini-2025-04-16", "gpt-6"])
@pytest.mark.parametrize("name", ["temperature", "top_p"])
def test_models_of_openai_that_reason_get_no_sampling(model: str, name: str) -> None:
    for profile in (OPENAI, AZURE):
        with pytest.warns(RequestWarning, match=name):
            assert name not in body_of({name: 0.5}, profile, model)


@requirement("driver:E3")
def test_gpt_6_takes_sampling_where_it_does_not_reason() -> None:
    options = {"temperature": 0.0, "top_p": 0.5, "reasoning_effort": "none"}
    body = body_of(options, OPENAI, "gpt-6-mini")
    assert (body["temperature"], body["top_p"]) == (0.0, 0.5)
    with pytest.warns(RequestWarning):
        assert "temperature" not in body_of(options, OPENAI, "gpt-5")


@requirement("driver:E3")
@pytest.mark.parametrize(
    ("profile", "model"),
    [(OPENAI, "gpt-4.1"), (OPENAI, "gpt-4o-mini"), (ANTIPHON, "gpt-5"), (VLLM, "o3"), (GENERIC, "gpt-5")],
)
def test_all_others_get_sampling(profile: Profile, model: str) -> None:
    body = body_of({"temperature": 0.0, "top_p": 1.0}, profile, model)
    assert (body["temperature"], body["top_p"]) == (0.0, 1.0)


@requirement("driver:E15")
@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "tool", "name": "look"}, {"type": "function", "name": "look"}),
        ({"type": "function", "name": "look"}, {"type": "function", "name": "look"}),
        ({"type": "function", "function": {"name": "look"}}, {"type": "function", "name": "look"}),
        (Tool("look"), {"type": "function", "name": "look"}),
        ({"type": "file_search"}, {"type": "file_search"}),
        ({"type": "mcp", "server_label": "s"}, {"type": "mcp", "server_label": "s"}),
    ],
)
def test_a_choice_of_a_tool_is_flat(choice: Any, wanted: Any) -> None:
    assert body_of({"tool_choice": choice})["tool_choice"] == wanted


@requirement("driver:E15")
@pytest.mark.parametrize("choice", ["sometimes", {"type": "other"}, {"type": "function"}, 7, {}])
def test_what_is_no_choice_is_left_out(choice: Any) -> None:
    with pytest.warns(RequestWarning, match="tool_choice"):
        assert "tool_choice" not in body_of({"tool_choice": choice})


class Effort(Enum):
    HIGH = "high"


@requirement("driver:E16")
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"reasoning_effort": "high"}, {"effort": "high"}),
        ({"reasoning_effort": Effort.HIGH}, {"effort": "high"}),
        ({"reasoning_effort": "minimal", "reasoning_summary": "auto"}, {"effort": "minimal", "summary": "auto"}),
        ({"reasoning_summary": "auto", "reasoning_context": "all_turns"}, {"summary": "auto", "context": "all_turns"}),
        ({"reasoning": {"effort": "low", "summary": None, "mode": "pro"}}, {"effort": "low", "mode": "pro"}),
        ({"reasoning": {"effort": "low"}, "reasoning_effort": "xhigh"}, {"effort": "xhigh"}),
        ({"reasoning_effort": "default", "reasoning_summary": "auto"}, {"summary": "auto"}),
        ({"reasoning_effort": "default"}, None),
        ({}, None),
    ],
)
def test_effort_summary_and_context_make_reasoning(options: dict[str, Any], wanted: Any) -> None:
    assert body_of(options, OPENAI, "gpt-5").get("reasoning") == wanted


@requirement("driver:E16")
def test_an_effort_that_nobody_knows_is_refused_and_a_budget_not_sent() -> None:
    with pytest.raises(DriverError, match="effort"):
        body_of({"reasoning_effort": "huge"})
    with pytest.warns(RequestWarning, match="reasoning_token_budget"):
        assert body_of({"reasoning_token_budget": 100}).keys() == {"model", "input"}


ENCRYPTED = ["reasoning.encrypted_content"]


@requirement("driver:E17")
@pytest.mark.parametrize(
    ("profile", "model", "wanted"),
    [
        (OPENAI, "gpt-5", ENCRYPTED),
        (AZURE, "o3", ENCRYPTED),
        (META, "muse-spark-1.1", ENCRYPTED),
        (ANTIPHON, "smollm2", ENCRYPTED),
        (OPENAI, "gpt-4.1", None),
        (OPENAI, "gpt-5-chat-latest", None),
        (VLLM, "openai/gpt-oss-20b", None),
        (GENERIC, "gpt-5", None),
    ],
)
def test_models_that_reason_are_asked_for_it_encrypted(profile: Profile, model: str, wanted: Any) -> None:
    assert body_of({}, profile, model).get("include") == wanted


@requirement("driver:E17")
def test_what_is_to_be_included_is_said_by_the_caller_before_all() -> None:
    assert body_of({"include": []}, OPENAI, "gpt-5")["include"] == []
    assert body_of({"include": ("a",)}, OPENAI, "gpt-4.1")["include"] == ["a"]


class Place(msgspec.Struct):
    """Somewhere."""

    name: str
    x: int = 0


class Model(BaseModel):
    name: str
    x: int = 0


@dataclass
class Point:
    name: str
    x: int = 0


@requirement("driver:E18")
@pytest.mark.parametrize("kind", [Place, Model, Point])
@pytest.mark.parametrize("option", ["text_format", "response_format"])
def test_a_type_makes_a_strict_format(kind: type, option: str) -> None:
    form = body_of({option: kind})["text"]["format"]
    assert [form["type"], form["name"], form["strict"]] == ["json_schema", kind.__name__, True]
    schema = form["schema"]
    assert list(schema["properties"]) == schema["required"] == ["name", "x"]
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    held_against = format_schema(kind)
    assert held_against is not None
    assert held_against["required"] == ["name"]


SCHEMA = {"type": "object", "title": "Some Place", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}


@requirement("driver:E18")
def test_a_schema_and_formats_of_either_api_make_a_format() -> None:
    closed = {**SCHEMA, "required": ["b", "a"], "additionalProperties": False}
    assert body_of({"text_format": SCHEMA})["text"] == {
        "format": {"type": "json_schema", "name": "Some_Place", "strict": True, "schema": closed}
    }
    flat = {"type": "json_schema", "name": "p", "strict": False, "schema": SCHEMA}
    nested = {"type": "json_schema", "json_schema": {"name": "p", "strict": False, "schema": SCHEMA}}
    assert body_of({"text_format": flat})["text"]["format"] == flat
    assert body_of({"text_format": nested})["text"]["format"] == flat
    assert body_of({"text_format": "json_object"})["text"] == {"format": {"type": "json_object"}}
    assert body_of({"text_format": {"type": "text"}})["text"] == {"format": {"type": "text"}}
    assert format_schema(SCHEMA) == format_schema(flat) == format_schema(nested) == SCHEMA
    assert format_schema("json_object") == {"type": "object"}
    assert format_schema("text") is format_schema({"type": "text"}) is format_schema(None) is None


@requirement("driver:E18")
def test_a_schema_that_is_open_is_not_strict() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}}
    form = body_of({"text_format": schema})["text"]["format"]
    assert (form["strict"], form["schema"]) == (False, schema)


@requirement("driver:E18")
def test_verbosity_stands_beside_the_format_and_neither_is_nothing() -> None:
    assert body_of({"verbosity": "low"})["text"] == {"verbosity": "low"}
    both = body_of({"verbosity": "low", "text_format": Place})["text"]
    assert both.keys() == {"format", "verbosity"}
    assert "text" not in body_of()


@requirement("driver:E18")
@pytest.mark.parametrize("wanted", ["yaml", int, list[int], 7])
def test_what_is_no_format_is_refused(wanted: Any) -> None:
    with pytest.raises(DriverError):
        body_of({"text_format": wanted})


@requirement("driver:E18")
def test_who_knows_no_formats_gets_a_tool_of_that_form() -> None:
    body = body_of({"text_format": Place}, MIXEDBREAD, "toast-1")
    assert "text" not in body
    [tool] = body["tools"]
    assert (tool["name"], tool["strict"], tool["parameters"]["required"]) == ("structured_output", True, ["name", "x"])
    assert body["tool_choice"] == {"type": "function", "name": "structured_output"}
    beside = body_of({"text_format": Place, "tools": [{"type": "search_corpus"}]}, MIXEDBREAD, "toast-1")
    assert [tool.get("name") for tool in beside["tools"]] == [None, "structured_output"]
    assert beside["tool_choice"] == "required"


@requirement("driver:E24")
def test_context_management_is_a_list_of_mappings() -> None:
    entry = {"type": "compaction", "compact_threshold": 1000}
    assert body_of({"context_management": (entry,)})["context_management"] == [entry]
    assert "context_management" not in body_of({"context_management": []})


@requirement("driver:E25")
def test_a_compaction_names_the_answer_or_brings_the_whole_conversation() -> None:
    message = Message("assistant", metadata=MessageMetadata(response_id="resp_1"))
    message.reasoning_details = [ReasoningDetail(0, "openai", signature="enc")]
    context = Context([user("one"), message, user("two")])
    assert encode_compact(context, {"previous_response_id": "resp_7"}, OPENAI, "gpt-5") == {
        "model": "gpt-5",
        "previous_response_id": "resp_7",
    }
    body = encode_compact(context, {}, OPENAI, "gpt-5")
    assert body.keys() == {"model", "input"}
    assert [item.get("type", item.get("role")) for item in body["input"]] == ["user", "reasoning", "user"]


@requirement("driver:E26")
def test_false_is_sent_and_none_is_not() -> None:
    names = ("stream", "parallel_tool_calls", "background")
    assert {name: body_of(dict.fromkeys(names, False))[name] for name in names} == dict.fromkeys(names, False)
    assert body_of({"service_tier": "flex", "stream": True})["service_tier"] == "flex"
    assert body_of(dict.fromkeys(KNOWN_OPTIONS)).keys() == {"model", "input"}


@requirement("driver:E27")
def test_keys_of_schemas_keep_their_order_on_the_wire() -> None:
    names = ["zebra", "apple", "mango", "b", "a"]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
    body = body_of({"text_format": schema, "tools": [{"name": "t", "parameters": schema}]})
    wire = msgspec.json.encode(body)
    read = msgspec.json.decode(wire)
    assert list(read["text"]["format"]["schema"]["properties"]) == names
    assert list(read["tools"][0]["parameters"]["properties"]) == names
    assert list(read)[:2] == ["model", "input"]


@requirement("driver:E28")
def test_the_first_frame_of_a_socket_is_the_body_without_stream() -> None:
    body = body_of({"stream": True, "background": True, "stream_options": {"include_obfuscation": False}})
    assert socket_frame(body) == {"type": "response.create", "model": "gpt-4.1", "input": body["input"]}


@requirement("driver:options")
def test_an_option_that_nobody_knows_is_refused_and_extra_fields_go_as_they_are() -> None:
    with pytest.raises(DriverError, match="extra_body"):
        body_of({"temprature": 1})
    assert body_of({"extra_body": {"cache_salt": "s", "model": "x"}})["cache_salt"] == "s"
    assert body_of({"extra_body": {"model": "x"}})["model"] == "x"


@requirement("driver:profiles")
def test_fields_are_dropped_renamed_required_or_the_only_ones() -> None:
    with pytest.warns(RequestWarning, match="top_k"):
        assert "top_k" not in body_of({"top_k": 5})
    assert body_of({"top_k": 5, "repeat_penalty": 1.1}, ANTIPHON)["repeat_penalty"] == 1.1
    assert body_of({"repeat_penalty": 1.1}, VLLM)["repetition_penalty"] == 1.1
    with pytest.warns(RequestWarning, match="truncation"):
        body = encode("hi", {"truncation": "auto", "temperature": 0.5}, MIXEDBREAD)
    assert body == {"model": "toast-1", "input": body["input"], "temperature": 0.5}
    assert encode("hi", {}, MIXEDBREAD, "toast-2")["model"] == "toast-2"


@requirement("driver:profiles")
def test_a_model_of_another_api_is_warned_about() -> None:
    with pytest.warns(RequestWarning, match="gpt-4o-audio-preview"):
        body_of({}, OPENAI, "gpt-4o-audio-preview")


@requirement("driver:E5", "driver:options")
def test_a_plain_request_has_a_model_and_its_input_and_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        body = encode([system("s"), user("u"), assistant("a")], {"instructions": "i"}, GENERIC, "m")
    assert body.keys() == {"model", "input", "instructions"}
    assert [item["role"] for item in body["input"]] == ["system", "user", "assistant"]
