"""Tenancy of hosted tools: what is another tenant's is for a tool what nobody has, wherever an id or a name may stand.

Each request is made with what is the owner's, with one of the same form that nobody has, and with one that the owner
has deleted. The three responses must be the same but for the ids, and hold nothing of the owner's.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from antiphon.protocol.ids import new_id
from antiphon.settings import Settings
from support.documents import ingested, uploaded
from support.fake_tools import Servers
from support.inprocess import InProcess, inprocess_app, sse_events
from support.tenants import Tenant, asking, call, key_of

requirement = pytest.mark.requirement

SECRET = "zanzibar"
"""A word that only the owner's documents have."""

COMMON = "lighthouse"
"""A word of the documents of both."""

INCLUDE = ["file_search_call.results", "code_interpreter_call.outputs", "web_search_call.results"] + [
    f"{name}_call.results" for name in ("search_corpus", "grep", "filter_chunks", "get_chunks", "store_search")
]
_IDS = re.compile(r"\b[a-z]+[_-][0-9a-f]{24,}\b")
_TIMES = re.compile(r'"(created_at|completed_at|expires_at)":[0-9.]+')


class World(Struct):
    """An application, and two tenants with a store, its file, a container, and of each kind one that was deleted."""

    api: InProcess
    owner: Tenant
    asker: Tenant


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the whole module, which shares an application."""
    return "asyncio"


@pytest.fixture(scope="module", params=["memory", "sqlite"])
async def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, anyio_backend: str
) -> AsyncIterator[World]:
    """Made once for each kind of store."""
    settings = Settings(document_embedding="none")
    async with inprocess_app(store=request.param, tmp_path=tmp_path_factory.mktemp("tools"), settings=settings) as api:
        yield World(api, await _tenant(api, "owner", SECRET), await _tenant(api, "asker", "nothing"))


async def _tenant(api: InProcess, name: str, word: str) -> Tenant:
    tenant = await key_of(api, name)
    tenant.deleted = await _have(api, tenant, f"{name} gone", word)
    for kind in ("vector_store", "file", "container"):
        assert (await call(tenant, "DELETE", f"/{kind}s/{tenant.deleted[kind]}")).status_code == 200
    tenant.ids = await _have(api, tenant, f"{name} private", word)
    return tenant


async def _have(api: InProcess, tenant: Tenant, name: str, word: str) -> dict[str, str]:
    text = f"# {name}\n\nThe {COMMON} of {word} is red.\n"
    file = await uploaded(api, text, f"{word}.md", tenant.headers)
    named = name.replace(" ", "-")
    body = {"name": named, "file_ids": [file]}
    store = (await call(tenant, "POST", "/vector_stores", body)).json()["id"]
    await ingested(api, store, tenant.headers)
    container = (await call(tenant, "POST", "/containers", {"name": "one", "file_ids": [file]})).json()["id"]
    return {"vector_store": store, "file": file, "container": container, "chunk": f"{file}:0", "name": named}


def missing(kind: str, owner: Tenant) -> str:
    """An id that nobody has, as old as the owner's."""
    if kind == "name":
        return "of-nobody"
    identity = owner.ids[kind].removesuffix(":0")
    return identity[:-1] + ("0" if identity[-1] != "0" else "1") + (":0" if kind == "chunk" else "")


def corpus(kind: str, *stores: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"type": kind, "store_identifiers": list(stores), **fields}]


def open_corpus(kind: str) -> list[dict[str, Any]]:
    """A tool whose store the model names."""
    return [{"type": kind}, {"type": "list_stores"}]


class Place(Struct, frozen=True):
    """A place of an id: the tools and the script with `{id}` where it stands, and `{own_...}` for the asker's own.

    `found` says that the owner is given its document there.
    """

    kind: str
    tools: Any
    script: str
    found: bool = True


QUERIES = f'{{"queries":["{SECRET} {COMMON}"]}}'
PLACES: dict[str, Place] = {
    "file_search": Place(
        "vector_store", [{"type": "file_search", "vector_store_ids": ["{id}"]}], f"file_search {QUERIES}"
    ),
    "file_search beside its own": Place(
        "vector_store",
        [{"type": "file_search", "vector_store_ids": ["{own_vector_store}", "{id}"]}],
        f"file_search {QUERIES}",
    ),
    "file_search by name": Place(
        "name", [{"type": "file_search", "vector_store_ids": ["{id}"]}], f"file_search {QUERIES}"
    ),
    "file_search by file": Place(
        "file",
        [
            {
                "type": "file_search",
                "vector_store_ids": ["{own_vector_store}"],
                "filters": {"key": "__file_id", "operator": "in", "value": ["{id}"]},
            }
        ],
        f"file_search {QUERIES}",
    ),
    "search_corpus": Place("vector_store", corpus("search_corpus", "{id}"), f"search_corpus {QUERIES}"),
    "search_corpus by name": Place("name", corpus("search_corpus", "{id}"), f"search_corpus {QUERIES}"),
    "search_corpus of the model": Place(
        "vector_store",
        open_corpus("search_corpus"),
        f'search_corpus {{"queries":["{COMMON}"],"store":"{{id}}"}}',
    ),
    "search_corpus of the model by name": Place(
        "name", open_corpus("search_corpus"), f'search_corpus {{"queries":["{COMMON}"],"store":"{{id}}"}}'
    ),
    "store_search": Place("vector_store", corpus("store_search", "{id}"), f"store_search {QUERIES}"),
    "grep": Place("vector_store", corpus("grep", "{id}"), f'grep {{"pattern":"{COMMON}"}}'),
    "filter_chunks": Place("vector_store", corpus("filter_chunks", "{id}"), "filter_chunks {}"),
    "inspect_metadata": Place("vector_store", corpus("inspect_metadata", "{id}"), "inspect_metadata {}", found=False),
    "get_chunks of a store": Place(
        "vector_store",
        open_corpus("get_chunks"),
        'get_chunks {"chunk_ids":["{owner_chunk}"],"store":"{id}"}',
    ),
    "get_chunks of its own store": Place(
        "chunk", corpus("get_chunks", "{own_vector_store}"), 'get_chunks {"chunk_ids":["{id}"]}'
    ),
    "list_stores": Place("vector_store", open_corpus("get_chunks"), 'list_stores {"cursor":"{id}"}', found=False),
    "code in a container": Place(
        "container",
        [{"type": "code_interpreter", "container": "{id}"}],
        'code_interpreter {"code":"1"}',
        found=False,
    ),
    "code with a file": Place(
        "file",
        [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["{id}"]}}],
        'code_interpreter {"code":"1"}',
        found=False,
    ),
    "shell in a container": Place(
        "container",
        [{"type": "shell", "environment": {"type": "container_reference", "container_id": "{id}"}}],
        'shell {"commands":["true"]}',
        found=False,
    ),
    "shell with a file": Place(
        "file",
        [{"type": "shell", "environment": {"type": "container_auto", "file_ids": ["{id}"]}}],
        'shell {"commands":["true"]}',
        found=False,
    ),
}


TOLD = ("file_search", "search_corpus by name", "get_chunks of its own store", "code in a container")
"""Places that are tried in every way in which a response is told."""


def body_of(place: Place, identity: str, tenant: Tenant, owner: Tenant) -> dict[str, Any]:
    text = msgspec.json.encode(
        asking(input=f"!CALL {place.script}\n!THEN\n!TEXT done", tools=place.tools, include=INCLUDE)
    ).decode()
    text = text.replace("{owner_chunk}", owner.ids["chunk"]).replace("{id}", identity)
    for kind, own in tenant.ids.items():
        text = text.replace(f"{{own_{kind}}}", own)
    return msgspec.json.decode(text)


def plain(text: str, identity: str) -> str:
    """What a response says, without its ids and times."""
    return _TIMES.sub("TIME", _IDS.sub("ID", text.replace(identity, "ID")))


async def ended(tenant: Tenant, body: dict[str, Any], how: str) -> str:
    """The response that comes of a body, asked for in one of the ways there are."""
    fields = {"stream": {"stream": True}, "background": {"background": True}}.get(how, {})
    reply = await call(tenant, "POST", "/responses", {**body, **fields})
    assert reply.status_code == 200, reply.text
    if how == "stream":
        return msgspec.json.encode(sse_events(reply.content)[-1]["response"]).decode()
    if how == "background":
        identity = reply.json()["id"]
        await call(tenant, "GET", f"/responses/{identity}?stream=true")
        include = "&".join(f"include[]={name}" for name in INCLUDE)
        return (await call(tenant, "GET", f"/responses/{identity}?{include}")).text
    return reply.text


@requirement("tenancy:tools")
@pytest.mark.parametrize(
    ("place", "how"),
    [(place, "whole") for place in PLACES] + [(place, how) for place in TOLD for how in ("stream", "background")],
)
async def test_what_is_anothers_is_for_a_tool_what_nobody_has(world: World, place: str, how: str) -> None:
    at, owner, asker = PLACES[place], world.owner, world.asker
    answers: dict[str, str] = {}
    for name, identity in (
        ("missing", missing(at.kind, owner)),
        ("foreign", owner.ids[at.kind]),
        ("deleted", owner.deleted[at.kind]),
    ):
        text = await ended(asker, body_of(at, identity, asker, owner), how)
        # The script and the entries say again what the request said; the rest is what the tool gave.
        said = msgspec.json.decode(text)
        assert said["status"] == "completed"
        given = msgspec.json.encode([said["output"], said.get("hosted_tool_calls")]).decode()
        if at.kind != "name":
            assert f"of {SECRET}" not in given
            assert f"{SECRET}.md" not in given
        answers[name] = plain(given, identity)
    assert answers["foreign"] == answers["missing"] == answers["deleted"]
    if how == "whole" and at.found:
        text = await ended(owner, body_of(at, owner.ids[at.kind], owner, owner), how)
        assert f"of {SECRET}" in text


@requirement("tenancy:tools")
async def test_a_request_for_approval_is_its_tenants() -> None:
    servers = Servers()
    entry = {"type": "mcp", "server_label": "here", "server_url": "https://mcp.test"}
    async with inprocess_app(tools=[servers]) as api:
        owner, asker = await key_of(api, "owner"), await key_of(api, "asker")
        script = '!CALL change {"queries":["it"]}\n!THEN\n!TEXT done'
        replies = [
            await call(each, "POST", "/responses", asking(input=script, tools=[entry])) for each in (owner, asker)
        ]
        first, own = (reply.json() for reply in replies)
        asked = first["output"][-1]["id"]
        talk = (await call(owner, "POST", "/conversations", {})).json()["id"]
        errors: list[list[str]] = []
        for approval, response, conversation in (
            (asked, first["id"], talk),
            (new_id("mcpr"), new_id("resp"), new_id("conv")),
        ):
            answer = {"type": "mcp_approval_response", "approval_request_id": approval, "approve": True}
            told = []
            for fields, status in (
                ({"previous_response_id": own["id"]}, 400),
                ({"previous_response_id": response}, 404),
                ({"conversation": conversation}, 404),
                ({}, 400),
                ({"background": True, "previous_response_id": own["id"]}, 400),
            ):
                reply = await call(asker, "POST", "/responses", asking(input=[answer], tools=[entry], **fields))
                assert reply.status_code == status, reply.text
                told.append(plain(reply.text, approval))
            errors.append(told)
        assert errors[0] == errors[1]
        assert servers.runs == []
        answer = {"type": "mcp_approval_response", "approval_request_id": asked, "approve": True}
        fields = {"previous_response_id": first["id"]}
        assert (await call(owner, "POST", "/responses", asking(input=[answer], tools=[entry], **fields))).is_success
        assert servers.runs == ["change it"]


@requirement("tenancy:tools")
async def test_a_response_with_hosted_calls_is_its_tenants(world: World) -> None:
    owner, asker = world.owner, world.asker
    body = body_of(PLACES["search_corpus"], owner.ids["vector_store"], owner, owner)
    made = (await call(owner, "POST", "/responses", body)).json()
    assert f"of {SECRET}" in msgspec.json.encode(made).decode()
    items = [made["hosted_tool_calls"][0]["id"], made["output"][-1]["id"]]
    for path in (
        f"/responses/{made['id']}?include[]=search_corpus_call.results",
        f"/responses/{made['id']}/input_items",
    ):
        assert (await call(asker, "GET", path)).status_code == 404
    for identity in items:
        refers = asking(input=[{"type": "item_reference", "id": identity}, {"role": "user", "content": "!ECHO"}])
        reply = await call(asker, "POST", "/responses", refers)
        assert (reply.status_code, SECRET in reply.text) == (404, False)
    reply = await call(asker, "POST", "/responses", asking(previous_response_id=made["id"], input="!ECHO"))
    assert (reply.status_code, SECRET in reply.text) == (404, False)


@requirement("tenancy:tools:search")
async def test_no_score_tells_of_another_tenants_documents(world: World) -> None:
    owner, asker = world.owner, world.asker
    path = f"/vector_stores/{asker.ids['vector_store']}/search"
    body = {"query": [f"{SECRET} {COMMON}", COMMON]}
    before = (await call(asker, "POST", path, body)).json()
    assert len(before["data"]) == 1
    for number in range(3):
        file = await uploaded(world.api, f"{COMMON} {SECRET} " * 20 * (number + 1), f"more{number}.md", owner.headers)
        reply = await call(owner, "POST", f"/vector_stores/{owner.ids['vector_store']}/files", {"file_id": file})
        assert reply.status_code == 200
        await ingested(world.api, owner.ids["vector_store"], owner.headers)
        assert (await call(asker, "POST", path, body)).json() == before


@requirement("tenancy:background")
async def test_what_is_ingested_and_searched_in_the_background_stays_with_its_tenant(world: World) -> None:
    tenants = [await key_of(world.api, f"tenant-{number}") for number in range(4)]
    words = ["mercury", "venus", "saturn", "neptune"]

    async def one(number: int) -> None:
        tenant, word = tenants[number % 4], words[number % 4]
        file = await uploaded(world.api, f"The {COMMON} of {word}, part {number}.", "same.md", tenant.headers)
        body = {"name": f"same-{number // 4}", "file_ids": [file]}
        store = (await call(tenant, "POST", "/vector_stores", body)).json()["id"]
        await ingested(world.api, store, tenant.headers)
        # All have stores of the same names: each finds its own.
        place = PLACES["search_corpus by name"]
        text = await ended(tenant, body_of(place, body["name"], world.asker, world.owner), "background")
        assert f"{COMMON} of {word}, part {number}." in text
        assert not any(other in text for other in words if other != word)

    await asyncio.gather(*(one(number) for number in range(12)))
    for tenant, word in zip(tenants, words, strict=True):
        stores = (await call(tenant, "GET", "/vector_stores")).json()["data"]
        assert sorted(store["name"] for store in stores) == [f"same-{number}" for number in range(3)]
        for store in stores:
            found = await call(tenant, "POST", f"/vector_stores/{store['id']}/search", {"query": COMMON})
            (hit,) = found.json()["data"]
            assert word in hit["content"][0]["text"]
            for other in tenants:
                if other is not tenant:
                    assert (await call(other, "GET", f"/vector_stores/{store['id']}")).status_code == 404
                    file = f"/vector_stores/{store['id']}/files/{hit['file_id']}/content"
                    assert (await call(other, "GET", file)).status_code == 404
