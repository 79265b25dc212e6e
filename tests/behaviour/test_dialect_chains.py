"""A chain is the same conversation as its items sent inline, in every family of models, and goes on in the cache."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.engines.base import PreparedTurn
from antiphon.engines.llamacpp.engine import LlamaCppEngine
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.tools import FunctionTool
from antiphon.runtime.unseal import REASONING
from antiphon.settings import Settings
from antiphon.store.base import Scope
from support.dialects import TOOLS
from support.families import FAMILIES, model_of
from support.inprocess import InProcess, inprocess_app

FUNCTIONS = [
    {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}
    for tool in TOOLS[:3]
    if isinstance(tool, FunctionTool)
]
COMMON = {
    "model": "tiny",
    "tools": FUNCTIONS,
    "temperature": 1,
    "reasoning": {"effort": "none"},
    "max_output_tokens": 800,
}
_MOVING = frozenset({"mistral_array"})
"""Families whose templates put the system text into the last message, so that no prompt begins like the one before."""

_THINKING = frozenset({"gemma4", "glm", "glm_control", "harmony", "hermes"})
"""Families whose templates show the thinking that led to a call."""

_MOST_BEHIND = 16
"""Tokens that the beginning of an answer has in a prompt, and no longer has behind it: the stub of thinking, say."""


@asynccontextmanager
async def server(name: str, directory: Path) -> AsyncIterator[tuple[InProcess, list[PreparedTurn]]]:
    """A server of this family, and the turns that its engine prepares, in their order."""
    settings = Settings(model=(str(model_of(FAMILIES[name], directory)),), threads=1)
    async with inprocess_app(settings=settings) as app:
        [engine] = app.service.registry.engines
        assert isinstance(engine, LlamaCppEngine)
        prepared: list[PreparedTurn] = []
        prepare = engine.prepare

        async def recording(prompt: Prompt) -> PreparedTurn:
            prepared.append(await prepare(prompt))
            return prepared[-1]

        engine.prepare = recording  # type: ignore[method-assign]
        yield app, prepared


async def create(app: InProcess, **fields: Any) -> dict[str, Any]:
    answer = await app.client.post("/responses", json={**COMMON, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def outputs(response: dict[str, Any]) -> list[dict[str, Any]]:
    """An output for each call of a response."""
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    assert calls
    return [
        {"type": "function_call_output", "call_id": call["call_id"], "output": f"It is {place}."}
        for place, call in enumerate(calls)
    ]


def common(left: list[int], right: list[int]) -> int:
    return next((n for n, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), len(left))


@pytest.mark.requirement("api:chain:dialects")
@pytest.mark.parametrize("name", FAMILIES)
async def test_a_chain_prompts_as_its_items_inline_and_goes_on_in_the_cache(name: str, tmp_path: Path) -> None:
    question = {"role": "user", "content": "What is the weather in Oslo?"}
    async with server(name, tmp_path) as (app, prepared):
        asked = {"tool_choice": "required", "instructions": "Be brief.", "seed": 1}
        first = await create(app, input=[question], **asked)
        answers = outputs(first)
        second = await create(app, input=answers, previous_response_id=first["id"], **asked)
        more = outputs(second)
        third = await create(app, input=more, previous_response_id=second["id"], **asked)
        chained = [turn.rendered for turn in prepared]
        tokens = [list(turn.tokens) for turn in prepared]
        prepared.clear()
        whole = [question, *first["output"], *answers]
        await create(app, input=whole, **asked)
        await create(app, input=[*whole, *second["output"], *more], **asked)
        assert [turn.rendered for turn in prepared] == chained[1:]
    assert len(chained) == 3
    for earlier, later, response in ((tokens[0], tokens[1], second), (tokens[1], tokens[2], third)):
        shared = common(earlier, later)
        assert name in _MOVING or shared >= len(earlier) - _MOST_BEHIND
        # llama.cpp reads the last token of a prompt anew.
        assert response["usage"]["input_tokens_details"]["cached_tokens"] >= min(shared, len(later) - 1)


@pytest.mark.requirement("reasoning:encrypted:replay", "api:chain:dialects")
@pytest.mark.parametrize("name", FAMILIES)
async def test_sealed_thinking_prompts_as_thinking_in_plain_text(name: str, tmp_path: Path) -> None:
    async with server(name, tmp_path) as (app, prepared):
        thought = "Oslo is cold in November."
        plain = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": thought}]}
        sealed = app.service.codec.seal(Scope("default"), REASONING, thought.encode())
        hidden = {"type": "reasoning", "summary": [], "encrypted_content": sealed}
        call = {"type": "function_call", "call_id": "call_1", "name": FUNCTIONS[0]["name"], "arguments": "{}"}
        after = [call, {"type": "function_call_output", "call_id": "call_1", "output": "Snow."}]
        asked = {"reasoning": None, "store": False, "max_output_tokens": 1}
        for thinking in (plain, hidden, {**plain, **hidden}):
            await create(app, input=[{"role": "user", "content": "And in Oslo?"}, thinking, *after], **asked)
    shown = {turn.rendered for turn in prepared}
    assert len(shown) == 1
    assert (thought in shown.pop()) == (name in _THINKING)
