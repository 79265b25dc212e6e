"""Tenants with rows of every kind, and for each route the requests that name one, to be asked for what is another's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import msgspec
from msgspec import Struct

from antiphon.protocol.files import new_file_id
from antiphon.protocol.ids import new_id
from antiphon.runtime.keys import new_key
from antiphon.runtime.limits import KeyRules
from support.inprocess import InProcess

__all__ = [
    "CASES",
    "MISSING",
    "WITHOUT_ROWS",
    "WORDS",
    "Case",
    "Tenant",
    "asking",
    "call",
    "filled",
    "key_of",
    "referring",
    "rows",
    "snapshot",
    "tenant_of",
    "told",
]

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
    """The body of a request for a response."""
    return {"model": "scripted", "input": "hi", **fields}


def referring(**fields: Any) -> dict[str, Any]:
    """The same with an item that is named by its id."""
    return asking(input=[{"role": "user", "content": "hi"}, {"type": "item_reference", "id": "{id}"}], **fields)


CONVERSATION, ITEM = "/conversations/{conversation_id}", "/conversations/{conversation_id}/items/{item_id}"
VECTOR_STORE, STORE = "/vector_stores/{vector_store_id}", "/stores/{store_identifier}"
STORE_FILE, BATCH = f"{VECTOR_STORE}/files/{{file_id}}", f"{VECTOR_STORE}/file_batches/{{batch_id}}"
DOCUMENT = f"{STORE}/files/{{file_identifier:path}}"
CONTAINER = "/containers/{container_id}"
CONTAINER_FILE = f"{CONTAINER}/files/{{file_id}}"
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
    ("POST", "/containers"): [Case("/containers", "file", {"name": "mine", "file_ids": ["{id}"]})],
    ("GET", CONTAINER): [Case("/containers/{id}", "container")],
    ("DELETE", CONTAINER): [Case("/containers/{id}", "container")],
    ("POST", f"{CONTAINER}/files"): [
        Case("/containers/{id}/files", "container", {"file_id": "{own_file}"}),
        Case("/containers/{own_container}/files", "file", {"file_id": "{id}"}),
    ],
    ("GET", f"{CONTAINER}/files"): [Case("/containers/{id}/files?order=asc", "container")],
    **{
        (method, f"{CONTAINER_FILE}{end}"): [
            Case(f"/containers/{{id}}/files/{{own_container_file}}{end}", "container"),
            Case(f"/containers/{{own_container}}/files/{{id}}{end}", "container_file"),
        ]
        for method, end in (("GET", ""), ("GET", "/content"), ("DELETE", ""))
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
    ("GET", "/containers"): "the same",
    ("POST", "/stores/question-answering"): "it is not done here, whatever is asked",
    ("GET", "/"): "open",
    ("GET", "/health"): "open",
    ("GET", "/ready"): "open",
    ("GET", "/metrics"): "numbers without ids or keys",
    ("GET", "/version"): "a number",
}
"""The routes that lead to no tenant's row, and why."""


class Tenant(Struct):
    """A tenant: a client with its key, and the ids of what it has, by kind."""

    client: httpx2.AsyncClient
    headers: dict[str, str]
    ids: dict[str, str]
    deleted: dict[str, str]


async def key_of(api: InProcess, name: str) -> Tenant:
    """A tenant that has a key and nothing else."""
    secret, key = new_key(name, name, KeyRules(), 1000)
    assert api.service.store is not None
    await api.service.store.add_key(key)
    return Tenant(api.client, {"Authorization": f"Bearer {secret}"}, {}, {})


async def tenant_of(api: InProcess, name: str) -> Tenant:
    """A tenant with a row of each kind, and ids of such as it has deleted."""
    tenant = await key_of(api, name)
    tenant.deleted = await rows(tenant)
    for kind in ("response", "conversation", "vector_store", "file", "container"):
        reply = await call(tenant, "DELETE", f"/{kind}s/{tenant.deleted[kind]}")
        assert reply.status_code == 200
    tenant.ids = await rows(tenant)
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
    within["container"] = (await call(tenant, "POST", "/containers", {"name": "words"})).json()["id"]
    path = f"/containers/{within['container']}/files"
    kept = {"file": ("kept.txt", WORDS.encode())}
    within["container_file"] = (await tenant.client.post(path, files=kept, headers=tenant.headers)).json()["id"]
    return {
        "response": made["id"],
        "conversation": talk["id"],
        "item": listed["data"][0]["id"],
        "file": sent.json()["id"],
        **within,
    }


async def call(tenant: Tenant, method: str, path: str, body: Any = None) -> httpx2.Response:
    """The answer to a request of a tenant."""
    json = {"json": body} if body is not None else {}
    return await tenant.client.request(method, path, headers=tenant.headers, **json)


def filled(case: Case, identity: str, asker: Tenant, same_item: str) -> tuple[str, Any]:
    """The path and the body of a case, with this id where the owner's goes."""

    def put(text: str) -> str:
        for name, value in (
            ("{id}", identity),
            ("{same_item}", same_item),
            *((f"{{own_{kind}}}", own) for kind, own in asker.ids.items()),
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


MISSING: Mapping[str, Callable[[], str]] = {
    "response": lambda: new_id("resp"),
    "conversation": lambda: new_id("conv"),
    "item": lambda: new_id("msg"),
    "file": new_file_id,
    "vector_store": lambda: new_id("vs"),
    "store_file": new_file_id,
    "batch": lambda: new_id("vsfb"),
    "container": lambda: new_id("cntr"),
    "container_file": lambda: new_id("cfile"),
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
        f"/containers/{owner.ids['container']}/files",
        f"/containers/{owner.ids['container']}/files/{owner.ids['container_file']}/content",
    ]
    replies = [await call(owner, "GET", path) for path in paths]
    assert [reply.status_code for reply in replies] == [200] * len(replies)
    return [reply.text for reply in replies]
