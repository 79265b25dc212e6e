"""Compaction in responses: triggers, thresholds, chains that go on, and items that come back (issue 3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.engines.base import PreparedTurn
from antiphon.engines.scripted import ScriptedEngine
from antiphon.errors import EngineError
from antiphon.machine.deltas import Delta, Stop, TokenUsage
from antiphon.prompt.compaction import SUMMARY_HEAD, is_summary_prompt
from antiphon.protocol.json import encode, loads
from antiphon.settings import Settings
from antiphon.store.base import Scope
from support.inprocess import InProcess, inprocess_app, sse_events

requirement = pytest.mark.requirement

TRIGGER = {"type": "compaction_trigger"}
CALL = '!CALL get_weather {"city": "Oslo"}'
OTHER = Scope("other")
NOTES = f"<|im_start|>user\n{SUMMARY_HEAD}SUMMARY<|im_end|>\n"
END = "<|im_start|>user\n!ECHO<|im_end|>\n<|im_start|>assistant\n"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def told(text: str) -> str:
    """A user message as `!ECHO` shows it."""
    return f"<|im_start|>user\n{text}<|im_end|>\n"


def above(tokens: int) -> list[dict[str, Any]]:
    return [{"type": "compaction", "compact_threshold": tokens}]


def engine(api: InProcess) -> ScriptedEngine:
    (found,) = api.service.registry.engines
    assert isinstance(found, ScriptedEngine)
    return found


@contextmanager
def summaries(api: InProcess, answer: str | None = None, fault: bool = False) -> Iterator[list[str]]:
    """What the model is given to sum up; it answers as it would, with that answer, or not at all."""
    seen: list[str] = []
    scripted = engine(api)
    generate = scripted.generate

    async def watched(turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        if is_summary_prompt(turn.prompt.messages):
            seen.append(turn.prompt.messages[-1].text())
            if fault:
                raise EngineError("The engine died.")
            if answer is not None:
                yield [Stop("stop", TokenUsage(turn.input_tokens, 0))]
                return
        async for deltas in generate(turn):
            yield deltas

    scripted.generate = watched
    try:
        yield seen
    finally:
        del scripted.generate


async def compacted(api: InProcess, items: Sequence[Any], **fields: Any) -> dict[str, Any]:
    """The item of a compaction of these items."""
    response = await api.create([*items, TRIGGER], **fields)
    (item,) = response["output"]
    return item


@requirement("compaction:trigger", "scripted:summary")
async def test_a_trigger_gives_exactly_one_compaction_item(api: InProcess) -> None:
    given = [user("The word is heron."), {"role": "assistant", "content": "Noted."}, TRIGGER]
    with summaries(api) as seen:
        whole = await api.create(given, tools=[{"type": "web_search"}], parallel_tool_calls=True)
        events = await api.stream(given)
    assert seen == [seen[0]] * 2
    assert "User: The word is heron.\n\nAssistant: Noted." in seen[0]
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    for response in (whole, events[-1]["response"]):
        assert response["status"] == "completed"
        (item,) = response["output"]
        assert list(item) == ["id", "type", "encrypted_content"]
        assert item["id"].startswith("cmp_")
        assert item["type"] == "compaction"
        assert "heron" not in item["encrypted_content"]
        assert response["usage"]["output_tokens"] == 1
        assert response["usage"]["input_tokens"] > 20
        assert (await api.client.get(f"/responses/{response['id']}")).json() == response


@requirement("compaction:trigger")
async def test_a_trigger_is_not_stored(api: InProcess) -> None:
    response = await api.create([user("one"), TRIGGER])
    page = await api.client.get(f"/responses/{response['id']}/input_items")
    assert [item["type"] for item in page.json()["data"]] == ["message"]


@requirement("compaction:trigger")
async def test_a_trigger_that_is_not_last_is_refused(api: InProcess) -> None:
    error = await api.refused(400, [user("one"), TRIGGER, user("two")])
    assert error["param"] == "input[1]"
    assert "last" in error["message"]
    assert (await api.refused(400, [TRIGGER]))["code"] == "empty_input"


@requirement("compaction:trigger", "compaction:replay")
async def test_a_chain_goes_on_from_its_compaction(api: InProcess) -> None:
    first = await api.create("The word is heron.", instructions="Old rule.")
    second = await api.create([user("Second."), TRIGGER], previous_response_id=first["id"])
    for fields in ({}, {"instructions": "New rule."}):
        prompt = await api.echo("And?", previous_response_id=second["id"], **fields)
        rule = "<|im_start|>system\nNew rule.<|im_end|>\n" if fields else ""
        assert prompt == rule + NOTES + told("The word is heron.") + told("Second.") + told("And?") + END
    before = await api.echo(previous_response_id=first["id"])
    assert "Hello from scripted." in before


@requirement("compaction:replay", "law:3:chain")
async def test_a_compaction_item_that_is_sent_back_replaces_what_is_before_it(api: InProcess) -> None:
    item = await compacted(api, [user("The word is heron."), {"role": "assistant", "content": "Noted."}])
    expected = NOTES + told("The word is heron.") + told("And?") + END
    for before in ([], [user("The word is heron.")], [user("x"), {"role": "assistant", "content": "y"}]):
        for sent in (item, {**item, "created_by": None}, {**item, "id": None}, {**item, "type": "compaction_summary"}):
            assert await api.echo([*before, sent, user("And?")]) == expected
    assert await api.echo([{"type": "item_reference", "id": item["id"]}, user("And?")]) == expected
    stored = await api.create([user("x"), item])
    assert await api.echo("And?", previous_response_id=stored["id"]) == NOTES + told("The word is heron.") + (
        "<|im_start|>assistant\nHello from scripted.<|im_end|>\n" + told("And?") + END
    )
    page = await api.client.get(f"/responses/{stored['id']}/input_items", params={"order": "asc"})
    assert page.json()["data"][1] == item


@requirement("compaction:replay")
async def test_a_chain_over_its_compaction_is_the_same_after_a_restart(tmp_path: Path) -> None:
    async with inprocess_app(store="sqlite", tmp_path=tmp_path) as api:
        first = await api.create("The word is heron.")
        second = await api.create([TRIGGER], previous_response_id=first["id"])
        third = await api.create("Third.", previous_response_id=second["id"])
        expected = await api.echo(previous_response_id=third["id"], store=False)
    async with inprocess_app(store="sqlite", tmp_path=tmp_path) as api:
        assert await api.echo(previous_response_id=third["id"], store=False) == expected
        inline = await api.echo([*second["output"], user("Third."), *third["output"]], store=False)
        assert inline == expected


@requirement("compaction:reset")
async def test_system_text_stays_and_is_restored_where_the_client_left_it_out(api: InProcess) -> None:
    rules = [{"role": "developer", "content": "Be kind."}]
    item = await compacted(api, [*rules, user("one"), {"role": "assistant", "content": "two"}])
    expected = "<|im_start|>system\nBe kind.<|im_end|>\n" + NOTES + told("one") + END
    assert await api.echo([item]) == expected
    assert await api.echo([*rules, user("one"), item]) == expected
    newer = [{"role": "developer", "content": "Be brief."}, user("one"), item]
    assert await api.echo(newer) == expected.replace("kind", "brief")
    assert await api.echo([item], instructions="Now.") == expected.replace("Be kind.", "Now.\n\nBe kind.")
    again = await compacted(api, [item, user("three")])
    assert (await api.echo([again])).startswith("<|im_start|>system\nBe kind.<|im_end|>\n" + NOTES)


@requirement("compaction:open-calls")
async def test_calls_stay_open_over_five_compactions_in_a_chain(api: InProcess) -> None:
    response = await api.create(f"!REASON I ask.\n{CALL}")
    for number in range(5):
        (call,) = [item for item in response["output"] if item["type"] == "function_call"]
        for _ in range(2):
            response = await api.create([TRIGGER], previous_response_id=response["id"])
            assert [item["type"] for item in response["output"]] == ["compaction"]
        error = await api.refused(400, "And?", previous_response_id=response["id"])
        assert error["code"] == "missing_tool_output"
        assert call["call_id"] in error["message"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": f"{number}C"}
        prompt = await api.echo([output], previous_response_id=response["id"], store=False)
        assert '<tool_call>{"name":"get_weather"' in prompt
        assert "<think>I ask.</think>" in prompt
        answer = await api.create([output], previous_response_id=response["id"])
        assert answer["output_text"] == f"FINAL: {number}C"
        response = await api.create(f"!REASON I ask.\n{CALL}", previous_response_id=answer["id"])


@requirement("compaction:open-calls")
async def test_calls_stay_open_over_five_compactions_inline(api: InProcess) -> None:
    window: list[Any] = [user(CALL)]
    for number in range(5):
        made = await api.create(window, store=False)
        window += made["output"]
        (call,) = [item for item in made["output"] if item["type"] == "function_call"]
        item = await compacted(api, window, store=False)
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": f"{number}C"}
        answer = await api.create([item, output], store=False)
        assert answer["output_text"] == f"FINAL: {number}C"
        window = [item, output, *answer["output"], user(CALL)]


@requirement("compaction:foreign")
async def test_a_foreign_compaction_item_is_dropped_and_what_is_before_it_stays(api: InProcess) -> None:
    sealed = (await compacted(api, [user("secret")]))["encrypted_content"]
    expected = told("The word is heron.") + told("And?") + END
    for blob in ("gAAAAABo_of_another_server", "", sealed[:-8] + "AAAAAAAA", None, 5):
        item = {"type": "compaction", "id": "cmp_1", "encrypted_content": blob}
        assert await api.echo([user("The word is heron."), item, user("And?")]) == expected


@requirement("compaction:foreign")
async def test_the_compaction_item_of_another_tenant_is_foreign(api: InProcess) -> None:
    item = await compacted(api, [user("secret"), {"role": "assistant", "content": "kept"}])
    body = {"model": "scripted", "input": [user("The word is heron."), item, user("!ECHO")]}
    run = await api.service.create(OTHER, encode(body))
    await api.service.launch(run)
    assert loads(run.body())["output_text"] == told("The word is heron.") + END


LONG = [user("Once. " * 500), {"role": "assistant", "content": "Then. " * 500}]


@requirement("compaction:threshold")
async def test_a_prompt_over_the_threshold_is_compacted_and_the_response_goes_on(api: InProcess) -> None:
    given = [*LONG, user("The last question."), user("!TEXT Answer.")]
    before = (await api.create(given, store=False))["usage"]["input_tokens"]
    with summaries(api) as seen:
        events = await api.stream(given, context_management=above(1_000))
        whole = await api.create(given, context_management=above(1_000))
    assert len(seen) == 2
    added = [event["item"]["type"] for event in events if event["type"] == "response.output_item.added"]
    assert added == ["compaction", "message"]
    for response in (events[-1]["response"], whole):
        assert [item["type"] for item in response["output"]] == ["compaction", "message"]
        assert response["output_text"] == "Answer."
        assert response["usage"]["output_tokens"] == 2
        assert "context_management" not in response
        follow = await api.create("!ECHO", previous_response_id=response["id"], context_management=above(1_000))
        assert [item["type"] for item in follow["output"]] == ["message"]
        prompt = follow["output_text"]
        assert prompt.startswith(NOTES)
        assert told("The last question.") + told("!TEXT Answer.") in prompt
        assert "Then." not in prompt
        assert follow["usage"]["input_tokens"] < before / 2


@requirement("compaction:threshold")
async def test_a_prompt_that_is_not_over_the_threshold_stays(api: InProcess) -> None:
    given = [*LONG, user("!TEXT Answer.")]
    count = (await api.create(given))["usage"]["input_tokens"]
    for fields in (above(count), above(count + 1), [{"type": "compaction"}], {"edits": [{"type": "clear"}]}):
        response = await api.create(given, context_management=fields)
        assert [item["type"] for item in response["output"]] == ["message"]
        assert response["usage"]["input_tokens"] == count
    response = await api.create(given, context_management=[*above(100_000), *above(count - 1)])
    assert [item["type"] for item in response["output"]] == ["compaction", "message"]


@requirement("compaction:threshold")
async def test_a_prompt_with_nothing_to_sum_up_stays(api: InProcess) -> None:
    response = await api.create([user("Once. " * 2_000)], context_management=above(1_000))
    assert [item["type"] for item in response["output"]] == ["message"]


@requirement("compaction:threshold")
@pytest.mark.parametrize("entries", [above(1_000_000), [{"type": "compaction"}]])
async def test_a_prompt_that_is_longer_than_the_context_is_compacted(entries: Any) -> None:
    async with inprocess_app(settings=Settings(scripted_context_length=1_200)) as api:
        given = [*LONG, user("The last question."), user("!ECHO")]
        assert (await api.refused(400, given))["code"] == "context_length_exceeded"
        response = await api.create(given, context_management=entries)
        assert [item["type"] for item in response["output"]] == ["compaction", "message"]
        assert response["output_text"] == NOTES + told("The last question.") + END


@requirement("compaction:threshold")
async def test_what_does_not_fit_even_when_it_is_compacted_fails(api: InProcess) -> None:
    async with inprocess_app(settings=Settings(scripted_context_length=1_200)) as small:
        rules = {"role": "developer", "content": "Rule. " * 1_000}
        response = await small.create([rules, *LONG, user("And?")], context_management=above(1_000))
        assert response["status"] == "failed"
        assert "maximum context length is 1200" in response["error"]["message"]


@requirement("compaction:threshold:checks")
async def test_entries_of_context_management_are_checked(api: InProcess) -> None:
    assert (await api.create("hi", context_management=above(1_000)))["status"] == "completed"
    for fields, param in (
        (above(999), "context_management[0].compact_threshold"),
        ([*above(1_000), *above(0)], "context_management[1].compact_threshold"),
        ([], "context_management"),
        ([{"type": "prune"}], "context_management[0].type"),
        ([{"compact_threshold": 1_000}], "context_management[0].type"),
        ("auto", "context_management"),
    ):
        assert (await api.refused(400, "hi", context_management=fields))["param"] == param


@requirement("compaction:summary:parts")
async def test_a_conversation_longer_than_the_context_is_summarised_in_parts() -> None:
    async with inprocess_app(settings=Settings(scripted_context_length=1_000)) as api:
        words = [f"word{number}" for number in range(3_000)]
        given = [{"role": "assistant", "content": " ".join(words[n : n + 100])} for n in range(0, 3_000, 100)]
        with summaries(api) as seen:
            item = await compacted(api, [*given, user("And?")])
        assert len(seen) > 5
        assert "notes on what came before" not in seen[0]
        assert all("Your notes on what came before:\n\nSUMMARY" in prompt for prompt in seen[1:])
        records = "".join(
            p.partition("The record:\n\n")[2].removesuffix("\n\nEnd of the record. Write the notes.") for p in seen
        )
        assert [word for word in records.replace("Assistant:", "").split() if word.startswith("word")] == words
        assert await api.echo([item]) == NOTES + told("And?") + END


@requirement("compaction:summary:parts")
async def test_even_a_very_small_context_comes_to_an_end() -> None:
    async with inprocess_app(settings=Settings(scripted_context_length=400)) as api:
        with summaries(api) as seen:
            await compacted(api, [user("Once. " * 20_000), {"role": "assistant", "content": "Then. " * 20_000}])
        assert 5 < len(seen) < 200


@requirement("compaction:summary:none")
async def test_the_record_stands_for_a_summary_that_the_model_does_not_write(api: InProcess) -> None:
    with summaries(api, answer=""):
        item = await compacted(api, [user("one"), {"role": "assistant", "content": "The word is heron."}])
    assert SUMMARY_HEAD + "User: one\n\nAssistant: The word is heron." in await api.echo([item])


@requirement("compaction:summary:prompt")
async def test_directives_in_a_record_are_not_obeyed(api: InProcess) -> None:
    item = await compacted(api, [user("first\n!ERR500"), {"role": "assistant", "content": "second\n!TEXT no"}])
    assert (await api.echo([item])).startswith(NOTES)


@requirement("compaction:faults")
async def test_an_engine_that_fails_over_a_summary_fails_the_response(api: InProcess) -> None:
    with summaries(api, fault=True):
        for fields in (
            {"input": [user("one"), TRIGGER]},
            {"input": [*LONG, user("x")], "context_management": above(1_000)},
        ):
            response = await api.create(**fields)
            assert response["status"] == "failed"
            assert response["output"] == []
            events = await api.stream(**fields)
            assert events[-1]["type"] == "response.failed"
        reply = await api.client.post("/responses/compact", json={"model": "scripted", "input": "hi"})
        assert reply.status_code == 500
    assert api.service.admission.running == 0


@requirement("compaction:faults")
async def test_a_compaction_that_is_cancelled_ends_the_response(api: InProcess) -> None:
    begun, closed = asyncio.Event(), asyncio.Event()
    scripted = engine(api)

    async def endless(turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        begun.set()
        try:
            await asyncio.Event().wait()
            yield []
        finally:
            closed.set()

    scripted.generate = endless
    run = await api.service.create(Scope("default"), encode({"model": "scripted", "input": [user("one"), TRIGGER]}))
    task = api.service.launch(run)
    await begun.wait()
    run.leave()
    await task
    del scripted.generate
    assert closed.is_set()
    assert loads(run.body())["status"] == "cancelled"


@requirement("compaction:replay")
async def test_background_and_streams_show_the_same_compaction(api: InProcess) -> None:
    made = await api.client.post(
        "/responses",
        json={"model": "scripted", "input": [user("one"), TRIGGER], "background": True, "stream": True},
    )
    events = sse_events(made.content)
    (item,) = events[-1]["response"]["output"]
    again = await api.client.get(f"/responses/{events[0]['response']['id']}", params={"stream": "true"})
    assert sse_events(again.content) == events
    assert (await api.echo([item])).startswith(NOTES)


@requirement("compaction:resume")
async def test_a_response_that_is_gone_on_with_uses_its_compaction_item_again(tmp_path: Path) -> None:
    given = [*LONG, user("!SLOW 10\n!COUNT 150")]
    body = {"model": "scripted", "input": given, "background": True, "context_management": above(1_000)}
    url = "/responses/{}"

    async def seen(api: InProcess, identity: str, enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(20):
            while True:
                found = (await api.client.get(url.format(identity))).json()
                if enough(found):
                    return found
                await asyncio.sleep(0.01)

    async with inprocess_app(store="sqlite", tmp_path=tmp_path) as api:
        begun = (await api.client.post("/responses", json=body)).json()
        before = await seen(api, begun["id"], lambda r: len(r["output"]) == 2 and bool(r["output"][1]["content"]))
        assert before["status"] == "in_progress"
    async with inprocess_app(store="sqlite", tmp_path=tmp_path) as api:
        with summaries(api) as again:
            after = await seen(api, begun["id"], lambda r: r["status"] != "in_progress")
        assert again == []
        assert after["status"] == "completed"
        assert after["output"][0] == before["output"][0]
        assert [item["type"] for item in after["output"]] == ["compaction", "message"]
        assert after["output"][1]["content"][0]["text"] == " ".join(str(number) for number in range(1, 151))
        prompt = await api.echo(previous_response_id=begun["id"], store=False)
        assert prompt.startswith(NOTES + told("!SLOW 10\n!COUNT 150"))


@requirement("compaction:replay")
async def test_a_conversation_goes_on_from_its_compaction(api: InProcess) -> None:
    made = await api.client.post("/conversations", json={"items": [user("The word is heron.")]})
    conversation = made.json()["id"]
    await api.create([user("one"), TRIGGER], conversation=conversation)
    await api.create("!TEXT Two.", conversation=conversation)
    prompt = await api.echo("And?", conversation=conversation)
    assert prompt == (
        NOTES
        + told("The word is heron.")
        + told("one")
        + told("!TEXT Two.")
        + "<|im_start|>assistant\nTwo.<|im_end|>\n"
        + told("And?")
        + END
    )
    listed = (await api.client.get(f"/conversations/{conversation}/items", params={"order": "asc"})).json()
    kinds = [item["type"] for item in listed["data"]]
    assert kinds[:3] == ["message", "message", "compaction"]
    assert "compaction_trigger" not in kinds


@requirement("compaction:threshold", "compaction:open-calls")
async def test_the_output_of_a_tool_that_crosses_the_threshold_is_answered(api: InProcess) -> None:
    chain: dict[str, Any] = {}
    for number in range(3):
        asked = await api.create(f"!REASON Call {number}.\n{CALL}", context_management=above(1_000), **chain)
        call = asked["output"][-1]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": f"{number}C " * 900}
        answer = await api.create([output], previous_response_id=asked["id"], context_management=above(1_000))
        assert answer["output_text"] == f"FINAL: {number}C " + f"{number}C " * 898 + f"{number}C "
        chain = {"previous_response_id": answer["id"]}
        kinds = [item["type"] for item in asked["output"]]
        assert kinds == (["compaction"] if number else []) + ["reasoning", "function_call"]


@requirement("compaction:replay")
async def test_a_history_that_is_only_handed_over_goes_on_from_its_compaction(api: InProcess) -> None:
    scope = Scope("default")
    body: dict[str, Any] = {"model": "scripted", "store": False}
    parent = None
    for given in ([user("The word is heron.")], [user("one"), TRIGGER], [user("!ECHO")]):
        run = await api.service.create(scope, encode({**body, "input": given}), parent=parent)
        await api.service.launch(run)
        parent = run.ended_turn()
    assert loads(run.body())["output_text"] == NOTES + told("The word is heron.") + told("one") + END
