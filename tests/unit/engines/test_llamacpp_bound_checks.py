"""What turns under grammars declare, checked and kept over the real llama.cpp: refused, loosened, checked once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.engines.llamacpp.engine import LlamaCppEngine
from antiphon.engines.llamacpp.generation import LlamaTurn
from antiphon.errors import InvalidRequestError
from antiphon.prompt.prompt import ChatMessage, Prompt, ResolvedChoice, Sampling
from antiphon.protocol.request import TextFormat
from antiphon.protocol.tools import CustomTool, FunctionTool
from support.local_engine import running
from support.tiny_gguf import HERMES

Make = Callable[..., Path]
Tool = FunctionTool | CustomTool

TOOLS: list[Tool] = [
    FunctionTool("search", {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}),
    FunctionTool("noop"),
]


def hot(seed: int, text: str = "Hi", **fields: Any) -> Prompt:
    """A prompt at temperature 1."""
    sampling = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
    return Prompt(**{"messages": [ChatMessage("user", text)], "sampling": sampling, **fields})


def forced(seed: int, tools: list[Tool] = TOOLS, **fields: Any) -> Prompt:
    return hot(seed, tools=tools, choice=ResolvedChoice("required", tuple(tool.name for tool in tools)), **fields)


@pytest.fixture
async def noise(tiny: Make) -> AsyncIterator[LlamaCppEngine]:
    async with running(tiny(template=HERMES)) as engine:
        yield engine


def function(schema: dict[str, Any]) -> list[Tool]:
    return [FunctionTool("f", schema)]


def custom(definition: str, syntax: str = "lark") -> list[Tool]:
    return [CustomTool("c", format={"type": "grammar", "syntax": syntax, "definition": definition})]


IMPOSSIBLE = {"properties": {"a": {"type": "integer", "minimum": 2, "maximum": 1}}, "required": ["a"]}
BAD_FUNCTIONS = {
    "type": [FunctionTool("f", {"type": "strange"})],
    "not-object": function({"type": "array"}),
    "pattern": function({"properties": {"a": {"pattern": "[a"}}}),
    "reference": function({"$ref": "https://example.com/x"}),
    "impossible": function(IMPOSSIBLE),
}
BAD_GRAMMARS = {
    "syntax": custom("a", "gbnf"),
    "lark": custom("start: nowhere"),
    "lark-escape": custom('start: "a"\n}\nx: %lark {\nstart: "b"'),
    "regex": custom("a)|(b", "regex"),
    "look-around": custom("(?=a)b", "regex"),
    "long": custom("a" * 70_000),
}
BAD_FORMATS: dict[str, dict[str, Any]] = {
    "schema": {"type": 5},
    "schema-large": {"description": "a" * 70_000},
    "schema-never": {"enum": []},
}
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    **{
        name: ({"tools": [FunctionTool("noop"), *tools]}, "tools[1].parameters", "invalid_function_parameters")
        for name, tools in BAD_FUNCTIONS.items()
    },
    **{name: ({"tools": tools}, "tools[0].format", "invalid_grammar") for name, tools in BAD_GRAMMARS.items()},
    **{
        name: ({"format": TextFormat("json_schema", schema=schema)}, "text.format.schema", "invalid_json_schema")
        for name, schema in BAD_FORMATS.items()
    },
}


@pytest.mark.requirement("constrain:refused")
@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize(("fields", "param", "code"), REFUSED.values(), ids=REFUSED)
async def test_what_is_malformed_is_a_400_that_names_its_place(
    noise: LlamaCppEngine, fields: dict[str, Any], param: str, code: str, mode: str
) -> None:
    names = tuple(tool.name for tool in fields.get("tools", ()))
    if names:
        fields = {**fields, "choice": ResolvedChoice(mode, names)}
    with pytest.raises(InvalidRequestError) as caught:
        await noise.prepare(hot(1, **fields))
    assert (caught.value.param, caught.value.code, caught.value.http_status) == (param, code, 400)
    assert len(caught.value.message) < 600


@pytest.mark.requirement("constrain:refused")
async def test_what_may_not_be_called_is_not_looked_at_and_what_llguidance_refuses_is_loosened(
    noise: LlamaCppEngine,
) -> None:
    bad, fine = FunctionTool("bad", {"type": "strange"}), FunctionTool("noop")
    await noise.prepare(hot(1, tools=[bad, fine], choice=ResolvedChoice("none", ())))
    await noise.prepare(hot(1, tools=[bad, fine], choice=ResolvedChoice("auto", ("noop",))))
    circular: dict[str, Any] = {
        "properties": {"a": {"$ref": "#", "properties": {"b": {"type": "string"}}}},
        "type": "object",
    }
    turn = await noise.prepare(forced(1, [FunctionTool("f", circular)]))
    assert isinstance(turn, LlamaTurn)
    assert turn.binding is not None
    assert turn.binding.loose == {"f"}


@pytest.mark.requirement("constrain:cache")
async def test_what_was_checked_is_not_checked_again(noise: LlamaCppEngine) -> None:
    first = await noise.prepare(forced(1))
    starts = noise._checker.starts
    noise._checker._process = None
    again = await noise.prepare(forced(2, text="Something else"))
    assert isinstance(first, LlamaTurn)
    assert isinstance(again, LlamaTurn)
    assert first.grammar == again.grammar
    assert first.binding is again.binding
    assert noise._checker.starts == starts
    for number in range(200):
        await noise.prepare(hot(1, format=TextFormat("json_schema", schema={"const": number})))
    assert len(noise._bindings._kept) <= 128
