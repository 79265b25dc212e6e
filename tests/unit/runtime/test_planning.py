"""Truncation finds the longest end of a conversation that the engine takes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest

from antiphon.engines.base import Capabilities, Engine, PreparedTurn
from antiphon.errors import ContextOverflowError, InvalidRequestError
from antiphon.machine.deltas import Delta
from antiphon.prompt.prompt import ChatMessage, Prompt
from antiphon.runtime.planning import prepare


class StrictEngine(Engine):
    """Takes at most `room` messages, which after system text must begin with a user message and alternate."""

    name = "strict"

    def __init__(self, room: int) -> None:
        self.room = room
        self.asked = 0

    @property
    def ready(self) -> bool:
        return True

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(context_length=self.room)

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def prepare(self, prompt: Prompt) -> PreparedTurn:
        self.asked += 1
        roles = [message.role for message in prompt.messages if message.role != "system"]
        if len(roles) > self.room:
            raise ContextOverflowError(len(roles), self.room)
        if roles[0] != "user":
            raise InvalidRequestError("Conversation roles must alternate.", code="template_error")
        return PreparedTurn(prompt=prompt, input_tokens=len(roles))

    def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        raise NotImplementedError


def conversation(turns: int) -> list[ChatMessage]:
    messages = [ChatMessage("system", "s")]
    for number in range(turns):
        messages += [ChatMessage("user", f"u{number}"), ChatMessage("assistant", f"a{number}")]
    return messages[:-1]


@pytest.mark.requirement("api:truncation", "api:truncation:template")
@pytest.mark.parametrize("room", range(1, 40))
async def test_as_little_as_possible_is_dropped_and_system_text_stays(room: int):
    engine = StrictEngine(room)
    messages = conversation(16)
    kept = (await prepare(engine, Prompt(messages), "auto")).prompt.messages
    fitting = min(room, 31) if min(room, 31) % 2 else min(room, 31) - 1
    assert kept[0].role == "system"
    assert list(kept[1:]) == messages[len(messages) - fitting :]
    assert engine.asked <= 8


@pytest.mark.requirement("api:truncation")
async def test_without_auto_or_where_not_even_the_last_message_fits_it_is_refused():
    with pytest.raises(ContextOverflowError):
        await prepare(StrictEngine(4), Prompt(conversation(16)), "disabled")
    with pytest.raises(ContextOverflowError):
        await prepare(StrictEngine(0), Prompt(conversation(16)), "auto")
    with pytest.raises(ContextOverflowError):
        await prepare(StrictEngine(0), Prompt(conversation(1)), "auto")
