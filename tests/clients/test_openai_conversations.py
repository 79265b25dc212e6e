"""Conversations as the OpenAI SDK and the Agents SDK use them, over a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from agents import Agent, OpenAIConversationsSession, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled

from clients.conftest import KEY, Target
from support.fronted import scripted_model

requirement = pytest.mark.requirement

CALL = '!CALL weather {"city": "Oslo"}'


@requirement("conversations:sdk")
def test_the_family_of_calls(scripted: Target) -> None:
    conversations = scripted.client.conversations
    made = conversations.create(metadata={"a": "b"}, items=[{"type": "message", "role": "user", "content": "one"}])
    assert conversations.retrieve(made.id) == made
    answer = scripted.responses.create(model=scripted.model, input="!TEXT two", conversation=made.id)
    assert answer.conversation is not None
    assert answer.conversation.id == made.id
    items = list(conversations.items.list(made.id, order="asc", include=["message.output_text.logprobs"]))
    assert [item.type for item in items] == ["message"] * 3
    added = conversations.items.create(made.id, items=[{"role": "user", "content": "x"}])
    assert [item.id for item in added.data] == [added.first_id] == [added.last_id]
    first = items[0].id
    assert first is not None
    assert conversations.items.retrieve(first, conversation_id=made.id) == items[0]
    assert conversations.items.delete(first, conversation_id=made.id).id == made.id
    with pytest.raises(openai.NotFoundError) as caught:
        conversations.items.retrieve(first, conversation_id=made.id)
    assert caught.value.code == "item_not_found"
    assert conversations.update(made.id, metadata={"z": "1"}).metadata == {"z": "1"}
    assert conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        conversations.retrieve(made.id)


@requirement("conversations:sdk")
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_the_sdk_pages_through_all_items(scripted: Target, order: Any) -> None:
    made = scripted.client.conversations.create()
    assert list(scripted.client.conversations.items.list(made.id)) == []
    sent: list[Any] = [{"role": "user", "content": f"{number}"} for number in range(20)]
    for _ in range(3):
        scripted.client.conversations.items.create(made.id, items=sent)
    pages = list(scripted.client.conversations.items.list(made.id, order=order, limit=25).iter_pages())
    assert [len(page.data) for page in pages] == [25, 25, 10]
    texts: list[Any] = [item.content[0].text for page in pages for item in page.data]  # type: ignore[union-attr]
    expected = [f"{number}" for number in range(20)] * 3
    assert texts == (expected if order == "asc" else expected[::-1])


@requirement("conversations:sdk", "conversations:locked")
def test_a_conversation_that_is_in_use_is_a_conflict(scripted: Target) -> None:
    made = scripted.client.conversations.create()
    running = scripted.responses.create(
        model=scripted.model, input="!SLOW 20\n!COUNT 500", conversation=made.id, background=True
    )
    with pytest.raises(openai.ConflictError) as caught:
        scripted.responses.create(model=scripted.model, input="Hi.", conversation=made.id)
    assert caught.value.code == "conversation_locked"
    scripted.responses.cancel(running.id)
    scripted.responses.create(model=scripted.model, input="Hi.", conversation={"id": made.id})
    assert len(list(scripted.client.conversations.items.list(made.id))) == 2


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@pytest.fixture
async def agents_client(tmp_path: Path) -> AsyncIterator[openai.AsyncOpenAI]:
    set_tracing_disabled(True)
    with scripted_model(["--store", str(tmp_path / "state.db")]) as server:
        async with openai.AsyncOpenAI(base_url=server.base_url, api_key=KEY, max_retries=0) as client:
            yield client


def agent(client: openai.AsyncOpenAI) -> Agent[Any]:
    return Agent(name="A", model=OpenAIResponsesModel("scripted", client), tools=[weather])


@requirement("conversations:agents")
async def test_the_agents_sdk_keeps_its_session_in_a_conversation(agents_client: openai.AsyncOpenAI) -> None:
    session = OpenAIConversationsSession(openai_client=agents_client)
    first = await Runner.run(agent(agents_client), "!REASON hm\n" + CALL, session=session)
    assert first.final_output == "FINAL: sunny in Oslo"
    second = await Runner.run(agent(agents_client), "!ECHO", session=session)
    assert "sunny in Oslo" in second.final_output
    kinds = [item.get("type") for item in await session.get_items()]
    # The session leaves the thinking out of what it keeps.
    assert [kind for kind in kinds if kind != "reasoning"] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
        "message",
        "message",
    ]
    last = await session.pop_item()
    assert last is not None
    assert last.get("role") == "assistant"
    assert len(await session.get_items()) == len(kinds) - 1
    identity = session.session_id
    await session.clear_session()
    with pytest.raises(openai.NotFoundError):
        await agents_client.conversations.retrieve(identity)


@requirement("conversations:agents")
async def test_the_agents_sdk_goes_on_in_a_conversation_by_its_id(agents_client: openai.AsyncOpenAI) -> None:
    made = await agents_client.conversations.create()
    done = await Runner.run(agent(agents_client), CALL, conversation_id=made.id)
    assert done.final_output == "FINAL: sunny in Oslo"
    kinds = [item.type async for item in agents_client.conversations.items.list(made.id, order="asc")]
    assert kinds == ["message", "function_call", "function_call_output", "message"]
    again = await Runner.run(agent(agents_client), "!ECHO", conversation_id=made.id)
    assert "sunny in Oslo" in again.final_output
