"""What an upstream with a Responses endpoint is asked, exactly."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.engines.responses.profiles import PROFILES
from antiphon.engines.responses.request import request_body
from antiphon.prompt.prompt import Affinity, ChatMessage, Prompt, ResolvedChoice, Sampling, ToolCall
from antiphon.protocol.request import TextFormat
from antiphon.protocol.tools import CustomTool, FunctionTool

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FUNCTION = FunctionTool("f", SCHEMA)
OTHER = FunctionTool("g", None, True, "Other")
SHOUT = CustomTool("shout", "Loud", {"type": "grammar", "syntax": "regex", "definition": "[A-Z]+"})
HI = ChatMessage("user", "Hi")


def asked(prompt: Prompt, profile: str = "antiphon", model: str = "m", **options: Any) -> dict[str, Any]:
    return request_body(prompt, PROFILES[profile], model, **options)


@pytest.mark.requirement("responses-upstream:request")
def test_a_question_is_asked_with_nothing_beside_it():
    messages = [ChatMessage("system", "Be kind."), HI]
    assert asked(Prompt(messages)) == {
        "model": "m",
        "instructions": "Be kind.",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "store": False,
        "stream": True,
    }
    for name, profile in PROFILES.items():
        assert name == profile.name
        assert asked(Prompt([HI]), name) == {
            "model": "m",
            "input": [{"type": "message", "role": "user", "content": "Hi"}],
            "store": False,
            "stream": True,
        }


@pytest.mark.requirement("responses-upstream:request", "responses-upstream:request:thinking")
def test_the_history_goes_down_as_items():
    parts = [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"}},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
    ]
    calls = (ToolCall("c1", "f", '{"n":1}'), ToolCall("c2", "shout", '{"input":"HO"}'), ToolCall("c3", "shout", "[]"))
    messages = [
        ChatMessage("user", parts),
        ChatMessage("assistant", "Look:", "why", calls),
        ChatMessage("tool", "one", tool_call_id="c1"),
        ChatMessage("tool", "two", tool_call_id="c2"),
    ]
    prompt = Prompt(messages, [FUNCTION, SHOUT])
    items = asked(prompt)["input"]
    assert items == [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "See"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
                {"type": "input_file", "file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"},
                {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
            ],
        },
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "why"}]},
        {"type": "message", "role": "assistant", "content": "Look:"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"n":1}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "shout", "input": "HO"},
        {"type": "custom_tool_call", "call_id": "c3", "name": "shout", "input": "[]"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "two"},
    ]
    plain = asked(prompt, "vllm")["input"]
    assert [item["type"] for item in plain[3:]] == ["function_call"] * 3 + ["function_call_output"] * 2
    assert plain[4]["arguments"] == '{"input":"HO"}'
    assert "reasoning" not in [item["type"] for item in asked(prompt, "openai")["input"]]
    forgetful = msgspec.structs.replace(prompt, messages=[*messages, HI], template_kwargs={"preserve_thinking": False})
    assert "reasoning" not in [item["type"] for item in asked(forgetful)["input"]]


@pytest.mark.requirement("responses-upstream:request:tools")
def test_tools_and_choices_go_down_in_its_own_terms():
    tools = [FUNCTION, OTHER, SHOUT]
    body = asked(Prompt([HI], tools, parallel_tool_calls=False))
    assert body["tools"] == [
        {"type": "function", "name": "f", "parameters": SCHEMA, "strict": None},
        {
            "type": "function",
            "name": "g",
            "description": "Other",
            "parameters": {"type": "object", "properties": {}},
            "strict": True,
        },
        {"type": "custom", "name": "shout", "description": "Loud", "format": SHOUT.format},
    ]
    assert (body["parallel_tool_calls"], "tool_choice" in body) == (False, False)

    def choice(mode: str, *names: str, profile: str = "antiphon") -> Any:
        return asked(Prompt([HI], tools, choice=ResolvedChoice(mode, names)), profile).get("tool_choice")

    assert choice("required", "f", "g", "shout") == "required"
    assert choice("required", "g") == {"type": "function", "name": "g"}
    assert choice("required", "shout") == {"type": "custom", "name": "shout"}
    assert choice("auto", "f", "shout") == {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "shout"}],
    }
    limited = asked(Prompt([HI], tools, choice=ResolvedChoice("required", ("g",))), "generic")
    assert [tool["name"] for tool in limited["tools"]] == ["g"]
    assert limited["tool_choice"] == "required"
    assert "g" in limited["input"][0]["content"].removeprefix("Hi")
    assert choice("required", "f", profile="vllm") is None
    assert "tools" not in asked(Prompt([HI], tools, choice=ResolvedChoice("none", ())))
    shown = asked(Prompt([HI], [SHOUT]), "vllm")["tools"][0]
    assert (shown["type"], shown["parameters"]["required"]) == ("function", ["input"])


@pytest.mark.requirement("responses-upstream:request:format")
def test_a_format_goes_down_where_it_is_known_and_in_words_where_it_is_not_enforced():
    form = TextFormat("json_schema", name="n", schema=SCHEMA, description="A number", strict=True)
    prompt = Prompt([HI], format=form)
    told = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "description": "A number", "strict": True}}
    for name in ("openai", "azure", "antiphon", "vllm"):
        body = asked(prompt, name)
        assert (body["text"], "instructions" in body) == (told, False)
    for name in ("generic", "sglang"):
        body = asked(prompt, name)
        assert body["text"] == told
        assert '"n"' in body["instructions"]
    assert "text" not in asked(prompt, "mixedbread")
    assert asked(Prompt([HI], format=TextFormat("json_object")))["text"] == {"format": {"type": "json_object"}}
    beside = Prompt([HI], [FUNCTION], format=form)
    assert "text" in asked(beside)
    assert "text" not in asked(beside, "vllm")
    assert "text" not in asked(Prompt([HI], format=TextFormat("text")))


@pytest.mark.requirement("responses-upstream:request")
def test_sampling_and_limits_go_down_by_the_names_that_are_taken():
    sampling = Sampling(temperature=0.5, top_p=0.9, top_k=3, repeat_penalty=1.1, seed=7, stop=["x"], top_logprobs=2)
    prompt = Prompt(
        [HI],
        sampling=sampling,
        max_output_tokens=3,
        reasoning_effort="low",
        thinking_budget=5,
        template_kwargs={"a": 1},
        affinity=Affinity("k" * 80, "salt"),
    )
    body = asked(prompt)
    given = {name: body[name] for name in ("temperature", "top_p", "top_k", "repeat_penalty", "seed", "stop")}
    assert given == {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "repeat_penalty": 1.1, "seed": 7, "stop": ["x"]}
    assert (body["max_output_tokens"], body["thinking_budget"]) == (3, 5)
    assert (body["reasoning"], body["chat_template_kwargs"]) == ({"effort": "low"}, {"a": 1})
    assert (body["top_logprobs"], body["include"]) == (2, ["message.output_text.logprobs"])
    assert (body["prompt_cache_key"], "cache_salt" in body) == ("k" * 64, False)
    vllm = asked(prompt, "vllm")
    assert (vllm["repetition_penalty"], vllm["cache_salt"]) == (1.1, "salt")
    assert not {"repeat_penalty", "thinking_budget", "chat_template_kwargs", "prompt_cache_key"} & vllm.keys()
    openai = asked(prompt, "openai", "gpt-4.1")
    assert (openai["temperature"], openai["max_output_tokens"]) == (0.5, 16)
    assert not {"top_k", "seed", "stop", "repeat_penalty", "thinking_budget"} & openai.keys()
    thinking = asked(prompt, "openai", "gpt-5")
    assert not {"temperature", "top_p"} & thinking.keys()
    assert thinking["include"] == ["message.output_text.logprobs", "reasoning.encrypted_content"]
    assert set(asked(prompt, "mixedbread")) <= {
        "model", "input", "include", "max_output_tokens", "store", "stream", "temperature", "top_p"
    }  # fmt: skip
    again = asked(prompt, attempt=1)
    assert (again["seed"], again["temperature"]) == (8, 0.7)
