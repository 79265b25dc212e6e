"""Forced calls and formats asked of the default model, as its tests and `make forced` ask them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import openai

__all__ = ["FORMAT", "QUESTIONS", "TOOLS", "named_call", "object_of", "required_call"]

TOOLS: list[Any] = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "The weather in a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
    {
        "type": "function",
        "name": "search",
        "description": "Find documents.",
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1},
                "limit": {"type": "integer", "minimum": 1, "maximum": 20},
                "since": {"type": "string", "format": "date"},
            },
            "required": ["query", "limit"],
        },
    },
]

QUESTIONS = ("Say hello.", "What is the weather in Oslo?", "Tell me a joke.", "Find papers about llamas.")

FORMAT: Any = {
    "type": "json_schema",
    "name": "person",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "born": {"type": "string", "format": "date"},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3},
            "role": {"anyOf": [{"type": "string", "enum": ["admin", "guest"]}, {"type": "null"}]},
        },
        "required": ["name", "age", "born", "tags", "role"],
        "additionalProperties": False,
    },
}

_ASKED: dict[str, Any] = {"temperature": 0.7, "max_output_tokens": 400}


def required_call(client: openai.OpenAI, model: str, number: int) -> list[str]:
    """The names of the calls of one answer to a question that needs none; each is valid by its schema."""
    response = client.responses.create(
        model=model, input=QUESTIONS[number % len(QUESTIONS)], tools=TOOLS, tool_choice="required", **_ASKED
    )
    return _calls(response)


def named_call(client: openai.OpenAI, model: str, number: int) -> list[str]:
    """The same with the choice of one function, not the one that the question would suggest."""
    name = TOOLS[number % 2]["name"]
    choice: Any = {"type": "function", "name": name}
    response = client.responses.create(
        model=model, input=QUESTIONS[number % len(QUESTIONS)], tools=TOOLS, tool_choice=choice, **_ASKED
    )
    names = _calls(response)
    assert set(names) == {name}
    return names


def object_of(client: openai.OpenAI, model: str, number: int) -> dict[str, Any]:
    """The object of one answer in a format, valid by its schema."""
    response = client.responses.create(
        model=model,
        input=f"Person {number}: Ada Lovelace, 36, born on 10 December 1815.",
        text={"format": FORMAT},
        **_ASKED,
    )
    assert response.status == "completed"
    value = json.loads(response.output_text)
    jsonschema_rs.validate(FORMAT["schema"], value, validate_formats=True)
    return value


def _calls(response: Any) -> list[str]:
    assert response.status == "completed", response.incomplete_details or response.error
    schemas = {tool["name"]: tool["parameters"] for tool in TOOLS}
    assert [item.type for item in response.output if item.type not in ("reasoning", "function_call")] == []
    calls = [item for item in response.output if item.type == "function_call"]
    assert calls
    for call in calls:
        jsonschema_rs.validate(schemas[call.name], json.loads(call.arguments), validate_formats=True)
    return [call.name for call in calls]
