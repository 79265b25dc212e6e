"""What a model is told beside the conversation: where it stands, what it says, and when nothing is added."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.prompt.instructions import instructed
from antiphon.prompt.prompt import ChatMessage, Prompt, ResolvedChoice
from antiphon.protocol.request import TextFormat
from antiphon.protocol.tools import FunctionTool

requirement = pytest.mark.requirement

TOOLS = [FunctionTool(name="f", parameters=None), FunctionTool(name="g", parameters=None)]
SYSTEM = ChatMessage("system", "Be kind.")
USER = ChatMessage("user", "Hi.")
IMAGE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:,"}}
ONE = "You must call the 'f' function."
SOME = "You must call one or more of the available functions."
FORM = TextFormat(type="json_schema", name="n", schema={"type": "object"})


def told(messages: list[ChatMessage], *allowed: str, mode: str = "required", **fields: Any) -> list[ChatMessage]:
    """The messages with the instructions of a choice."""
    tools = [tool for tool in TOOLS if tool.name in allowed] if len(allowed) == 1 else TOOLS
    choice = ResolvedChoice(mode, allowed)  # pyright: ignore[reportArgumentType]
    return list(instructed(Prompt(messages, tools=tools, choice=choice, **fields)).messages)


@requirement("prompt:instructions", "subset:M9")
def test_a_forced_call_is_said_in_the_system_text_first() -> None:
    found = told([SYSTEM, USER, ChatMessage("assistant", "Yes?"), USER], "f", "g")
    assert [message.role for message in found] == ["system", "user", "assistant", "user"]
    assert found[0].text().startswith(f"Be kind.\n\n{SOME}")
    assert found[1:] == [USER, ChatMessage("assistant", "Yes?"), USER]


@requirement("prompt:instructions", "subset:M9")
def test_without_system_text_it_is_said_in_the_last_message_of_a_user() -> None:
    found = told([USER, ChatMessage("assistant", "Yes?"), USER, ChatMessage("tool", "O")], "f")
    assert found[0] == USER
    assert found[2].text().startswith(f"Hi.\n\n{ONE}")
    assert found[3] == ChatMessage("tool", "O")
    (with_image,) = told([ChatMessage("user", [IMAGE])], "f")
    assert with_image.content[0] == IMAGE
    assert ONE in with_image.text()


@requirement("prompt:instructions", "subset:M9")
def test_without_either_it_is_system_text_of_its_own() -> None:
    found = told([ChatMessage("assistant", "Yes?")], "f")
    assert [message.role for message in found] == ["system", "assistant"]
    assert found[0].text().startswith(ONE)


@requirement("prompt:instructions")
def test_it_says_which_and_how_many() -> None:
    assert "exactly one of the available functions" in told([USER], "f", "g", parallel_tool_calls=False)[0].text()
    (only,) = told([USER], "g")
    assert "'g'" in only.text()
    three = [*TOOLS, FunctionTool(name="h", parameters=None)]
    limited = Prompt([USER], tools=three, choice=ResolvedChoice("required", ("f", "g")))
    assert "one or more of these functions: 'f', 'g'" in instructed(limited).messages[0].text()


@requirement("prompt:instructions")
@pytest.mark.parametrize("mode", ["auto", "none"])
def test_nothing_is_said_where_nothing_is_forced(mode: str) -> None:
    assert told([SYSTEM, USER], "f", "g", mode=mode) == [SYSTEM, USER]
    text = TextFormat(type="text")
    assert told([SYSTEM, USER], "f", "g", mode=mode, format=text) == [SYSTEM, USER]


@requirement("prompt:instructions")
def test_the_form_of_an_answer_is_system_text_and_gives_way_to_a_forced_call() -> None:
    found = told([USER], mode="none", format=FORM)
    assert [message.role for message in found] == ["system", "user"]
    assert '{"type":"object"}' in found[0].text()
    assert "If you call no function" in told([USER], "f", "g", mode="auto", format=FORM)[0].text()
    assert told([USER], "f", format=FORM) == told([USER], "f")


@requirement("prompt:instructions")
def test_the_messages_of_the_request_stay_as_they_came() -> None:
    messages = [SYSTEM, USER]
    told(messages, "f")
    assert messages == [ChatMessage("system", "Be kind."), ChatMessage("user", "Hi.")]
