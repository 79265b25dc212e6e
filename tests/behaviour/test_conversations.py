"""Conversations: their routes, and requests that read from one and add to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import NotFoundError
from antiphon.http.app import create_app
from antiphon.protocol.conversation import CreateConversation
from antiphon.settings import Settings
from antiphon.store.base import Scope
from support.asgi import ManualExchange
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement

UNKNOWN = "conv_" + "0" * 44
CALL = '!CALL weather {"city": "Oslo"}'
TOOLS = [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}]
RAW = [
    {
        "type": "web_search_call",
        "id": "ws_theirs",
        "status": "completed",
        "action": {"type": "search", "queries": ["a"], "query": "a"},
    },
    {"type": "mcp_call", "server_label": "s", "name": "n", "arguments": "{}", "output": "o"},
    {"type": "no_such_type", "deep": {"list": [1, None, "ü"]}},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "foreign"},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}", "id": "fc_theirs"},
    {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "sunny"}]},
    {"type": "custom_tool_call", "call_id": "call_2", "name": "free", "input": "words"},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "done"},
    {"role": "assistant", "content": "Earlier."},
    {"role": "developer", "content": "Be kind."},
]


class Talk:
    """A client of the conversation routes."""

    def __init__(self, api: InProcess) -> None:
        self.api = api

    async def ask(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        """The answer to a request below `/conversations`, which must have that status."""
        answer = await self.api.client.request(method, f"/conversations{path}", **options)
        assert answer.status_code == status, answer.text
        return answer.json() if status == 200 else answer.json()["error"]

    async def begin(self, *texts: str, **fields: Any) -> str:
        """The id of a new conversation with these user messages."""
        items = [user(text) for text in texts]
        return (await self.ask("POST", "", json={"items": items, **fields}))["id"]

    async def items(self, identity: str) -> list[dict[str, Any]]:
        """All items, oldest first."""
        found = await self.ask("GET", f"/{identity}/items", params={"order": "asc", "limit": 100})
        assert not found["has_more"]
        return found["data"]

    async def texts(self, identity: str) -> list[str]:
        """The role and the text of all messages."""
        return [f"{item['role']}: {item['content'][0]['text']}" for item in await self.items(identity)]


@pytest.fixture
def talk(api: InProcess) -> Talk:
    return Talk(api)


@pytest.fixture(params=["memory", "sqlite"])
async def automatic(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Talk]:
    settings = Settings(conversation_autocreate=True)
    async with inprocess_app(settings=settings, store=request.param, tmp_path=tmp_path) as app:
        yield Talk(app)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


# The routes


@requirement("conversations:object")
async def test_a_conversation_is_created_read_changed_and_deleted(talk: Talk) -> None:
    made = await talk.ask("POST", "", json={"items": [user("one")], "metadata": {"a": "b"}})
    assert made["id"].startswith("conv_")
    assert made == {
        "id": made["id"],
        "object": "conversation",
        "created_at": made["created_at"],
        "metadata": {"a": "b"},
    }
    assert isinstance(made["created_at"], int)
    path = f"/{made['id']}"
    assert await talk.ask("GET", path) == made
    assert await talk.ask("POST", path, json={"metadata": {"z": "1"}}) == {**made, "metadata": {"z": "1"}}
    assert await talk.ask("GET", path) == {**made, "metadata": {"z": "1"}}
    assert await talk.ask("POST", path, json={"metadata": None}) == {**made, "metadata": {}}
    deleted = {"id": made["id"], "object": "conversation.deleted", "deleted": True}
    assert await talk.ask("DELETE", path) == deleted
    for method, below in (("GET", ""), ("DELETE", ""), ("GET", "/items")):
        assert (await talk.ask(method, path + below, 404))["code"] == "conversation_not_found"


@requirement("conversations:object")
@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"items":[]}', b'{"items":null,"metadata":null}', b'{"later":{"field":1}}']
)
async def test_a_conversation_may_begin_with_nothing(talk: Talk, body: bytes) -> None:
    made = await talk.ask("POST", "", content=body)
    assert made["metadata"] == {}
    assert await talk.ask("GET", f"/{made['id']}/items") == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }


@requirement("conversations:routes")
async def test_the_routes_stand_without_v1_too(talk: Talk) -> None:
    answer = await talk.api.client.post("http://127.0.0.1/conversations", json={})
    assert answer.status_code == 200
    identity = answer.json()["id"]
    assert (await talk.api.client.get(f"http://127.0.0.1/conversations/{identity}/items")).status_code == 200
    assert (await talk.api.client.get("/conversations")).status_code == 405


@requirement("conversations:bounds")
async def test_at_most_twenty_items_come_in_one_request(talk: Talk) -> None:
    texts = [f"number {number}" for number in range(20)]
    identity = await talk.begin(*texts)
    await talk.ask("POST", f"/{identity}/items", json={"items": [user(text) for text in texts]})
    for path in ("", f"/{identity}/items"):
        error = await talk.ask("POST", path, 400, json={"items": [user("x")] * 21})
        assert (error["param"], error["code"]) == ("items", "array_above_max_length")
    assert len(await talk.items(identity)) == 40


@requirement("conversations:bounds")
@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata", "object_above_max_properties"),
        ({"metadata": {"k" * 65: ""}}, "metadata", "string_above_max_length"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k", "string_above_max_length"),
        ({"metadata": {"k": 1}}, "metadata[...]", "invalid_value"),
        ({"metadata": "text"}, "metadata", "invalid_value"),
    ],
)
async def test_metadata_has_the_limits_of_responses(talk: Talk, body: Any, param: str, code: str) -> None:
    identity = await talk.begin()
    for path in ("", f"/{identity}"):
        error = await talk.ask("POST", path, 400, json=body)
        assert error["code"] == code
        assert error["param"] in (param, param.removesuffix("[...]"))
    most = {"metadata": {f"{number:064}": "v" * 512 for number in range(16)}}
    assert (await talk.ask("POST", f"/{identity}", json=most))["metadata"] == most["metadata"]


@requirement("conversations:bounds")
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("", b"[", None),
        ("", b'{"items":"text"}', "items"),
        ("", b'{"items":[{"role":"king","content":"x"}]}', "items[0].role"),
        ("/ID", b"{}", "metadata"),
        ("/ID/items", b"{}", "items"),
        ("/ID/items", b'{"items":[{"role":"user","content":"x"},{"type":"message"}]}', "items[1].role"),
        ("/ID/items", b'{"items":[{"type":"compaction_trigger"}]}', "items[0]"),
        ("/ID/items", b'{"items":[{"type":"item_reference","id":"msg_unknown"}]}', "items[0].id"),
    ],
)
async def test_what_is_wrong_is_named(talk: Talk, path: str, body: bytes, param: str | None) -> None:
    identity = await talk.begin("one")
    answer = await talk.api.client.post(f"/conversations{path.replace('ID', identity)}", content=body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param
    assert await talk.texts(identity) == ["user: one"]


@requirement("conversations:unknown")
@pytest.mark.parametrize("identity", [UNKNOWN, "conv_x", "resp_1", "%00", "a%20b", "a" * 65, "..%5c..", "ü"])
async def test_unknown_and_malformed_ids_are_one_404(talk: Talk, identity: str) -> None:
    calls: list[tuple[str, str, Any]] = [
        ("GET", "", None),
        ("POST", "", {"metadata": {}}),
        ("DELETE", "", None),
        ("GET", "/items", None),
        ("POST", "/items", {"items": [user("x")]}),
        ("GET", "/items/msg_1", None),
        ("DELETE", "/items/msg_1", None),
    ]
    errors = [await talk.ask(method, f"/{identity}{below}", 404, json=body) for method, below, body in calls]
    assert all(error == errors[0] for error in errors)
    assert (errors[0]["type"], errors[0]["code"]) == ("invalid_request_error", "conversation_not_found")


@requirement("conversations:tenants")
async def test_a_foreign_conversation_is_the_same_as_none(api: InProcess) -> None:
    conversations = api.service.conversations
    assert conversations is not None
    foreign = Scope("someone else")
    made = await conversations.create(foreign, CreateConversation([], {}))
    talk = Talk(api)
    error = await talk.ask("GET", f"/{made.id}", 404)
    assert error == {**(await talk.ask("GET", f"/{UNKNOWN}", 404)), "message": error["message"]}
    refused = await api.refused(404, "Hi.", conversation=made.id)
    assert (refused["param"], refused["code"]) == ("conversation", "conversation_not_found")
    ours = await talk.begin("ours")
    with pytest.raises(NotFoundError):
        await conversations.history(foreign, ours)
    (item,) = await talk.items(ours)
    with pytest.raises(NotFoundError):
        await conversations.retrieve_item(foreign, made.id, item["id"])


# Items


@requirement("conversations:items")
async def test_items_of_any_kind_survive_with_ids_of_ours(talk: Talk) -> None:
    identity = await talk.begin()
    added = await talk.ask("POST", f"/{identity}/items", json={"items": RAW}, params={"include[]": "any.thing"})
    listed = await talk.items(identity)
    assert added["data"] == listed
    assert (added["first_id"], added["last_id"], added["has_more"]) == (listed[0]["id"], listed[-1]["id"], False)
    assert len({item["id"] for item in listed}) == len(RAW)
    for sent, kept in zip(RAW, listed, strict=True):
        assert kept["id"] != sent.get("id")
        for name in sent.keys() - {"id", "content"}:
            assert kept[name] == sent[name], kept
    assert listed[-2]["content"] == [{"type": "output_text", "text": "Earlier.", "annotations": [], "logprobs": []}]
    assert [await talk.ask("GET", f"/{identity}/items/{item['id']}") for item in listed] == listed


@requirement("conversations:items")
async def test_ids_of_ours_stay_and_an_item_stands_once(talk: Talk) -> None:
    first = await talk.begin("one", "two")
    items = await talk.items(first)
    again = await talk.ask("POST", f"/{first}/items", json={"items": [items[0], user("three")]})
    assert again["first_id"] == items[0]["id"]
    assert await talk.texts(first) == ["user: one", "user: two", "user: three"]
    second = await talk.begin()
    reference = {"type": "item_reference", "id": items[0]["id"]}
    changed = {**items[1], "content": "changed"}
    await talk.ask("POST", f"/{second}/items", json={"items": [reference, changed]})
    kept, new = await talk.items(second)
    assert kept == items[0]
    assert new["id"] != items[1]["id"]
    assert await talk.texts(second) == ["user: one", "user: changed"]


@requirement("conversations:items")
async def test_an_item_is_taken_out(talk: Talk) -> None:
    identity, other = await talk.begin("one", "two"), await talk.begin("three")
    first, second = await talk.items(identity)
    path = f"/{identity}/items/{first['id']}"
    assert await talk.ask("DELETE", path) == await talk.ask("GET", f"/{identity}")
    for method in ("GET", "DELETE"):
        assert (await talk.ask(method, path, 404))["code"] == "item_not_found"
        assert (await talk.ask(method, f"/{other}/items/{second['id']}", 404))["code"] == "item_not_found"
    assert await talk.texts(identity) == ["user: two"]
    assert await talk.texts(other) == ["user: three"]


@requirement("conversations:paging")
async def test_pages_go_by_the_id_of_the_last_item(talk: Talk) -> None:
    identity = await talk.begin(*[f"{number}" for number in range(20)])
    await talk.ask("POST", f"/{identity}/items", json={"items": [user(str(number)) for number in range(20, 25)]})
    ids = [item["id"] for item in await talk.items(identity)]
    for order, expected in (("asc", ids), ("desc", ids[::-1])):
        seen: list[str] = []
        params: dict[str, Any] = {"order": order, "limit": 10}
        while True:
            page = await talk.ask("GET", f"/{identity}/items", params=params)
            data = [item["id"] for item in page["data"]]
            assert (page["first_id"], page["last_id"]) == (data[0], data[-1])
            seen += data
            assert page["has_more"] == (len(seen) < len(ids))
            if not page["has_more"]:
                break
            params["after"] = page["last_id"]
        assert seen == expected
    default = await talk.ask("GET", f"/{identity}/items")
    assert [item["id"] for item in default["data"]] == ids[:4:-1]


@requirement("conversations:paging")
@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "ten"}, "limit"),
        ({"order": "up"}, "order"),
        ({"after": "msg_nothing"}, "after"),
    ],
)
async def test_a_wrong_page_is_named(talk: Talk, params: dict[str, str], param: str) -> None:
    identity = await talk.begin("one")
    assert (await talk.ask("GET", f"/{identity}/items", 400, params=params))["param"] == param


# Requests


@requirement("conversations:request", "api:conversations")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_reads_and_extends_its_conversation(talk: Talk, stream: bool) -> None:
    api = talk.api
    identity = await talk.begin("The word is heron.")
    for named in (identity, {"id": identity}):
        if stream:
            events = await api.stream("!TEXT noted", conversation=named)
            told = [event["response"] for event in events if "response" in event]
            assert len(told) == 3
        else:
            told = [await api.create("!TEXT noted", conversation=named)]
        assert all(response["conversation"] == {"id": identity} for response in told)
        assert (await api.client.get(f"/responses/{told[-1]['id']}")).json() == told[-1]
        assert (await talk.items(identity))[-1] == told[-1]["output"][0]
    assert await talk.texts(identity) == [
        "user: The word is heron.",
        "user: !TEXT noted",
        "assistant: noted",
        "user: !TEXT noted",
        "assistant: noted",
    ]
    prompt = (await api.create("!ECHO", conversation=identity))["output_text"]
    assert prompt.index("heron") < prompt.index("noted")


@requirement("conversations:request")
async def test_a_response_without_a_conversation_has_none(api: InProcess) -> None:
    assert "conversation" not in await api.create("Hi.")


@requirement("law:3:conversation")
async def test_the_prompt_of_a_conversation_is_that_of_its_items_inline(talk: Talk) -> None:
    api = talk.api
    identity = await talk.begin("one")
    for text in ("!REASON hm\n!TEXT two", "!TEXT three"):
        await api.create(text, conversation=identity)
    await talk.ask("POST", f"/{identity}/items", json={"items": RAW})
    items = await talk.items(identity)
    # Once with what earlier requests left in memory, once read whole, as by another server.
    warm = await api.echo(conversation=identity, store=False)
    conversations = api.service.conversations
    assert conversations is not None
    conversations._cache.drop(Scope("default"), identity)
    cold = await api.echo(conversation=identity, store=False)
    assert warm == cold == await api.echo(items)
    assert "Earlier." in warm


@requirement("conversations:request")
async def test_items_that_are_taken_out_are_not_read_again(talk: Talk) -> None:
    identity = await talk.begin("alpha", "beta", "gamma")
    assert "beta" in await talk.api.echo(conversation=identity, store=False)
    middle = (await talk.items(identity))[1]
    await talk.ask("DELETE", f"/{identity}/items/{middle['id']}")
    prompt = await talk.api.echo(conversation=identity, store=False)
    assert "beta" not in prompt
    assert prompt.index("alpha") < prompt.index("gamma")


@requirement("conversations:append")
@pytest.mark.parametrize(
    ("text", "status", "kept"),
    [("!TEXT done", "completed", 2), ("!INCOMPLETE", "incomplete", 2), ("!FAIL", "failed", 0), ("!CUT", "failed", 0)],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_only_what_ended_well_is_appended(talk: Talk, text: str, status: str, kept: int, stream: bool) -> None:
    identity = await talk.begin("before")
    if stream:
        ended = (await talk.api.stream(text, conversation=identity))[-1]["response"]
    else:
        ended = await talk.api.create(text, conversation=identity)
    assert ended["status"] == status
    assert len(await talk.items(identity)) == 1 + kept
    assert (await talk.api.create("next", conversation=identity))["status"] == "completed"


@requirement("conversations:append")
async def test_nothing_of_a_request_that_is_not_stored_is_appended(talk: Talk) -> None:
    identity = await talk.begin("The word is heron.")
    prompt = await talk.api.echo(conversation=identity, store=False)
    assert "heron" in prompt
    assert await talk.texts(identity) == ["user: The word is heron."]


@requirement("conversations:append")
async def test_a_tool_loop_runs_in_a_conversation(talk: Talk) -> None:
    identity = await talk.begin()
    called = await talk.api.create(CALL, conversation=identity, tools=TOOLS)
    call_id = called["output"][0]["call_id"]
    error = await talk.api.refused(400, "Well?", conversation=identity)
    assert error["code"] == "missing_tool_output"
    output = [{"type": "function_call_output", "call_id": call_id, "output": "sunny"}]
    answered = await talk.api.create(output, conversation=identity, tools=TOOLS)
    assert answered["output_text"] == "FINAL: sunny"
    kinds = [item["type"] for item in await talk.items(identity)]
    assert kinds == ["message", "function_call", "function_call_output", "message"]
    assert (await talk.api.create("Thanks.", conversation=identity))["status"] == "completed"


@requirement("conversations:locked")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_second_response_at_the_same_time_is_a_409(talk: Talk, stream: bool) -> None:
    api = talk.api
    identity, other = await talk.begin(), await talk.begin()
    slow = {"model": "scripted", "input": "!SLOW 20\n!COUNT 500", "conversation": identity, "stream": stream}
    running = ManualExchange(create_app(api.service), slow)
    while not api.service._runs:
        await asyncio.sleep(0)
    if stream:
        await running.next()
    for asked in ({"stream": True}, {"stream": False}, {"background": True}):
        answer = await api.client.post("/responses", json={**slow, "input": "Hi.", **asked})
        assert answer.status_code == 409
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("conflict_error", "conversation_locked")
    assert (await api.create("Hi.", conversation=other))["status"] == "completed"
    assert (await api.create("Hi.", conversation=identity, store=False))["status"] == "completed"
    running.leave()
    await running.task
    assert await talk.items(identity) == []
    await api.create("Hi.", conversation=identity)
    assert len(await talk.items(identity)) == 2


@requirement("conversations:locked", "conversations:append")
async def test_a_cancelled_response_appends_nothing_and_lets_the_next_one_in(talk: Talk) -> None:
    identity = await talk.begin()
    running = await talk.api.create("!SLOW 20\n!COUNT 500", conversation=identity, background=True)
    assert (await talk.api.refused(409, "Hi.", conversation=identity))["code"] == "conversation_locked"
    cancelled = await talk.api.client.post(f"/responses/{running['id']}/cancel")
    assert cancelled.json()["status"] == "cancelled"
    assert await talk.items(identity) == []
    assert (await talk.api.create("Hi.", conversation=identity))["status"] == "completed"


@requirement("conversations:locked")
async def test_no_response_reads_a_history_that_another_one_is_about_to_extend(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = talk.api.service
    identity = await talk.begin()
    store = service.store
    assert store is not None
    finish, at_the_end, go_on = store.finish_response, asyncio.Event(), asyncio.Event()

    async def late(*arguments: Any) -> bool:
        at_the_end.set()
        await go_on.wait()
        return await finish(*arguments)

    monkeypatch.setattr(store, "finish_response", late)
    first = asyncio.create_task(talk.api.create("!TEXT heron", conversation=identity))
    await at_the_end.wait()
    plan, planned, proceed = service.planner.plan, asyncio.Event(), asyncio.Event()

    async def slow(*arguments: Any, **options: Any) -> Any:
        found = await plan(*arguments, **options)
        planned.set()
        await proceed.wait()
        return found

    monkeypatch.setattr(service.planner, "plan", slow)
    body = {"model": "scripted", "input": "!ECHO", "conversation": identity}
    assert (await talk.api.client.post("/responses", json=body)).status_code == 409
    assert not planned.is_set()
    go_on.set()
    await first
    second = asyncio.create_task(talk.api.create("!ECHO", conversation=identity))
    await planned.wait()
    assert (await talk.api.client.post("/responses", json=body)).status_code == 409
    proceed.set()
    assert "heron" in (await second)["output_text"]


@requirement("conversations:background")
async def test_a_background_response_extends_its_conversation_when_it_ends(talk: Talk) -> None:
    identity = await talk.begin("before")
    events = await talk.api.stream("!TEXT done", conversation=identity, background=True)
    assert events[0]["response"]["conversation"] == {"id": identity}
    assert await talk.texts(identity) == ["user: before", "user: !TEXT done", "assistant: done"]


@requirement("conversations:unknown", "subset:M19")
async def test_an_unknown_conversation_is_a_404_and_excludes_a_previous_response(talk: Talk) -> None:
    error = await talk.api.refused(404, "Hi.", conversation="my-thread")
    assert (error["param"], error["code"]) == ("conversation", "conversation_not_found")
    earlier = await talk.api.create("Hi.")
    identity = await talk.begin()
    for named in (identity, {"id": identity}):
        error = await talk.api.refused(400, "Hi.", conversation=named, previous_response_id=earlier["id"])
        assert error["code"] == "mutually_exclusive_parameters"
    for malformed, param in (({}, "conversation.id"), ({"id": 5}, "conversation.id"), (5, "conversation")):
        assert (await talk.api.refused(400, "Hi.", conversation=malformed))["param"] == param
    assert (await talk.api.refused(404, "Hi.", conversation=""))["param"] == "conversation"


@requirement("conversations:autocreate", "subset:M19")
async def test_an_unknown_id_begins_a_conversation_where_the_settings_say_so(automatic: Talk) -> None:
    identity = "user:42.thread-7_b"
    first = await automatic.api.create("The word is heron.", conversation=identity)
    assert first["conversation"] == {"id": identity}
    assert "heron" in await automatic.api.echo(conversation={"id": identity})
    made = await automatic.ask("GET", f"/{identity}")
    assert (made["id"], made["metadata"]) == (identity, {})
    assert len(await automatic.items(identity)) == 4
    assert (await automatic.api.refused(404, "Hi.", conversation="not sane"))["code"] == "conversation_not_found"
    assert (await automatic.api.refused(404, "Hi.", conversation="a" * 65))["code"] == "conversation_not_found"
    assert (await automatic.ask("GET", "/another", 404))["code"] == "conversation_not_found"


@requirement("conversations:autocreate")
async def test_requests_that_begin_the_same_conversation_at_once_do_not_disturb_each_other(automatic: Talk) -> None:
    answers = await asyncio.gather(
        *[
            automatic.api.client.post("/responses", json={"model": "scripted", "input": "Hi.", "conversation": "both"})
            for _ in range(5)
        ]
    )
    done = [answer for answer in answers if answer.status_code == 200]
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert done
    assert len(await automatic.items("both")) == 2 * len(done)


@requirement("conversations:deletion")
async def test_responses_and_conversations_keep_what_is_theirs(talk: Talk) -> None:
    identity = await talk.begin("The word is heron.")
    response = await talk.api.create("!TEXT noted", conversation=identity)
    await talk.api.client.delete(f"/responses/{response['id']}")
    assert len(await talk.items(identity)) == 3
    second = await talk.api.create("!TEXT again", conversation=identity)
    await talk.ask("DELETE", f"/{identity}")
    assert (await talk.api.client.get(f"/responses/{second['id']}")).json() == second
    listed = (await talk.api.client.get(f"/responses/{second['id']}/input_items")).json()["data"]
    assert "!TEXT again" in str(listed)
    assert (await talk.api.refused(404, "Hi.", conversation=identity))["code"] == "conversation_not_found"


# Settings


@requirement("conversations:off", "subset:conversation-stores")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_zero_entries_turn_conversations_off(store: str, tmp_path: Path) -> None:
    settings = Settings(conversation_store_max_entries=0)
    async with inprocess_app(settings=settings, store=store, tmp_path=tmp_path) as app:
        error = await app.refused(400, "Hi.", conversation="conv_1")
        assert error["param"] == "conversation"
        assert "--conversation-store-max-entries 0" in error["message"]
        for method, path in (("POST", ""), ("GET", "/conv_1"), ("GET", "/conv_1/items"), ("DELETE", "/conv_1")):
            told = await Talk(app).ask(method, path, 400, json={} if method == "POST" else None)
            assert told["code"] == "conversation_storage_disabled"
        assert (await app.create("Hi."))["status"] == "completed"


@requirement("conversations:off")
async def test_without_persistence_there_are_no_conversations_either() -> None:
    async with inprocess_app(settings=Settings(responses_store_max_entries=0)) as app:
        assert (await app.refused(400, "Hi.", conversation="conv_1"))["code"] == "response_storage_disabled"
        assert (await Talk(app).ask("POST", "", 400, json={}))["code"] == "response_storage_disabled"


@requirement("subset:conversation-stores")
async def test_the_memory_store_bounds_conversations() -> None:
    async with inprocess_app(settings=Settings(conversation_store_max_entries=2)) as app:
        talk = Talk(app)
        first, second = await talk.begin("one"), await talk.begin("two")
        await talk.ask("GET", f"/{first}")
        third = await talk.begin("three")
        assert await talk.texts(first) == ["user: one"]
        assert await talk.texts(third) == ["user: three"]
        await talk.ask("GET", f"/{second}", 404)
    async with inprocess_app(settings=Settings(conversation_store_max_bytes=0)) as app:
        talk = Talk(app)
        identity = await talk.begin("one")
        await talk.ask("GET", f"/{identity}", 404)


# Titles


@requirement("conversations:title")
async def test_a_stored_response_has_the_title_of_its_conversation(talk: Talk) -> None:
    api = talk.api
    first = await api.create("  What is a\nsearch agent?  ", instructions="Be brief.")
    assert first["title"] == "What is a search agent?"
    assert (await api.client.get(f"/responses/{first['id']}")).json()["title"] == first["title"]
    second = await api.create("And why?", previous_response_id=first["id"])
    third = await api.create("And how?", previous_response_id=second["id"])
    assert second["title"] == third["title"] == first["title"]
    assert "title" not in await api.create("Hi.", store=False)
    identity = await talk.begin("The first words.")
    named = [await api.create(text, conversation=identity) for text in ("Later words.", "Last words.")]
    assert [response["title"] for response in named] == ["The first words."] * 2
    events = await api.stream("A streamed title")
    assert [event["response"]["title"] for event in events if "response" in event] == ["A streamed title"] * 3
