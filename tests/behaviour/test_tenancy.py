"""Tenancy: every route, with every kind of id, in every place that takes one, asked with a key of another tenant.

A row of another tenant is the same as no row. So each request is made with an id that is the owner's, with one of the
same form that nobody has, and with one that the owner has deleted: the three answers must be the same but for the id,
and the owner's rows as they were. One application serves all tests; what a test removes, it makes for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from msgspec.structs import replace

from antiphon.http.app import OPEN_PATHS, Application, create_app
from antiphon.protocol.ids import new_id
from antiphon.settings import Settings
from support.inprocess import InProcess, inprocess_app, sse_events
from support.sockets import ManualSocket, manual_socket
from support.tenants import (
    CASES,
    MISSING,
    WITHOUT_ROWS,
    WORDS,
    Case,
    Tenant,
    asking,
    call,
    filled,
    key_of,
    referring,
    rows,
    snapshot,
    tenant_of,
    told,
)

Pair = tuple[Tenant, Tenant]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the whole module, which shares an application."""
    return "asyncio"


@pytest.fixture(scope="module", params=["memory", "sqlite"])
async def api(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, anyio_backend: str
) -> AsyncIterator[InProcess]:
    """The application, which ingests nothing: what is in vector stores waits."""
    settings = Settings(ingestion_workers=0, document_embedding="none", max_containers=1_000)
    async with inprocess_app(
        store=request.param, tmp_path=tmp_path_factory.mktemp("tenancy"), settings=settings
    ) as app:
        yield app


@pytest.fixture(scope="module")
async def pair(api: InProcess) -> Pair:
    """An owner and an asker, each with rows of every kind."""
    return await tenant_of(api, "owner"), await tenant_of(api, "asker")


def app_routes(app: Application) -> set[tuple[str, str]]:
    app.load_routes()
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
async def test_a_foreign_id_is_answered_as_one_that_nobody_has(pair: Pair, method: str, case: Case):
    owner, asker = pair
    if method == "DELETE":
        # It ends with the owner's own request, which is carried out.
        owner = replace(owner, ids=await rows(owner))
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
    if case.body is not None and case.body.get("background"):
        # Nothing may be written any more when the next case looks.
        await call(owner, "GET", f"/responses/{reply.json()['id']}?stream=true")


@pytest.mark.requirement("tenancy:foreign")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_item_of_a_conversation_is_the_owners(pair: Pair, method: str):
    owner, asker = pair
    owner = replace(owner, ids=await rows(owner))
    path = f"/conversations/{owner.ids['conversation']}/items/{owner.ids['item']}"
    assert (await call(asker, method, path)).status_code == 404
    assert (await call(owner, method, path)).status_code == 200


@pytest.mark.requirement("tenancy:foreign")
async def test_lists_are_the_askers_own(api: InProcess):
    owner, asker = await key_of(api, "lister"), await key_of(api, "other lister")
    owner.ids, asker.ids = await rows(owner), await rows(asker)
    for path, kind in (
        ("/vector_stores", "vector_store"),
        ("/stores", "vector_store"),
        ("/stores?q=words", "vector_store"),
        ("/containers", "container"),
    ):
        listed = (await call(asker, "GET", path)).json()["data"]
        assert [each["id"] for each in listed] == [asker.ids[kind]]
        for place in ("after", "before"):
            for identity in (owner.ids[kind], new_id("vs" if kind == "vector_store" else "cntr")):
                mark = "&" if "?" in path else "?"
                page = await call(asker, "GET", f"{path}{mark}{place}={identity}&order=asc")
                assert page.status_code in (200, 400)
                assert owner.ids[kind] not in page.text.replace(identity, "")
                assert {each["id"] for each in page.json().get("data", ())} <= {asker.ids[kind]}
    named = await call(asker, "POST", "/stores/search", {"store_identifiers": ["words"], "query": WORDS})
    assert named.status_code == 200
    assert {each["store_id"] for each in named.json()["data"]} <= {asker.ids["vector_store"]}
    assert owner.ids["vector_store"] not in named.text
    # A name that only the owner has a store by is no name to the asker.
    assert (await call(owner, "PUT", f"/stores/{owner.ids['vector_store']}", {"name": "private"})).status_code == 200
    answers = []
    for name in ("private", "nobodys"):
        replies = [
            await call(asker, "POST", "/stores/search", {"store_identifiers": [name], "query": WORDS}),
            await call(asker, "GET", f"/stores/{name}"),
            await call(asker, "POST", f"/stores/{name}/files/list", {}),
        ]
        assert {reply.status_code for reply in replies} == {404}
        answers.append([told(reply, name) for reply in replies])
    assert answers[0] == answers[1]
    assert (await call(asker, "POST", "/stores", {"name": "private"})).status_code == 200


@pytest.mark.requirement("tenancy:running")
async def test_a_response_that_runs_is_no_ones_but_its_owners(pair: Pair):
    owner, asker = pair
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
    tenants = [await key_of(api, f"tenant-{number}") for number in range(4)]

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
async def test_an_idempotency_key_is_its_tenants(pair: Pair):
    owner, asker = pair
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
async def test_without_a_key_no_route_is_answered(api: InProcess, pair: Pair, credential: str | None):
    owner, _ = pair
    headers = {} if credential is None else {"Authorization": credential}
    before = await snapshot(owner)
    app = create_app(api.service)
    app.load_routes()
    for route, name, _ in app._table:
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
async def test_on_a_websocket_a_foreign_id_is_one_that_nobody_has(api: InProcess, pair: Pair, place: str):
    owner, asker = pair
    app = create_app(api.service)
    bodies = {
        "response": asking(previous_response_id="{id}"),
        "conversation": asking(conversation="{id}"),
        "item": referring(),
    }
    case = Case("", place, bodies[place])
    errors: list[str] = []
    for identity in (owner.ids[place], owner.deleted[place], MISSING[place]()):
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
async def test_a_websocket_needs_a_key_as_every_request_does(api: InProcess, pair: Pair):
    owner, _ = pair
    app = create_app(api.service)
    for headers in ({}, {"Authorization": "Bearer sk-antiphon-wrong"}):
        socket = ManualSocket(app, headers, "/v1/responses")
        socket.create("hi", previous_response_id=owner.ids["response"])
        answer = await socket.message()
        assert (answer["type"], answer["status"]) == ("websocket.http.response.start", 401)
        await socket.task
