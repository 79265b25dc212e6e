"""What a compaction keeps, what its summary is made from, and how an opened one stands in a history."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.prompt import compaction
from antiphon.prompt.assembly import assemble
from antiphon.prompt.compaction import (
    answered,
    decode_context,
    encode_context,
    is_summary_prompt,
    keep,
    shorten,
    split_summary,
    summary_prompt,
    transcript,
    unanswered,
)
from antiphon.prompt.messages import (
    EMPTY,
    CompactedContext,
    Conversation,
    MessageBuilder,
    PromptItem,
    join,
    media_of,
    settle,
)
from antiphon.prompt.prompt import ChatMessage, ToolCall
from antiphon.protocol.items import decode_item
from antiphon.protocol.json import encode, loads

requirement = pytest.mark.requirement

PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def assistant(text: str, *calls: str, reasoning: str = "") -> ChatMessage:
    return ChatMessage("assistant", text, reasoning, tuple(ToolCall(call, f"tool_{call}", "{}") for call in calls))


def output(call: str, text: str = "done") -> ChatMessage:
    return ChatMessage("tool", text, tool_call_id=call)


def letters(message: ChatMessage) -> int:
    calls = sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return len(message.text()) + len(message.reasoning) + calls


texts = st.text("ab \n", max_size=30)
some_messages = st.lists(
    st.one_of(
        texts.map(user),
        texts.map(assistant),
        st.lists(st.sampled_from("pqrs"), min_size=1, max_size=2, unique=True).map(lambda c: assistant("", *c)),
        st.sampled_from("pqrs").map(output),
    ),
    max_size=12,
)


@requirement("compaction:keep")
def test_what_is_not_answered_is_kept_word_for_word() -> None:
    past = [user("one"), assistant("two")]
    now = [user("three"), user("four")]
    assert keep([*past, *now], 1_000, 0).messages == now
    calls = [assistant("", "p", "q", reasoning="Both."), output("p"), output("q")]
    assert keep([*past, user("three"), *calls], 1_000, 0).messages == calls
    assert keep([*past, user("three"), *calls[:2]], 1_000, 0).messages == calls[:2]


@requirement("compaction:keep")
def test_an_earlier_call_without_an_output_is_kept_with_its_thinking_and_the_outputs_beside_it() -> None:
    call = assistant("", "p", "q", reasoning="Both.")
    messages = [user("one"), call, output("q"), user("wait"), assistant("Waiting."), user("still?")]
    kept = keep(messages, 1_000, 0)
    assert kept.messages == [call, output("q"), user("still?")]
    assert kept.verbatim == {1, 2, 5}


@requirement("compaction:keep")
def test_as_many_of_the_newest_messages_of_the_user_are_kept_as_fit() -> None:
    messages = [message for n in range(9) for message in (user(f"question {n}"), assistant("yes"))]
    assert keep(messages, 1_000, 25).messages == [user("question 7"), user("question 8")]
    assert keep(messages, 1_000, 1_000).messages == [user(f"question {n}") for n in range(9)]
    assert keep(messages, 1_000, 9).messages == []


@requirement("compaction:keep")
@given(some_messages, st.integers(0, 200), st.integers(0, 200))
def test_open_calls_are_never_lost_and_the_budgets_hold(messages: list[ChatMessage], tail: int, users: int) -> None:
    kept = keep(messages, tail, users)
    assert set(unanswered(kept.messages)) == set(unanswered(messages))
    assert all(messages[index] in kept.messages for index in kept.verbatim)
    everything = keep(messages, 10_000, 10_000).messages
    remaining = iter(everything)
    assert all(any(_alike(message, other) for other in remaining) for message in kept.messages)
    extra = keep(messages, tail, 0)
    spent = sum(map(letters, kept.messages)) - sum(map(letters, extra.messages))
    assert spent <= users


def _alike(message: ChatMessage, other: ChatMessage) -> bool:
    """Whether one is the other, its text perhaps shortened."""
    return (message.role, message.tool_call_id, message.tool_calls) == (
        other.role,
        other.tool_call_id,
        other.tool_calls,
    )


@requirement("compaction:keep")
def test_long_outputs_are_shortened_before_short_ones() -> None:
    messages = [assistant("", "p", "q", reasoning="Why."), output("p", "x" * 10_000), output("q", "short")]
    kept = keep(messages, 1_000, 0).messages
    assert kept[0] == messages[0]
    assert kept[2] == messages[2]
    assert kept[1].text().startswith("xxx")
    assert kept[1].text().endswith("xxx")
    assert "characters are left out here" in kept[1].text()
    assert len(kept[1].text()) < 1_100


@requirement("compaction:keep:media")
def test_media_of_what_is_not_answered_are_kept_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Any] = [ChatMessage("user", [{"type": "text", "text": f"look {n}"}, PIXEL]) for n in range(3)]
    past = [ChatMessage("user", [{"type": "text", "text": "past"}, PIXEL]), assistant("Seen.")]
    kept = keep([*past, *looks], 1_000, 1_000).messages
    assert kept[0].content == "past\n[image left out]"
    assert kept[1:] == looks
    assert media_of(kept) == {"image"}
    monkeypatch.setattr(compaction, "MAX_MEDIA", 2 * len(encode(PIXEL)))
    assert [type(message.content) for message in keep(looks, 1_000, 0).messages] == [str, list, list]


@requirement("compaction:payload")
def test_a_context_opens_to_the_summary_and_what_was_kept() -> None:
    kept = [user("two"), assistant("", "p", reasoning="Hm."), ChatMessage("user", [PIXEL])]
    context = decode_context(encode_context("Heron.", ["Be kind."], kept))
    assert context is not None
    assert context.system == ("Be kind.",)
    assert split_summary(context.messages)[0] == "Heron."
    assert encode(split_summary(context.messages)[1]) == encode(kept)
    assert split_summary(kept) == ("", kept)


@requirement("compaction:payload")
@pytest.mark.parametrize("payload", [b"", b"{}", b"\xff", encode_context("", [], []).replace(b"1", b"2", 1)])
def test_a_payload_of_another_version_is_nothing(payload: bytes) -> None:
    assert decode_context(payload) is None


@requirement("compaction:summary:prompt")
def test_the_record_tells_who_said_what_without_thinking() -> None:
    messages = [
        ChatMessage("user", [{"type": "text", "text": "Look."}, PIXEL]),
        assistant("I ask.", "p", reasoning="Secret."),
        output("p", "12C"),
    ]
    assert transcript(messages, frozenset(), 10_000) == (
        "User: Look.\n[image left out]\n\nAssistant: I ask.\nAssistant calls the tool tool_p with {}\n\n"
        "Output of a tool: 12C"
    )


@requirement("compaction:summary:prompt")
def test_the_record_shows_only_the_beginning_of_what_is_kept_and_is_bounded() -> None:
    long = "x" * 5_000
    assert len(transcript([user(long), user(long)], frozenset({0}), 100_000)) < 5_600
    many = [user(f"{n} " + long) for n in range(200)]
    record = transcript(many, frozenset(), 20_000)
    assert len(record) < 22_000
    assert record.startswith("[What came before is left out.]")
    assert "User: 199 xxx" in record
    assert len(transcript(many[:3], frozenset(), 20_000)) > 15_000


@requirement("compaction:summary:prompt")
def test_a_summary_prompt_is_known_again_and_carries_earlier_notes() -> None:
    prompt = summary_prompt("Old notes.", "User: hi", 100)
    assert is_summary_prompt(prompt.messages)
    assert not is_summary_prompt(prompt.messages[1:])
    assert not is_summary_prompt([])
    assert prompt.max_output_tokens == 100
    told = prompt.messages[-1].text()
    assert told.index("Old notes.") < told.index("User: hi")
    assert "notes on what came before" not in summary_prompt("", "User: hi", 100).messages[-1].text()


@requirement("compaction:summary:prompt")
@given(st.text(max_size=300), st.integers(0, 400))
def test_shortened_text_keeps_its_beginning_and_its_end(text: str, most: int) -> None:
    short = shorten(text, most)
    if len(text) <= most:
        assert short == text
        return
    head, _, rest = short.partition("\n[… ")
    assert text.startswith(head)
    number, _, tail = rest.partition(" characters are left out here …]\n")
    assert text.endswith(tail)
    assert len(head) + len(tail) == most
    assert int(number) == len(text) - most


@requirement("compaction:keep")
def test_a_conversation_of_which_nothing_is_answered_has_nothing_to_compact() -> None:
    assert not answered([user("one"), user("two")])
    assert not answered([assistant("", "p"), output("p")])
    assert answered([user("one"), assistant("two")])
    assert not answered([])


SUMMARY = ChatMessage("user", "summary")
item_values = st.sampled_from(
    [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
        {"role": "developer", "content": "rule one"},
        {"role": "developer", "content": "rule two"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "12C"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]},
    ]
)
prompt_items = st.one_of(
    item_values.map(lambda value: decode_item(encode(value))),
    st.sampled_from(
        [
            CompactedContext((), (SUMMARY,)),
            CompactedContext(("rule of old",), (SUMMARY, user("kept"))),
            CompactedContext(("rule one", "rule of old"), (SUMMARY, ChatMessage("user", [PIXEL]))),
        ]
    ),
)


def converted(items: Sequence[PromptItem], before: Conversation = EMPTY) -> Conversation:
    builder = MessageBuilder(before)
    builder.add(items)
    return builder.conversation()


@requirement("compaction:reset", "law:3:chain")
@given(st.lists(st.lists(prompt_items, max_size=4), min_size=1, max_size=5), st.integers(1, 5))
def test_a_history_in_parts_is_told_as_its_items_in_one(parts: list[list[PromptItem]], cut: int) -> None:
    turns: list[Conversation] = []
    for items in parts:
        turns.append(converted(items, join(turns) if turns else EMPTY))
    inline = converted([item for items in parts for item in items])
    expected = [loads(encode(message)) for message in assemble(settle([inline]), "Now.")]
    for told in (turns, [join(turns)], list(accumulate(turns, lambda a, b: join([a, b])))[-1:]):
        assert [loads(encode(message)) for message in assemble(settle(told), "Now.")] == expected
    halves = [join(turns[:cut]), *([join(turns[cut:])] if turns[cut:] else [])]
    assert [loads(encode(message)) for message in assemble(settle(halves), "Now.")] == expected
    media = frozenset[str]().union(*(part.media for part in settle(turns)))
    assert media == media_of(assemble(settle(turns), None))
    assert any(part.substance for part in settle(turns)) == any(part.substance for part in settle([inline]))


@requirement("compaction:reset")
def test_system_text_stays_and_is_restored_only_where_there_is_none() -> None:
    context = CompactedContext(("old rule",), (SUMMARY,))
    rule = decode_item(encode({"role": "developer", "content": "new rule"}))
    hello = decode_item(encode({"role": "user", "content": "hello"}))
    before = converted([rule, hello])
    assert assemble(settle([before, converted([context])]), None) == [ChatMessage("system", "new rule"), SUMMARY]
    assert assemble(settle([converted([hello, context, rule])]), None) == [
        ChatMessage("system", "old rule\n\nnew rule"),
        SUMMARY,
    ]


@requirement("compaction:reset")
def test_instructions_given_as_items_are_not_replaced() -> None:
    standing = msgspec.structs.replace(
        converted([decode_item(encode({"role": "user", "content": "example"}))]), pinned=True
    )
    told = settle([standing, converted([CompactedContext((), (SUMMARY,))])])
    assert assemble(told, None) == [user("example"), SUMMARY]
