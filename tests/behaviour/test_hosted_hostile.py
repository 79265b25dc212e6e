"""Hostile values in every field of the routes and tool entries of documents and containers: refused, or done.

Nothing of it is a fault of the server, and no answer tells of its inside. The values go round: every field gets some of
them, each another part than the field before.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from antiphon.settings import Settings
from support.documents import ingested, uploaded
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement

LEAKS = re.compile(r"0x[0-9a-f]{6,}|Traceback|/src/|\.py\b|/home/|/usr/|/tmp/|sqlite|[a-z]Error\b")
SOME = 17
"""A field gets every so-manieth value, another one than the field before."""


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


VALUES: list[Any] = [
    *("\x00", "a\x00b", "\ud800", "x\udfffy", "../../etc/passwd", "a') OR 1=1--", "$..*", '"; DROP TABLE chunks;--'),
    *("\u202e\r\nX: y", "x" * 5_000, "", " ", "NEAR(", '"', "*", "a AND", "(a+)+$", "(?<=x)", "\\C", "["),
    *("a{1000}{1000}", "%", "{{7*7}}", None, True, -1, 0, 2**31, 2**63, 2**64, 10**30, -(10**30), 1e308, 5e-324),
    *([], {}, [None], [[]], ["\x00"], {"\x00": 1}, {"\ud800": "x"}, {"a": 10**30}, deep(20), deep(60), deep(300)),
    *(["x"] * 3_000, {str(number): number for number in range(2_000)}, [{"type": "and", "filters": []}] * 10_000),
]
RAW = [
    b"\xff",
    b'{"name":"\xed\xa0\x80"}',
    b'{"name":NaN}',
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"metadata":{"a":1e999}}',
]
NAMES = [
    "%00",
    "a%00b",
    "%ed%a0%80",
    "%ff",
    "..%2f..%2fetc%2fpasswd",
    "a'%29%20OR%201=1--",
    "%0d%0aX:%20y",
    "x" * 3_000,
    "9" * 90,
]
FILTER = {
    "type": "and",
    "filters": [
        {"type": "eq", "key": "topic", "value": "a"},
        {"all": [{"key": "t", "operator": "like", "value": "%a"}, {"key": "t", "operator": "regex", "value": "a.*"}]},
        {"key": "n", "operator": "in", "value": [1]},
    ],
}
CHUNKING = {"type": "static", "static": {"max_chunk_size_tokens": 200, "chunk_overlap_tokens": 10}}
EXPIRES = {"anchor": "last_active_at", "days": 3}


class World:
    """A server with one store, its file, and what was asked."""

    def __init__(self, api: InProcess, store: str, file: str) -> None:
        self.api = api
        self.store = store
        self.file = file
        self.asked = 0

    async def ask(self, method: str, path: str, content: bytes) -> Any:
        """The answer, which is no fault of the server and tells nothing of its inside."""
        self.asked += 1
        headers = {"content-type": "application/json"}
        reply = await self.api.client.request(method, path, content=content, headers=headers)
        assert reply.status_code < 500, (method, path, content[:300], reply.text[:300])
        if reply.status_code >= 400:
            assert not LEAKS.search(reply.text), (method, path, content[:300], reply.text[:300])
            return None
        return reply.json()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the whole module, which shares a server."""
    return "asyncio"


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[World]:
    settings = Settings(document_embedding="none", ingestion_workers=1)
    async with inprocess_app(store="sqlite", tmp_path=tmp_path_factory.mktemp("hostile"), settings=settings) as api:
        file = await uploaded(api, "# A\n\nred door key silver\n", "guide.md")
        store = (await api.client.post("/vector_stores", json={"name": "words"})).json()["id"]
        attributes = {"topic": "a", "n": 1}
        await api.client.post(f"/vector_stores/{store}/files", json={"file_id": file, "attributes": attributes})
        await ingested(api, store)
        yield World(api, store, file)


def bodies(store: str, file: str) -> list[tuple[str, str, dict[str, Any]]]:
    scope = {"store_identifiers": [store], "top_k": 5, "filters": [FILTER], "file_ids": ["in", [file]]}
    options = {"score_threshold": 0.0, "rerank": False}
    ranking = {"ranker": "auto", "score_threshold": 0.0, "hybrid_search": {"embedding_weight": 1, "text_weight": 1}}
    described = {"name": "n", "description": "d", "expires_after": EXPIRES, "metadata": {"a": "b"}}
    return [
        ("POST", "/vector_stores", {**described, "chunking_strategy": CHUNKING}),
        ("POST", f"/vector_stores/{store}", described),
        (
            "POST",
            f"/vector_stores/{store}/search",
            {"query": ["red"], "filters": FILTER, "max_num_results": 3, "ranking_options": ranking},
        ),
        ("POST", f"/vector_stores/{store}/files/{file}", {"attributes": {"topic": "a", "n": 1}}),
        (
            "POST",
            f"/vector_stores/{store}/files",
            {"file_id": "file-1", "attributes": {"a": 1}, "chunking_strategy": CHUNKING},
        ),
        ("POST", f"/vector_stores/{store}/file_batches", {"file_ids": ["file-1"], "attributes": {"a": "b"}}),
        ("POST", f"/vector_stores/{store}/file_batches", {"files": [{"file_id": "file-1", "attributes": {"a": 1}}]}),
        ("PUT", f"/stores/{store}", {**described, "is_public": False}),
        (
            "POST",
            f"/stores/{store}/files",
            {"file_id": "file-1", "metadata": {"a": [1]}, "external_id": "e", "config": {"a": 1}},
        ),
        (
            "POST",
            f"/stores/{store}/files/list",
            {"limit": 3, "after": file, "statuses": ["completed"], "metadata_filter": [FILTER], "q": "g"},
        ),
        ("PATCH", f"/stores/{store}/files/{file}", {"metadata": {"a": {"b": [1]}}}),
        ("POST", "/stores/search", {"query": {"text": "red"}, **scope, "search_options": options}),
        ("POST", "/stores/grep", {"pattern": "red.*", "targets": ["text"], **scope}),
        ("POST", "/stores/list-chunks", {"sort_by": ["n", True], **scope}),
        ("POST", "/stores/metadata-facets", {"facets": ["a"], "max_fields": 3, **scope}),
        (
            "POST",
            "/containers",
            {
                "name": "c",
                "file_ids": ["file-1"],
                "expires_after": {"anchor": "last_active_at", "minutes": 5},
                "memory_limit": "1g",
            },
        ),
    ]


def tools(store: str, file: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Entries, and the arguments of a call."""
    scope = {"store_identifiers": [store]}
    said = [{"key": "topic", "operator": "eq", "value": "a"}]
    return [
        (
            {"type": "file_search", "vector_store_ids": [store], "filters": FILTER, "max_num_results": 3},
            {"queries": ["red"]},
        ),
        (
            {"type": "search_corpus", **scope, "filters": FILTER},
            {"queries": ["red"], "metadata_filters": said, "filter_mode": "all"},
        ),
        ({"type": "grep", **scope}, {"pattern": "red", "targets": ["text"], "metadata_filters": said}),
        ({"type": "filter_chunks", **scope}, {"rank_by": "n", "direction": "asc", "max_num_results": 3}),
        ({"type": "get_chunks", **scope}, {"chunk_ids": [f"{file}:0"]}),
        ({"type": "list_stores", "limit": 3}, {"cursor": store}),
        (
            {
                "type": "web_search",
                "filters": {"allowed_domains": ["a.example"]},
                "user_location": {"type": "approximate", "city": "B"},
            },
            {"queries": ["red"]},
        ),
    ]


def hostile(body: Any, turn: int) -> Iterator[Any]:
    """The body with a hostile value in the place of each field, or of what is in it."""
    for number, path in enumerate(_paths(body, ())):
        for value in VALUES[(turn + number) % SOME :: SOME]:
            yield _with(body, path, value)


def _paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        if key != "type" or path:
            yield (*path, key)
        yield from _paths(inner, (*path, key))


def _with(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(body)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


@requirement("stores:hostile")
async def test_no_value_of_a_body_is_a_fault_of_the_server(world: World) -> None:
    for turn, (method, path, body) in enumerate(bodies(world.store, world.file)):
        await world.ask(method, path, json.dumps(body).encode())
        for changed in hostile(body, turn):
            await world.ask(method, path, json.dumps(changed).encode())
        for raw in RAW:
            await world.ask(method, path, raw)
    assert world.asked > 800


@requirement("stores:hostile")
async def test_no_id_or_query_is_a_fault_of_the_server(world: World) -> None:
    store, file = world.store, world.file
    places = [
        *("/vector_stores/{}", "/vector_stores/{}/files", f"/vector_stores/{store}/files/{{}}", "/stores/{}"),
        *(f"/vector_stores/{store}/file_batches/{{}}", f"/stores/{store}/files/{{}}", "/containers/{}/files/{}"),
        *("/stores?q={}", "/stores?after={}", "/vector_stores?before={}", "/vector_stores?limit={}"),
        *(f"/vector_stores/{store}/files?filter={{}}", f"/stores/{store}/files/{file}?return_chunks={{}}"),
        "/containers?after={}",
    ]
    for place in places:
        for name in NAMES:
            for method in ("GET",) if "?" in place else ("GET", "DELETE"):
                await world.ask(method, place.replace("{}", name), b"")


@requirement("stores:hostile")
async def test_no_entry_or_argument_of_a_tool_is_a_fault_of_the_server(world: World) -> None:
    for turn, (entry, arguments) in enumerate(tools(world.store, world.file)):
        calls = [(entry, json.dumps(changed)) for changed in hostile(arguments, turn)]
        calls += [(changed, json.dumps(arguments)) for changed in hostile(entry, turn)]
        calls += [(entry, text) for text in ("{", "[]", "null", '"x"', '{"queries":NaN}', '{"queries":["\\ud800"]}')]
        for declared, text in calls:
            script = f"!CALL {entry['type']} {text}\n!THEN\n!TEXT done"
            body = {"model": "scripted", "input": script, "tools": [declared], "store": False}
            answer = await world.ask("POST", "/responses", json.dumps(body).encode())
            if answer is None:
                continue
            assert answer["status"] == "completed", (declared, text)
            for item in [*answer["output"], *(answer.get("hosted_tool_calls") or ())]:
                error = json.dumps(item.get("error"))
                assert "server_error" not in error, (declared, text, error)
                assert not LEAKS.search(error), (declared, text, error)
