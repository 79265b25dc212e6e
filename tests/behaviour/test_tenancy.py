"""Tenancy: every route, with every kind of id, in every place that takes one, asked with a key of another tenant.

A row of another tenant is the same as no row. So each request is made with an id that is the owner's, with one of the
same form that nobody has, and with one that the owner has deleted: the three answers must be the same but for the id,
and the owner's rows as they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec import Struct

from antiphon.http.app import OPEN_PATHS, Application, create_app
from antiphon.protocol.files import new_file_id
from antiphon.protocol.ids import new_id
from antiphon.runtime.keys import new_key
from antiphon.runtime.limits import KeyRules
from antiphon.settings import Settings
from support.inprocess import InProcess, inprocess_app, sse_events
from support.sockets import ManualSocket, manual_socket

WORDS = "the owner's words"


class Case(Struct, frozen=True):
    """A request of a route with `{id}` where an id of the owner's goes, and `{own}` for one of the asker's.

    `kind` is the kind of id that belongs there; in a path, ids of the other kinds are tried too. `owner` is what the
    owner gets: it shows that the request would reach the row.
    """

    path: str
    kind: str
    body: dict[str, Any] | None = None
    status: int = 404
    owner: int = 200


def asking(**fields: Any) -> dict[str, Any]:
    return {"model": "scripted", "input": "hi", **fields}


def referring(**fields: Any) -> dict[str, Any]:
    return asking(input=[{"role": "user", "content": "hi"}, {"type": "item_reference", "id": "{id}"}], **fields)


CONVERSATION, ITEM = "/conversations/{conversation_id}", "/conversations/{conversation_id}/items/{item_id}"
VECTOR_STORE, STORE = "/vector_stores/{vector_store_id}", "/stores/{store_identifier}"
STORE_FILE, BATCH = f"{VECTOR_STORE}/files/{{file_id}}", f"{VECTOR_STORE}/file_batches/{{batch_id}}"
DOCUMENT = f"{STORE}/files/{{file_identifier:path}}"
NEW_ITEMS = {"items": [{"role": "user", "content": "mine"}]}

CASES: dict[tuple[str, str], list[Case]] = {
    ("POST", "/responses"): [
        Case("/responses", "response", asking(previous_response_id="{id}")),
        Case("/responses", "response", asking(previous_response_id="{id}", stream=True)),
        Case("/responses", "response", asking(previous_response_id="{id}", background=True)),
        Case("/responses", "response", asking(previous_response_id="{id}", store=False)),
        Case("/responses", "conversation", asking(conversation="{id}")),
        Case("/responses", "conversation", asking(conversation={"id": "{id}"}, stream=True)),
        Case("/responses", "conversation", asking(conversation="{id}", background=True)),
        Case("/responses", "item", referring()),
        Case("/responses", "item", referring(stream=True, store=False)),
        Case("/responses", "item", referring(background=True)),
        Case("/responses", "item", asking(instructions=[{"type": "item_reference", "id": "{id}"}])),
    ],
    ("POST", "/responses/compact"): [
        Case("/responses/compact", "response", {"model": "scripted", "previous_response_id": "{id}"}),
        Case("/responses/compact", "item", referring()),
    ],
    ("POST", "/responses/input_tokens"): [
        Case("/responses/input_tokens", "response", asking(previous_response_id="{id}")),
        Case("/responses/input_tokens", "conversation", asking(conversation="{id}")),
        Case("/responses/input_tokens", "item", referring()),
    ],
    ("GET", "/responses/{response_id}"): [
        Case("/responses/{id}", "response"),
        Case("/responses/{id}?stream=true", "response"),
        Case("/responses/{id}?stream=true&starting_after=1", "response"),
        Case("/responses/{id}?stream=true&starting_after=100000", "response"),
        Case("/responses/{id}?include[]=reasoning.encrypted_content", "response"),
    ],
    ("DELETE", "/responses/{response_id}"): [
        Case("/responses/{id}", "response"),
        Case("/responses/{id}?chain=true", "response"),
    ],
    ("POST", "/responses/{response_id}/cancel"): [Case("/responses/{id}/cancel", "response", owner=400)],
    ("GET", "/responses/{response_id}/input_items"): [
        Case("/responses/{id}/input_items", "response"),
        Case("/responses/{id}/input_items?order=asc&limit=1", "response"),
        Case("/responses/{own_response}/input_items?after={id}", "item", status=400, owner=400),
    ],
    ("POST", "/conversations"): [
        Case("/conversations", "item", {"items": [{"type": "item_reference", "id": "{id}"}]}),
    ],
    ("GET", CONVERSATION): [Case("/conversations/{id}", "conversation")],
    ("POST", CONVERSATION): [Case("/conversations/{id}", "conversation", {"metadata": {"mine": "yes"}})],
    ("DELETE", CONVERSATION): [Case("/conversations/{id}", "conversation")],
    ("POST", f"{CONVERSATION}/items"): [
        Case("/conversations/{id}/items", "conversation", NEW_ITEMS),
        Case(
            "/conversations/{own_conversation}/items",
            "item",
            {"items": [{"type": "item_reference", "id": "{id}"}]},
        ),
    ],
    ("GET", f"{CONVERSATION}/items"): [
        Case("/conversations/{id}/items", "conversation"),
        Case("/conversations/{own_conversation}/items?after={id}", "item", status=400),
    ],
    ("GET", ITEM): [
        Case("/conversations/{id}/items/{same_item}", "conversation"),
        Case("/conversations/{own_conversation}/items/{id}", "item", owner=404),
    ],
    ("DELETE", ITEM): [
        Case("/conversations/{id}/items/{same_item}", "conversation"),
        Case("/conversations/{own_conversation}/items/{id}", "item", owner=404),
    ],
    ("GET", "/files/{file_id}"): [Case("/files/{id}", "file")],
    ("GET", "/files/{file_id}/content"): [Case("/files/{id}/content", "file")],
    ("DELETE", "/files/{file_id}"): [Case("/files/{id}", "file")],
    ("POST", "/vector_stores"): [Case("/vector_stores", "file", {"file_ids": ["{id}"]})],
    ("GET", VECTOR_STORE): [Case("/vector_stores/{id}", "vector_store")],
    ("POST", VECTOR_STORE): [Case("/vector_stores/{id}", "vector_store", {"name": "mine"})],
    ("DELETE", VECTOR_STORE): [Case("/vector_stores/{id}", "vector_store")],
    ("POST", f"{VECTOR_STORE}/search"): [Case("/vector_stores/{id}/search", "vector_store", {"query": WORDS})],
    ("POST", f"{VECTOR_STORE}/files"): [
        Case("/vector_stores/{id}/files", "vector_store", {"file_id": "{own_file}"}),
        Case("/vector_stores/{own_vector_store}/files", "file", {"file_id": "{id}"}),
    ],
    ("GET", f"{VECTOR_STORE}/files"): [
        Case("/vector_stores/{id}/files", "vector_store"),
        Case("/vector_stores/{id}/files?filter=completed&order=asc", "vector_store"),
    ],
    **{
        (method, f"{STORE_FILE}{end}"): [
            Case(f"/vector_stores/{{id}}/files/{{own_store_file}}{end}", "vector_store", body),
            Case(f"/vector_stores/{{own_vector_store}}/files/{{id}}{end}", "store_file", body),
        ]
        for method, end, body in (
            ("GET", "", None),
            ("GET", "/content", None),
            ("POST", "", {"attributes": {"mine": "yes"}}),
            ("DELETE", "", None),
        )
    },
    ("POST", f"{VECTOR_STORE}/file_batches"): [
        Case("/vector_stores/{id}/file_batches", "vector_store", {"file_ids": ["{own_file}"]}),
        Case("/vector_stores/{own_vector_store}/file_batches", "file", {"file_ids": ["{id}"]}),
    ],
    **{
        (method, f"{BATCH}{end}"): [
            Case(f"/vector_stores/{{id}}/file_batches/{{own_batch}}{end}", "vector_store"),
            Case(f"/vector_stores/{{own_vector_store}}/file_batches/{{id}}{end}", "batch"),
        ]
        for method, end in (("GET", ""), ("POST", "/cancel"), ("GET", "/files"))
    },
    ("POST", "/stores"): [Case("/stores", "file", {"file_ids": ["{id}"]})],
    ("GET", STORE): [Case("/stores/{id}", "vector_store")],
    ("PUT", STORE): [Case("/stores/{id}", "vector_store", {"name": "mine"})],
    ("DELETE", STORE): [Case("/stores/{id}", "vector_store")],
    **{
        ("POST", f"/stores/{what}"): [
            Case(f"/stores/{what}", "vector_store", {"store_identifiers": ["{id}"], **body}),
            Case(f"/stores/{what}", "vector_store", {"store_identifiers": ["{own_vector_store}", "{id}"], **body}),
        ]
        for what, body in (
            ("search", {"query": WORDS}),
            ("grep", {"pattern": WORDS}),
            ("list-chunks", {}),
            ("metadata-facets", {}),
        )
    },
    ("POST", f"{STORE}/files"): [
        Case("/stores/{id}/files", "vector_store", {"file_id": "{own_file}"}),
        Case("/stores/{own_vector_store}/files", "file", {"file_id": "{id}"}),
    ],
    ("POST", f"{STORE}/files/list"): [Case("/stores/{id}/files/list", "vector_store", {})],
    **{
        (method, DOCUMENT): [
            Case("/stores/{id}/files/{own_store_file}", "vector_store", body),
            Case("/stores/{own_vector_store}/files/{id}", "store_file", body),
        ]
        for method, body in (("GET", None), ("PATCH", {"metadata": {"mine": "yes"}}), ("DELETE", None))
    },
}

WITHOUT_ROWS = {
    ("GET", "/models"): "what is served is the same for all, but for a key's own limits",
    ("GET", "/models/{model:path}"): "the same",
    ("POST", "/chat/completions"): "it takes the whole conversation, and keeps nothing",
    ("POST", "/completions"): "the same",
    ("POST", "/embeddings"): "texts in, numbers out",
    ("POST", "/tokenize"): "the same",
    ("GET", "/cache/stats"): "numbers without ids or keys",
    ("POST", "/cache/reset"): "for the operator alone; test_local_rules.py asks as a tenant",
    ("POST", "/detokenize"): "the same",
    ("POST", "/files"): "a file is made of what is sent",
    ("GET", "/files"): "a list of the asker's own; test_files.py asks for another tenant's",
    ("GET", "/vector_stores"): "a list of the asker's own; the test below asks for another tenant's",
    ("GET", "/stores"): "the same",
    ("GET", "/"): "open",
    ("GET", "/health"): "open",
    ("GET", "/ready"): "open",
    ("GET", "/metrics"): "numbers without ids or keys",
    ("GET", "/version"): "a number",
}
"""The routes that lead to no tenant's row, and why."""


@pytest.fixture(params=["memory", "sqlite"])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcess]:
    """The application, which ingests nothing: what is in vector stores waits."""
    settings = Settings(ingestion_workers=0, document_embedding="none")
    async with inprocess_app(store=request.param, tmp_path=tmp_path, settings=settings) as app:
        yield app


class Tenant(Struct):
    """A tenant: a client with its key, and the ids of what it has, by kind."""

    client: httpx2.AsyncClient
    headers: dict[str, str]
    ids: dict[str, str]
    deleted: dict[str, str]


async def a_tenant(api: InProcess, name: str) -> Tenant:
    secret, key = new_key(name, name, KeyRules(), 1000)
    assert api.service.store is not None
    await api.service.store.add_key(key)
    headers = {"Authorization": f"Bearer {secret}"}
    tenant = Tenant(api.client, headers, {}, {})
    tenant.ids = await rows(tenant)
    tenant.deleted = await rows(tenant)
    for kind in ("response", "conversation", "vector_store", "file"):
        reply = await call(tenant, "DELETE", f"/{kind}s/{tenant.deleted[kind]}")
        assert reply.status_code == 200
    return tenant


async def rows(tenant: Tenant) -> dict[str, str]:
    """One row of each kind; the item is of the conversation and of no response."""
    made = (await call(tenant, "POST", "/responses", asking(input=WORDS))).json()
    items = [{"role": "user", "content": WORDS}]
    talk = (await call(tenant, "POST", "/conversations", {"items": items, "metadata": {"words": WORDS}})).json()
    listed = (await call(tenant, "GET", f"/conversations/{talk['id']}/items")).json()
    form = {"file": ("words.txt", WORDS.encode())}
    sent = await tenant.client.post("/files", files=form, data={"purpose": "batch"}, headers=tenant.headers)
    again = await tenant.client.post("/files", files=form, data={"purpose": "batch"}, headers=tenant.headers)
    within = {"store_file": again.json()["id"]}
    within["vector_store"] = (await call(tenant, "POST", "/vector_stores", {"name": "words"})).json()["id"]
    path = f"/vector_stores/{within['vector_store']}/file_batches"
    within["batch"] = (await call(tenant, "POST", path, {"file_ids": [within["store_file"]]})).json()["id"]
    return {
        "response": made["id"],
        "conversation": talk["id"],
        "item": listed["data"][0]["id"],
        "file": sent.json()["id"],
        **within,
    }


async def call(tenant: Tenant, method: str, path: str, body: Any = None) -> httpx2.Response:
    json = {"json": body} if body is not None else {}
    return await tenant.client.request(method, path, headers=tenant.headers, **json)


def filled(case: Case, identity: str, asker: Tenant, same_item: str) -> tuple[str, Any]:
    """The path and the body of a case, with this id where the owner's goes."""

    def put(text: str) -> str:
        for name, value in (
            ("{id}", identity),
            ("{same_item}", same_item),
            ("{own_response}", asker.ids["response"]),
            ("{own_conversation}", asker.ids["conversation"]),
            *((f"{{own_{kind}}}", asker.ids[kind]) for kind in ("file", "vector_store", "store_file", "batch")),
        ):
            text = text.replace(name, value)
        return text

    body = None if case.body is None else msgspec.json.decode(put(msgspec.json.encode(case.body).decode()))
    return put(case.path), body


def told(reply: httpx2.Response, *ids: str) -> tuple[int, set[str], str]:
    """What an answer says, without the ids that were asked for and those of the answer itself."""
    text = reply.text
    for identity in ids:
        text = text.replace(identity, "ID")
    return reply.status_code, set(reply.headers), text


MISSING: dict[str, Callable[[], str]] = {
    "response": lambda: new_id("resp"),
    "conversation": lambda: new_id("conv"),
    "item": lambda: new_id("msg"),
    "file": new_file_id,
    "vector_store": lambda: new_id("vs"),
    "store_file": new_file_id,
    "batch": lambda: new_id("vsfb"),
}


async def snapshot(owner: Tenant) -> list[str]:
    """All that the owner has."""
    paths = [
        f"/responses/{owner.ids['response']}",
        f"/responses/{owner.ids['response']}/input_items",
        f"/responses/{owner.ids['response']}?stream=true",
        f"/conversations/{owner.ids['conversation']}",
        f"/conversations/{owner.ids['conversation']}/items",
        f"/files/{owner.ids['file']}/content",
        f"/vector_stores/{owner.ids['vector_store']}",
        f"/vector_stores/{owner.ids['vector_store']}/files",
    ]
    replies = [await call(owner, "GET", path) for path in paths]
    assert [reply.status_code for reply in replies] == [200] * len(replies)
    return [reply.text for reply in replies]


def app_routes(app: Application) -> set[tuple[str, str]]:
    return {(method, name) for route, name, _ in app._table for method in (route.methods or ()) if method != "HEAD"}


@pytest.mark.requirement("tenancy:routes")
async def test_every_route_has_its_cases_or_a_reason(api: InProcess):
    routes = app_routes(create_app(api.service))
    assert routes == set(CASES) | set(WITHOUT_ROWS)
    for method, name in set(CASES):
        tested = {case.path.partition("?")[0] for case in CASES[method, name]}
        for part in name.split("/"):
            if part.startswith("{"):
                assert any("{id}" in path for path in tested), f"no case asks for a foreign id in {name}"


@pytest.mark.requirement("tenancy:foreign", "store:tenant", "subset:M42")
@pytest.mark.parametrize(("method", "case"), [(method, case) for (method, _), cases in CASES.items() for case in cases])
async def test_a_foreign_id_is_answered_as_one_that_nobody_has(api: InProcess, method: str, case: Case):
    owner, asker = await a_tenant(api, "owner"), await a_tenant(api, "asker")
    before = await snapshot(owner)
    # In a path, what the owner has of another kind is tried too: an id must not be found by any name.
    kinds = MISSING if "{id}" in case.path else (case.kind,)
    for kind in kinds:
        missing = MISSING[kind]()
        same_item = owner.ids["item"]
        answers: dict[str, tuple[int, set[str], str]] = {}
        for name, identity in (
            ("missing", missing),
            ("foreign", owner.ids[kind]),
            ("deleted", owner.deleted[kind]),
        ):
            reply = await call(asker, method, *filled(case, identity, asker, same_item))
            assert reply.status_code == case.status, f"{name}: {reply.text}"
            assert WORDS not in reply.text
            answers[name] = told(reply, identity)
        assert answers["foreign"] == answers["deleted"] == answers["missing"]
    assert await snapshot(owner) == before
    # The same request of the owner's, or of another key of its tenant, reaches the row.
    reply = await call(owner, method, *filled(case, owner.ids[case.kind], owner, owner.ids["item"]))
    if not case.path.startswith("/conversations/{own_conversation}/items/"):
        assert reply.status_code == case.owner, reply.text


@pytest.mark.requirement("tenancy:foreign")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_item_of_a_conversation_is_the_owners(api: InProcess, method: str):
    owner, asker = await a_tenant(api, "owner"), await a_tenant(api, "asker")
    path = f"/conversations/{owner.ids['conversation']}/items/{owner.ids['item']}"
    assert (await call(asker, method, path)).status_code == 404
    assert (await call(owner, method, path)).status_code == 200


@pytest.mark.requirement("tenancy:foreign")
async def test_lists_of_stores_are_the_askers_own(api: InProcess):
    owner, asker = await a_tenant(api, "owner"), await a_tenant(api, "asker")
    for path in ("/vector_stores", "/stores", "/stores?q=words"):
        listed = (await call(asker, "GET", path)).json()["data"]
        assert [each["id"] for each in listed] == [asker.ids["vector_store"]]
    named = await call(asker, "POST", "/stores/search", {"store_identifiers": ["words"], "query": WORDS})
    assert named.status_code == 200
    assert {each["store_id"] for each in named.json()["data"]} <= {asker.ids["vector_store"]}
    assert owner.ids["vector_store"] not in named.text


@pytest.mark.requirement("tenancy:running")
async def test_a_response_that_runs_is_no_ones_but_its_owners(api: InProcess):
    owner, asker = await a_tenant(api, "owner"), await a_tenant(api, "asker")
    body = asking(input=f"!SLOW 50\n!COUNT 200\n{WORDS}", background=True)
    running = (await call(owner, "POST", "/responses", body)).json()["id"]
    missing = new_id("resp")
    for method, path, sent in (
        ("GET", "/responses/{}", None),
        ("GET", "/responses/{}?stream=true", None),
        ("GET", "/responses/{}/input_items", None),
        ("POST", "/responses/{}/cancel", None),
        ("DELETE", "/responses/{}", None),
        ("DELETE", "/responses/{}?chain=true", None),
        ("POST", "/responses", asking(previous_response_id="{}")),
    ):
        answers: list[tuple[int, set[str], str]] = []
        for identity in (running, missing):
            filled_in = None if sent is None else {**sent, "previous_response_id": identity}
            reply = await call(asker, method, path.format(identity), filled_in)
            answers.append(told(reply, identity))
        assert answers[0] == answers[1]
        assert answers[0][0] == 404
    assert (await call(owner, "GET", f"/responses/{running}")).json()["status"] in ("queued", "in_progress")
    assert (await call(owner, "POST", f"/responses/{running}/cancel")).json()["status"] == "cancelled"


@pytest.mark.requirement("tenancy:background")
async def test_responses_in_the_background_of_many_tenants_stay_with_their_own(api: InProcess):
    tenants = [await a_tenant(api, f"tenant-{number}") for number in range(4)]

    async def one(tenant: Tenant, number: int) -> tuple[Tenant, str, int]:
        body = asking(input=f"!TEXT words of {number}", background=True, stream=number % 2 == 0)
        reply = await call(tenant, "POST", "/responses", body)
        assert reply.status_code == 200
        identity = sse_events(reply.content)[0]["response"]["id"] if number % 2 == 0 else reply.json()["id"]
        return tenant, identity, number

    made = await asyncio.gather(*(one(tenants[number % 4], number) for number in range(100)))
    for owner, identity, number in made:
        events = sse_events((await call(owner, "GET", f"/responses/{identity}?stream=true")).content)
        assert events[-1]["response"]["output_text"] == f"words of {number}"
        other = tenants[(tenants.index(owner) + 1) % 4]
        assert (await call(other, "GET", f"/responses/{identity}")).status_code == 404


@pytest.mark.requirement("tenancy:idempotency")
async def test_an_idempotency_key_is_its_tenants(api: InProcess):
    owner, asker = await a_tenant(api, "owner"), await a_tenant(api, "asker")
    made: list[str] = []
    for tenant in (owner, asker, owner, asker):
        headers = {**tenant.headers, "Idempotency-Key": "the same"}
        reply = await tenant.client.post("/responses", json=asking(input=WORDS), headers=headers)
        assert reply.status_code == 200, reply.text
        made.append(reply.json()["id"])
    assert made[0] == made[2]
    assert made[1] == made[3]
    assert made[0] != made[1]


@pytest.mark.requirement("tenancy:without-key")
@pytest.mark.parametrize("credential", [None, "Bearer sk-antiphon-wrong", "' OR 1=1 --", "Bearer \x00"])
async def test_without_a_key_no_route_is_answered(api: InProcess, credential: str | None):
    owner = await a_tenant(api, "owner")
    headers = {} if credential is None else {"Authorization": credential}
    before = await snapshot(owner)
    for route, name, _ in create_app(api.service)._table:
        path = route.path.replace("{response_id}", owner.ids["response"]).replace("{item_id}", owner.ids["item"])
        path = path.replace("{conversation_id}", owner.ids["conversation"]).replace("{model:path}", "scripted")
        for method in route.methods or ():
            reply = await api.client.request(method, f"http://127.0.0.1{path}", headers=headers)
            if path in OPEN_PATHS:
                assert reply.status_code == 200
                continue
            assert reply.status_code == 401, f"{method} {name}"
            assert WORDS not in reply.text
    assert await snapshot(owner) == before


@pytest.mark.requirement("tenancy:websocket")
@pytest.mark.parametrize("place", ["response", "conversation", "item"])
async def test_on_a_websocket_a_foreign_id_is_one_that_nobody_has(api: InProcess, place: str):
    owner, asker = await a_tenant(api, "owner"), await a_tenant(api, "asker")
    app = create_app(api.service)
    bodies = {
        "response": asking(previous_response_id="{id}"),
        "conversation": asking(conversation="{id}"),
        "item": referring(),
    }
    case = Case("", place, bodies[place])
    errors: list[str] = []
    for identity in (owner.ids[place], owner.deleted[place], new_id(MISSING[place])):
        _, body = filled(case, identity, asker, "")
        async with manual_socket(app, asker.headers) as socket:
            error = await socket.refused(**body)
        # A WebSocket has 400 for what it cannot go on from (responses-api 7).
        assert error["status"] == (400 if place == "response" else 404)
        errors.append(msgspec.json.encode(error).decode().replace(identity, "ID"))
    assert errors[0] == errors[1] == errors[2]
    _, body = filled(case, owner.ids[place], owner, "")
    async with manual_socket(app, owner.headers) as socket:
        assert (await socket.response(**body))["status"] == "completed"


@pytest.mark.requirement("tenancy:websocket", "tenancy:without-key")
async def test_a_websocket_needs_a_key_as_every_request_does(api: InProcess):
    owner = await a_tenant(api, "owner")
    app = create_app(api.service)
    for headers in ({}, {"Authorization": "Bearer sk-antiphon-wrong"}):
        socket = ManualSocket(app, headers, "/v1/responses")
        socket.create("hi", previous_response_id=owner.ids["response"])
        answer = await socket.message()
        assert (answer["type"], answer["status"]) == ("websocket.http.response.start", 401)
        await socket.task
