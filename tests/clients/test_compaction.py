"""Compaction, counting and encrypted thinking as the `openai` package and the Agents SDK use them."""

from __future__ import annotations

from typing import Any

import agents
import pytest
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, SQLiteSession
from agents.memory import OpenAIResponsesCompactionSession

from clients.conftest import Target

requirement = pytest.mark.requirement

CALL = '!CALL get_weather {"city": "Oslo"}'
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
INCLUDE: Any = ["reasoning.encrypted_content"]
HISTORY: list[Any] = [
    {"role": "user", "content": "My name is Ada, and I live in Oslo. Please remember that."},
    {"role": "assistant", "content": "Hello Ada. I will remember that you live in Oslo."},
    {"role": "user", "content": "I have a cat whose name is Figaro."},
    {"role": "assistant", "content": "Figaro is a lovely name for a cat."},
]
RUN = RunConfig(tracing_disabled=True)


@agents.function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"12C in {city}"


@requirement("client:openai:compact")
def test_a_compacted_history_is_gone_on_with(scripted: Target) -> None:
    compacted = scripted.responses.compact(model=scripted.model, input=HISTORY)
    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
    assert compacted.usage.output_tokens > 0
    # The package types the user's messages in here as the assistant's, and warns of them.
    window: list[Any] = [item.model_dump(exclude_unset=True, warnings=False) for item in compacted.output]
    go: Any = {"role": "user", "content": "And now?"}
    answer = scripted.responses.create(model=scripted.model, input=[*window, go], max_output_tokens=scripted.tokens)
    assert answer.output_text


@requirement("client:openai:input-tokens")
def test_the_tokens_of_a_compacted_history_are_counted(scripted: Target) -> None:
    compacted = scripted.responses.compact(model=scripted.model, input=HISTORY)
    window: list[Any] = [item.model_dump(exclude_unset=True, warnings=False) for item in compacted.output]
    answer = scripted.responses.create(model=scripted.model, input=window, max_output_tokens=scripted.tokens)
    counted = scripted.responses.input_tokens.count(model=scripted.model, input=window)
    assert answer.usage is not None
    assert counted.input_tokens == answer.usage.input_tokens


@requirement("client:openai:compact", "compaction:summary:real")
def test_a_chain_is_compacted_by_a_trigger_and_goes_on(target: Target) -> None:
    first = target.responses.create(model=target.model, input=HISTORY, max_output_tokens=target.tokens)
    trigger: Any = [{"type": "compaction_trigger"}]
    with target.responses.stream(model=target.model, input=trigger, previous_response_id=first.id) as stream:
        for _ in stream:
            pass
        second = stream.get_final_response()
    (item,) = second.output
    assert item.type == "compaction"
    third = target.responses.create(
        model=target.model, input="Go on.", previous_response_id=second.id, max_output_tokens=target.tokens
    )
    assert third.output_text


@requirement("client:openai:compact")
def test_a_long_input_is_compacted_by_its_threshold(scripted: Target) -> None:
    long: list[Any] = [*HISTORY, {"role": "assistant", "content": "Once more. " * 500}]
    response = scripted.responses.create(
        model="scripted",
        input=[*long, {"role": "user", "content": "!ECHO"}],
        context_management=[{"type": "compaction", "compact_threshold": 1_000}],
    )
    assert [item.type for item in response.output] == ["compaction", "message"]
    assert "SUMMARY" in response.output_text
    assert "Figaro is a lovely" not in response.output_text


@requirement("client:openai:input-tokens")
def test_tokens_are_counted_before_a_request(target: Target) -> None:
    for fields in (
        {"input": "Hi."},
        {"input": HISTORY, "instructions": "Be brief."},
        {"input": "Hi.", "tools": [WEATHER]},
    ):
        counted = target.responses.input_tokens.count(model=target.model, **fields)  # type: ignore[arg-type]
        made = target.responses.create(model=target.model, max_output_tokens=2, **fields)  # type: ignore[arg-type]
        assert made.usage is not None
        assert counted.input_tokens == made.usage.input_tokens


@requirement("client:openai:encrypted-reasoning", "reasoning:encrypted:replay")
def test_a_stateless_tool_loop_brings_its_sealed_thinking_back(scripted: Target) -> None:
    items: list[Any] = [{"role": "user", "content": f"!REASON Which city?\n{CALL}"}]
    made = scripted.responses.create(model="scripted", input=items, tools=[WEATHER], store=False, include=INCLUDE)
    thinking, call = made.output
    assert thinking.type == "reasoning"
    assert thinking.encrypted_content
    assert call.type == "function_call"
    thinking.content = None
    items += made.output
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "12C"})
    answer = scripted.responses.create(model="scripted", input=items, tools=[WEATHER], store=False, include=INCLUDE)
    assert answer.output_text == "FINAL: 12C"
    echo = scripted.responses.create(
        model="scripted", input=[*items, {"role": "user", "content": "!ECHO"}], store=False
    )
    assert "<think>Which city?</think>" in echo.output_text


@pytest.fixture
def agent(async_scripted: Any) -> Agent[Any]:
    model = OpenAIResponsesModel("scripted", async_scripted)
    return Agent(name="Helper", model=model, tools=[get_weather])


@requirement("client:agents:compaction")
async def test_the_compaction_session_of_the_agents_sdk_keeps_its_history_short(
    agent: Agent[Any], async_scripted: Any
) -> None:
    session = OpenAIResponsesCompactionSession(
        session_id="c",
        underlying_session=SQLiteSession("c"),
        client=async_scripted,
        model="gpt-5",
        should_trigger_compaction=lambda _: True,
    )
    result = await Runner.run(agent, CALL, session=session, run_config=RUN)
    assert result.final_output == "FINAL: 12C in Oslo"
    for text in ("again", "and again"):
        await session.run_compaction({"force": True})
        result = await Runner.run(agent, text, session=session, run_config=RUN)
        assert result.final_output == "Hello from scripted."
    kinds = [item.get("type", item.get("role")) for item in await session.get_items()]
    assert kinds == ["message", "message", "message", "compaction"]


@requirement("client:agents:encrypted-reasoning")
async def test_an_agent_without_a_store_keeps_its_sealed_thinking(agent: Agent[Any]) -> None:
    stateless = ModelSettings(store=False, response_include=INCLUDE)
    result = await Runner.run(
        agent.clone(model_settings=stateless), f"!REASON Which city?\n{CALL}", run_config=RUN, max_turns=4
    )
    assert result.final_output == "FINAL: 12C in Oslo"
    sealed = [item.get("encrypted_content") for item in result.to_input_list() if item.get("type") == "reasoning"]
    assert len(sealed) == 1
    assert sealed[0]
