"""Forced calls and formats on the default model, through the SDK: what is asked for comes, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

from clients.conftest import Target
from clients.strict import strict_events
from support.forced import FORMAT, TOOLS, named_call, object_of, required_call

requirement = pytest.mark.requirement
TRIES = 4
"""`make forced` asks twenty times."""

NAMED: Any = {"type": "function", "name": "search"}


@requirement("client:real:forced", "api:enforced")
@pytest.mark.parametrize("number", range(TRIES))
def test_a_required_call_comes_whatever_is_asked(real: Target, number: int) -> None:
    assert required_call(real, "smollm", number)


@requirement("client:real:forced")
@pytest.mark.parametrize("number", range(TRIES))
def test_a_named_call_comes_whatever_is_asked(real: Target, number: int) -> None:
    assert named_call(real, "smollm", number)


@requirement("client:real:forced")
def test_allowed_tools_are_a_limit_and_one_call_is_one(real: Target) -> None:
    choice: Any = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "search"}]}
    response = real.responses.create(
        model="smollm", input="Weather in Oslo?", tools=TOOLS, tool_choice=choice, parallel_tool_calls=False
    )
    assert [item.name for item in response.output if item.type == "function_call"] == ["search"]
    assert response.tool_choice.model_dump(exclude_unset=True) == choice  # type: ignore[union-attr]
    assert len(response.tools) == 2


@requirement("client:real:forced")
def test_arguments_leave_while_they_are_generated_and_the_request_is_echoed_as_it_came(real_server: str) -> None:
    body = {"model": "smollm", "input": "Say hi.", "tools": TOOLS, "tool_choice": NAMED, "stream": True}
    events = strict_events(httpx2.post(f"{real_server}/responses", json=body, timeout=60).content)
    deltas = [event for event in events if event.type == "response.function_call_arguments.delta"]
    assert len(deltas) > 5
    final = events[-1].response
    assert final.status == "completed"
    assert final.instructions is None
    assert "You must call" not in final.model_dump_json()
    stored = httpx2.get(f"{real_server}/responses/{final.id}/input_items").json()
    assert [item["content"][0]["text"] for item in stored["data"]] == ["Say hi."]


@requirement("client:real:formats")
@pytest.mark.parametrize("number", range(TRIES))
def test_a_schema_is_held_to(real: Target, number: int) -> None:
    assert list(object_of(real, "smollm", number)) == list(FORMAT["schema"]["properties"])


class Point(BaseModel):
    """A point, as `parse` gives it."""

    x: int
    y: int
    colour: str | None


@requirement("client:real:formats")
def test_parse_gives_an_object_of_the_class(real: Target) -> None:
    parsed = real.responses.parse(model="smollm", input="A red point at 1, 2.", text_format=Point)
    assert isinstance(parsed.output_parsed, Point)
    assert parsed.status == "completed"


@requirement("client:real:formats")
def test_json_object_is_an_object_and_the_word_must_be_there(real: Target) -> None:
    asked: Any = {"model": "smollm", "text": {"format": {"type": "json_object"}}, "temperature": 0}
    response = real.responses.create(input="A JSON object with a name, please.", max_output_tokens=300, **asked)
    if response.status == "completed":
        assert isinstance(json.loads(response.output_text), dict)
    else:
        assert response.output_text.startswith("{")
    with pytest.raises(openai.BadRequestError, match="'json'") as caught:
        real.responses.create(input="An object, please.", **asked)
    assert caught.value.param == "input"


GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "x"}


def form(schema: Any) -> Any:
    return {"text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}}


@requirement("client:real:refused")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{**TOOLS[0], "parameters": {"type": "strange"}}]}, "tools[0].parameters"),
        ({"tools": [TOOLS[0], {**TOOLS[1], "parameters": {"type": "array"}}]}, "tools[1].parameters"),
        ({"tools": [{"type": "custom", "name": "c", "format": GRAMMAR}]}, "tools[0].format"),
        (form({"minLength": "x"}), "text.format.schema"),
        (form({"enum": ["a"] * 30_000}), "text.format.schema"),
    ],
)
def test_what_is_malformed_is_refused_before_anything_is_generated(real: Target, fields: Any, param: str) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            real.responses.create(**{"model": "smollm", "input": "Hi.", "stream": stream, **fields})
        assert caught.value.param == param
