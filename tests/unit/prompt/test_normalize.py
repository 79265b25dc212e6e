from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.prompt import normalize
from antiphon.prompt.normalize import arrangements, fold_system, merge_same_role, tool_forms
from antiphon.prompt.prompt import ChatMessage, ToolCall

S, U, A = (lambda text, role=role: ChatMessage(role, text) for role in ("system", "user", "assistant"))


@pytest.mark.requirement("prompt:normalize:ladder")
def test_the_ladder_goes_from_gentle_to_plain() -> None:
    given_messages = [S("s1"), S("s2"), U("u1"), S("s3"), U("u2")]
    rungs = list(arrangements(given_messages))
    assert rungs == [
        given_messages,
        [S("s1\n\ns2"), U("u1"), S("s3"), U("u2")],
        [S("s1\n\ns2\n\ns3"), U("u1\n\nu2")],
        [U("s1\n\ns2\n\ns3\n\nu1\n\nu2")],
    ]


@pytest.mark.requirement("prompt:normalize:ladder")
def test_a_conversation_that_nothing_changes_has_one_rung() -> None:
    assert list(arrangements([U("u"), A("a"), U("v")])) == [[U("u"), A("a"), U("v")]]


@pytest.mark.requirement("prompt:normalize:linear")
def test_an_arrangement_is_made_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        raise AssertionError("the first arrangement needs no merging")

    monkeypatch.setattr(normalize, "merge_same_role", refuse)
    assert next(arrangements([U("u"), U("v")])) == [U("u"), U("v")]


@pytest.mark.requirement("prompt:normalize:linear")
def test_many_messages_merge_in_linear_time() -> None:
    messages = [ChatMessage("user", "x" * 1024, reasoning="r" * 64) for _ in range(20_000)]
    began = time.process_time()
    rungs = list(arrangements(messages))
    assert time.process_time() - began < 2
    assert [len(rung) for rung in rungs] == [20_000, 1]
    assert len(rungs[1][0].text()) == 20_000 * 1026 - 2


@pytest.mark.requirement("prompt:normalize:merge")
def test_merging_keeps_reasoning_calls_and_parts() -> None:
    call = ToolCall("c", "f", "{}")
    first = ChatMessage("assistant", "", reasoning="r1")
    second = ChatMessage("assistant", "text", reasoning="r2", tool_calls=[call])
    assert merge_same_role([first, second]) == [
        ChatMessage("assistant", "text", reasoning="r1\nr2", tool_calls=(call,))
    ]
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    merged = merge_same_role([U("see"), ChatMessage("user", [image])])
    assert merged == [ChatMessage("user", [{"type": "text", "text": "see"}, image])]
    merged = merge_same_role([U("see"), U("this"), ChatMessage("user", [image]), U(""), U("and"), U("that")])
    texts = [{"type": "text", "text": text} for text in ("see\n\nthis", "and", "that")]
    assert merged == [ChatMessage("user", [texts[0], image, *texts[1:]])]


@pytest.mark.requirement("prompt:normalize:merge")
def test_tool_outputs_stay_apart() -> None:
    outputs = [ChatMessage("tool", "1", tool_call_id="a"), ChatMessage("tool", "2", tool_call_id="b")]
    assert merge_same_role(outputs) == outputs


@pytest.mark.requirement("prompt:normalize:fold")
def test_folding_makes_a_user_message_where_there_is_none() -> None:
    assert fold_system([S("s"), A("a")]) == [U("s"), A("a")]


@pytest.mark.requirement("prompt:normalize:fold")
@given(roles=st.lists(st.sampled_from(["system", "user", "assistant"]), max_size=8))
def test_no_text_is_lost_on_any_rung(roles: list[str]) -> None:
    messages = [ChatMessage(role, f"<{place}>") for place, role in enumerate(roles)]
    for rung in arrangements(messages):
        joined = "".join(message.text() for message in rung)
        assert all(joined.count(f"<{place}>") == 1 for place in range(len(roles)))
    assert all(message.role != "system" for message in rung) or not roles


@pytest.mark.requirement("prompt:normalize:tools")
def test_lists_of_types_are_shown_as_alternatives_to_templates_that_cannot_read_them() -> None:
    properties = {
        "type": {"type": ["string", "null"], "enum": ["a"]},
        "b": {"type": "array", "items": {"type": "string"}},
    }
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": properties}}}
    given, plain = tool_forms([tool])
    assert given == [tool]
    shown = plain[0]["function"]["parameters"]["properties"]
    assert shown["type"] == {"enum": ["a"], "anyOf": [{"type": "string"}, {"type": "null"}]}
    assert shown["b"] == properties["b"]
    del properties["type"]
    assert list(tool_forms([tool])) == [[tool]]
    assert list(tool_forms([])) == [[]]
