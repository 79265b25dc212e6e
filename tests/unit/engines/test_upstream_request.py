"""What upstreams are asked, by their profile, and what of their answers is held back."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.engines.upstream.profiles import PROFILES
from antiphon.engines.upstream.request import Hold, held_back, judged, request_body
from antiphon.prompt.prompt import ChatMessage, Prompt, ResolvedChoice, Sampling, ToolCall
from antiphon.protocol.request import TextFormat
from antiphon.protocol.sampling import Samplers
from antiphon.protocol.tools import CustomTool, FunctionTool

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [FunctionTool("f", SCHEMA, description="F."), FunctionTool("g"), CustomTool("c")]
JSON = TextFormat("json_schema", name="n", schema=SCHEMA)
USER = [ChatMessage("user", "Hi")]


def body(profile: str, attempt: int = 0, **fields: Any) -> dict[str, Any]:
    return request_body(Prompt(**{"messages": USER, **fields}), PROFILES[profile], "m", attempt=attempt)


@pytest.mark.requirement("upstream:request")
@pytest.mark.parametrize("profile", PROFILES)
def test_a_plain_request_is_as_short_as_can_be(profile: str):
    assert body(profile) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.requirement("upstream:request:history")
@pytest.mark.parametrize(
    ("profile", "field"),
    [("vllm", "reasoning_content"), ("ollama", "reasoning"), ("openai", None), ("generic", None)],
)
def test_the_history_is_sent_as_the_upstream_reads_it(profile: str, field: str | None):
    call = ToolCall("c1", "f", '{"n":1}')
    messages = [
        *USER,
        ChatMessage("assistant", "", "why", [call]),
        ChatMessage("tool", "2", tool_call_id="c1", name="f"),
    ]
    _, assistant, tool = body(profile, messages=messages)["messages"]
    assert assistant == {
        "role": "assistant",
        "content": "",
        **({} if field is None else {field: "why"}),
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"n":1}'}}],
    }
    named = {"name": "f"} if profile == "vllm" else {}
    assert tool == {"role": "tool", "content": "2", "tool_call_id": "c1", **named}


@pytest.mark.requirement("upstream:request:history", "reasoning:context")
@pytest.mark.parametrize("fields", [{"template_kwargs": {"preserve_thinking": False}}, {}], ids=["dropped", "kept"])
def test_thinking_of_earlier_turns_is_left_out_where_the_request_says_so(fields: dict[str, Any]):
    messages = [
        *USER,
        ChatMessage("assistant", "<think>a</think>so", "why"),
        *USER,
        ChatMessage("assistant", "", "now"),
    ]
    _, past, _, present = body("vllm", messages=messages, **fields)["messages"]
    assert (past.get("reasoning_content"), past["content"]) == (
        (None, "so") if fields else ("why", "<think>a</think>so")
    )
    assert present["reasoning_content"] == "now"


@pytest.mark.requirement("upstream:request:tools")
def test_tools_are_functions_and_custom_tools_take_one_text():
    found = body("vllm", tools=TOOLS)["tools"]
    assert [tool["type"] for tool in found] == ["function"] * 3
    assert found[0]["function"] == {"name": "f", "description": "F.", "parameters": SCHEMA}
    assert found[1]["function"] == {"name": "g", "parameters": {"type": "object", "properties": {}}}
    assert found[2]["function"]["parameters"]["required"] == ["input"]
    strict = [FunctionTool("f", SCHEMA, strict=True)]
    assert body("openai", tools=strict)["tools"][0]["function"]["strict"] is True
    assert "strict" not in body("generic", tools=strict)["tools"][0]["function"]


@pytest.mark.requirement("upstream:request:forced")
@pytest.mark.parametrize("strict", [None, True, False])
def test_vllm_is_told_to_hold_a_forced_call_to_its_schema(strict: bool | None):
    tools = [FunctionTool("f", SCHEMA, strict=strict), TOOLS[-1]]
    forced = body("vllm", tools=tools, choice=ResolvedChoice("required", ("f", "c")))["tools"]
    assert [tool["function"]["strict"] for tool in forced] == [True, True]
    free, custom = body("vllm", tools=tools)["tools"]
    assert free["function"].get("strict") is (True if strict else None)
    assert "strict" not in custom["function"]
    assert (
        "strict" not in body("sglang", tools=tools, choice=ResolvedChoice("required", ("f",)))["tools"][0]["function"]
    )


NAMED = {"type": "function", "function": {"name": "f"}}
LIMITED = {
    "type": "allowed_tools",
    "allowed_tools": {
        "mode": "required",
        "tools": [{"type": "function", "function": {"name": name}} for name in ("f", "c")],
    },
}


@pytest.mark.requirement("upstream:request:choice")
@pytest.mark.parametrize(
    ("profile", "choice", "sent", "shown"),
    [
        ("openai", ("auto", ["f", "g", "c"]), None, 3),
        ("openai", ("required", ["f", "g", "c"]), "required", 3),
        ("openai", ("required", ["f"]), NAMED, 3),
        ("openai", ("required", ["f", "c"]), LIMITED, 3),
        ("vllm", ("required", ["f"]), NAMED, 1),
        ("vllm", ("required", ["f", "c"]), "required", 2),
        ("llama-server", ("auto", ["f"]), None, 1),
        ("sglang", ("required", ["f", "c"]), "required", 2),
        ("generic", ("auto", ["f"]), None, 1),
    ],
)
def test_a_choice_goes_down_as_the_upstream_can_be_told(profile: str, choice: Any, sent: Any, shown: int):
    found = body(profile, tools=TOOLS, choice=ResolvedChoice(*choice))
    assert found.get("tool_choice") == sent
    assert len(found["tools"]) == shown


@pytest.mark.requirement("upstream:request:form")
@pytest.mark.parametrize("profile", ["llama-server", "ollama"])
def test_a_forced_call_is_a_format_where_only_formats_are_enforced(profile: str):
    nested = {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/place"}},
        "$defs": {"place": {"type": "object", "properties": {"x": {"type": "number"}}}},
    }
    tools = [*TOOLS, FunctionTool("h", nested)]
    found = body(profile, tools=tools, choice=ResolvedChoice("required", ("f", "c", "h")))
    assert not {"tools", "tool_choice"} & found.keys()
    schema = found["json_schema"] if profile == "llama-server" else found["response_format"]["json_schema"]["schema"]
    assert [call["properties"]["name"] for call in schema["anyOf"]] == [{"const": name} for name in ("f", "c", "h")]
    assert schema["anyOf"][0]["properties"]["arguments"]["properties"] == SCHEMA["properties"]
    assert schema["anyOf"][1]["properties"]["arguments"]["required"] == ["input"]
    assert schema["anyOf"][2]["properties"]["arguments"]["properties"]["at"] == {"$ref": "#/$defs/2_d0"}
    assert set(schema["$defs"]) == {"2_d0"}
    system, user = found["messages"]
    assert user == {"role": "user", "content": "Hi"}
    assert "You must call" in system["content"]
    assert '"name":"h"' in system["content"]
    one = body(
        profile, tools=tools, choice=ResolvedChoice("required", ("f",)), messages=[ChatMessage("system", "Be."), *USER]
    )
    assert one["messages"][0]["content"].startswith("Be.\n\n")
    assert "g" not in one["messages"][0]["content"].split('"name":')[1][:4]


@pytest.mark.requirement("upstream:request:choice")
def test_calls_that_may_not_be_parallel_are_said_so():
    assert body("vllm", tools=TOOLS, parallel_tool_calls=False)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in body("vllm", tools=TOOLS)
    assert "tools" not in body("vllm", tools=TOOLS, choice=ResolvedChoice("none", ()))


@pytest.mark.requirement("upstream:request:format")
@pytest.mark.parametrize(
    ("profile", "sent"),
    [
        ("openai", {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}),
        ("vllm", {"structured_outputs": {"json": SCHEMA}}),
        ("llama-server", {"json_schema": SCHEMA}),
        ("sglang", {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}),
    ],
)
def test_a_schema_goes_down_in_the_terms_of_the_upstream(profile: str, sent: dict[str, Any]):
    found = body(profile, format=JSON)
    assert found.items() >= sent.items()
    assert found["messages"] == [{"role": "user", "content": "Hi"}]
    assert held_back(Prompt(USER, format=JSON), PROFILES[profile]) is Hold.NOTHING


@pytest.mark.requirement("upstream:request:format")
def test_what_is_not_enforced_is_asked_for_in_words_and_held_back():
    generic = body("generic", format=JSON)
    assert generic["response_format"]["type"] == "json_schema"
    assert '"integer"' in generic["messages"][0]["content"]
    assert held_back(Prompt(USER, format=JSON), PROFILES["generic"]) is Hold.ALL
    # A grammar for the whole answer would keep the model from calling.
    beside = body("vllm", format=JSON, tools=TOOLS)
    assert "structured_outputs" not in beside
    assert held_back(Prompt(USER, TOOLS, format=JSON), PROFILES["vllm"]) is Hold.ALL
    assert held_back(Prompt(USER, TOOLS, format=JSON), PROFILES["openai"]) is Hold.NOTHING
    assert body("vllm", format=TextFormat("json_object"))["structured_outputs"] == {"json_object": True}
    assert body("ollama", format=TextFormat("json_object"))["response_format"] == {"type": "json_object"}


@pytest.mark.requirement("upstream:request:held")
@pytest.mark.parametrize(
    ("tool", "profile", "mode", "hold"),
    [
        (FunctionTool("f", SCHEMA), "generic", "auto", Hold.NOTHING),
        (FunctionTool("f", SCHEMA, strict=True), "generic", "auto", Hold.CALLS),
        (FunctionTool("f", SCHEMA, strict=True), "openai", "auto", Hold.NOTHING),
        (FunctionTool("f", SCHEMA), "generic", "required", Hold.ALL),
        (FunctionTool("f", SCHEMA), "llama-server", "required", Hold.ALL),
        (FunctionTool("f", SCHEMA), "vllm", "required", Hold.NOTHING),
        (CustomTool("f"), "openai", "auto", Hold.NOTHING),
        (
            CustomTool("f", format={"type": "grammar", "syntax": "regex", "definition": "a+"}),
            "openai",
            "auto",
            Hold.CALLS,
        ),
    ],
)
def test_calls_are_held_back_where_a_promise_is_not_enforced(tool: Any, profile: str, mode: str, hold: Hold):
    prompt = Prompt(USER, [tool], choice=ResolvedChoice(mode, ("f",)))
    assert held_back(prompt, PROFILES[profile]) is hold


@pytest.mark.requirement("upstream:request:held")
def test_a_function_that_is_not_strict_is_held_to_an_object_only():
    prompt = judged(Prompt(USER, [FunctionTool("f", SCHEMA, strict=False), FunctionTool("g", SCHEMA)]))
    assert [tool.parameters for tool in prompt.tools if isinstance(tool, FunctionTool)] == [None, SCHEMA]


SAMPLING = Sampling(
    temperature=0.1,
    top_p=0.9,
    top_k=40,
    min_p=0.05,
    presence_penalty=0.5,
    frequency_penalty=0.0,
    repeat_penalty=1.1,
    seed=2**31 - 1,
    stop=["END"],
    top_logprobs=2,
    samplers=Samplers(mirostat=2, logit_bias=((5, -1.0),)),
)


@pytest.mark.requirement("upstream:request:sampling")
@pytest.mark.parametrize(
    ("profile", "more"),
    [
        ("openai", {"max_completion_tokens": 9, "logit_bias": {"5": -1.0}}),
        ("generic", {"max_tokens": 9, "logit_bias": {"5": -1.0}}),
        ("vllm", {"max_tokens": 9, "logit_bias": {"5": -1.0}, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1}),
        (
            "llama-server",
            {
                "max_tokens": 9,
                "logit_bias": {"5": -1.0},
                "top_k": 40,
                "min_p": 0.05,
                "repeat_penalty": 1.1,
                "mirostat": 2,
            },
        ),
    ],
)
def test_sampling_has_the_names_of_the_upstream(profile: str, more: dict[str, Any]):
    found = body(profile, sampling=SAMPLING, max_output_tokens=9)
    for name in ("model", "messages", "stream", "stream_options"):
        del found[name]
    common = {"temperature": 0.1, "top_p": 0.9, "presence_penalty": 0.5, "seed": 2**31 - 1, "stop": ["END"]}
    assert found == {**common, "logprobs": True, "top_logprobs": 2, **more}


@pytest.mark.requirement("upstream:request:sampling")
def test_a_second_attempt_is_drawn_otherwise():
    found = body("openai", attempt=1, sampling=SAMPLING)
    assert (found["temperature"], found["seed"]) == (0.7, 0)
    assert not {"temperature", "seed"} & body("openai", attempt=1).keys()


@pytest.mark.requirement("upstream:request:effort")
@pytest.mark.parametrize(
    ("profile", "effort", "sent"),
    [
        ("openai", "minimal", {"reasoning_effort": "minimal"}),
        (
            "vllm",
            "high",
            {
                "reasoning_effort": "high",
                "chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "high"},
            },
        ),
        ("vllm", "none", {"chat_template_kwargs": {"enable_thinking": False}}),
        (
            "llama-server",
            "low",
            {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "low"}},
        ),
        ("generic", "low", {}),
    ],
)
def test_the_effort_goes_down_natively_and_to_the_template(profile: str, effort: str, sent: dict[str, Any]):
    found = body(profile, reasoning_effort=effort)
    assert {name: found[name] for name in ("reasoning_effort", "chat_template_kwargs") if name in found} == sent


@pytest.mark.requirement("upstream:request:effort")
def test_variables_of_the_request_stand_before_those_of_the_settings():
    found = body("sglang", template_defaults={"a": 1, "b": 1}, template_kwargs={"b": 2})
    assert found["chat_template_kwargs"] == {"a": 1, "b": 2}
    assert "chat_template_kwargs" not in body("openai", template_kwargs={"b": 2})


@pytest.mark.requirement("upstream:request:effort")
def test_no_level_of_the_settings_stays_where_thinking_is_off():
    found = body("vllm", reasoning_effort="none", template_defaults={"reasoning_effort": "max"})
    assert found["chat_template_kwargs"] == {"enable_thinking": False}
    found = body("vllm", reasoning_effort="none", template_kwargs={"reasoning_effort": "low"})
    assert found["chat_template_kwargs"] == {"enable_thinking": False, "reasoning_effort": "low"}
