"""`/v1/stores`: the store family of Mixedbread, over the same rows as vector stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.settings import Settings
from support.documents import ingested, uploaded
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement

GUIDE = "# Guide\n\n## Doors\n\nThe red door opens with a silver key.\n\n## Windows\n\nWindows are washed on Mondays.\n"
TIDES = "# Tides\n\nHigh water comes twice a day, and the moon pulls it.\n"


@pytest.fixture(params=["memory", "sqlite"])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcess]:
    """The application with text search alone, so that no model is fetched."""
    settings = Settings(document_embedding="none")
    async with inprocess_app(store=request.param, tmp_path=tmp_path, settings=settings) as app:
        yield app


async def asked(api: InProcess, method: str, path: str, status: int = 200, **fields: Any) -> dict[str, Any]:
    """The answer to a request, of that status."""
    reply = await api.client.request(method, path, json=fields or None)
    assert reply.status_code == status, reply.text
    return reply.json()


async def a_store(api: InProcess, name: str = "manuals") -> tuple[dict[str, Any], list[str]]:
    """A store with two documents, ingested, and the ids of their files."""
    store = await asked(api, "POST", "/stores", name=name)
    files: list[str] = []
    for file, text, metadata in (
        ("house/guide.md", GUIDE, {"topic": "house", "year": 2024}),
        ("sea/tides.md", TIDES, {"topic": "sea", "year": 2026}),
    ):
        files.append(await uploaded(api, text, file))
        await asked(api, "POST", f"/stores/{name}/files", file_id=files[-1], external_id=file, metadata=metadata)
    await ingested(api, store["id"])
    return store, files


@requirement("stores:life")
async def test_a_store_goes_by_its_id_or_its_name(api: InProcess) -> None:
    store = await asked(
        api, "POST", "/stores", name="manuals", description="All", metadata={"a": {"b": 1}}, expires_after={"days": 3}
    )
    assert store["object"] == "store"
    assert (store["name"], store["description"], store["metadata"]) == ("manuals", "All", {"a": {"b": 1}})
    assert store["file_counts"] == {
        "pending": 0,
        "in_progress": 0,
        "completed": 0,
        "failed": 0,
        "cancelled": 0,
        "total": 0,
    }
    assert store["created_at"].endswith("Z")
    for identifier in ("manuals", store["id"]):
        assert await asked(api, "GET", f"/stores/{identifier}") == store
    assert (await asked(api, "GET", f"/vector_stores/{store['id']}"))["name"] == "manuals"
    await asked(api, "POST", "/stores", 409, name="manuals")
    await asked(api, "POST", "/stores", 400, name="No Capitals")
    await asked(api, "POST", "/stores", 400, name="public", is_public=True)
    other = await asked(api, "POST", "/stores", name="other")
    await asked(api, "PUT", "/stores/other", 409, name="manuals")
    changed = await asked(api, "PUT", "/stores/other", name="another", metadata={"c": 2})
    assert (changed["id"], changed["name"], changed["metadata"]) == (other["id"], "another", {"c": 2})
    await asked(api, "GET", "/stores/other", 404)
    listed = await asked(api, "GET", "/stores?limit=1")
    assert [each["name"] for each in listed["data"]] == ["another"]
    cursor = listed["pagination"]["last_cursor"]
    assert listed["pagination"]["has_more"]
    listed = await asked(api, "GET", f"/stores?limit=1&after={cursor}")
    assert [each["name"] for each in listed["data"]] == ["manuals"]
    assert not listed["pagination"]["has_more"]
    assert [each["name"] for each in (await asked(api, "GET", "/stores?q=man"))["data"]] == ["manuals"]
    assert await asked(api, "DELETE", "/stores/manuals") == {"id": store["id"], "deleted": True, "object": "store"}
    await asked(api, "GET", f"/stores/{store['id']}", 404)
    assert (await asked(api, "POST", "/stores"))["name"].startswith("vs-")


@requirement("stores:files")
async def test_a_file_goes_by_its_id_or_its_owners_name(api: InProcess) -> None:
    store, (guide, tides) = await a_store(api)
    file = await asked(api, "GET", "/stores/manuals/files/house/guide.md")
    assert (file["id"], file["external_id"], file["filename"]) == (guide, "house/guide.md", "guide.md")
    assert (file["status"], file["metadata"], file["store_id"]) == (
        "completed",
        {"topic": "house", "year": 2024},
        store["id"],
    )
    assert (file["chunks"], file["config"]) == (None, {"parsing_strategy": "fast"})
    assert await asked(api, "GET", f"/stores/{store['id']}/files/{guide}") == file
    whole = (await asked(api, "GET", f"/stores/manuals/files/{guide}?return_chunks=true"))["chunks"]
    assert "silver key" in "".join(chunk["text"] for chunk in whole)
    assert [chunk["chunk_index"] for chunk in whole] == list(range(len(whole)))
    assert whole[0]["generated_metadata"]["type"] == "markdown"
    first = (await asked(api, "GET", f"/stores/manuals/files/{guide}?return_chunks=0&return_chunks=99"))["chunks"]
    assert first == whole[:1]
    await asked(api, "GET", f"/stores/manuals/files/{guide}?return_chunks=x", 400)
    changed = await asked(api, "PATCH", "/stores/manuals/files/sea/tides.md", metadata={"topic": "moon"})
    assert changed["metadata"] == {"topic": "moon"}
    new = await uploaded(api, TIDES, "new.md")
    await asked(api, "POST", "/stores/manuals/files", 409, file_id=new, external_id="sea/tides.md", overwrite=False)
    await asked(api, "POST", "/stores/manuals/files", file_id=new, external_id="sea/tides.md")
    await ingested(api, store["id"])
    assert (await asked(api, "GET", "/stores/manuals/files/sea/tides.md"))["id"] == new
    await asked(api, "GET", f"/stores/manuals/files/{tides}", 404)
    gone = await asked(api, "DELETE", "/stores/manuals/files/house/guide.md")
    assert gone == {"id": guide, "deleted": True, "object": "store.file"}
    await asked(api, "GET", "/stores/manuals/files/house/guide.md", 404)
    await asked(api, "POST", "/stores/manuals/files", 404, file_id="file-1")


@requirement("stores:files")
async def test_files_are_listed_by_status_and_metadata(api: InProcess) -> None:
    _, (guide, tides) = await a_store(api)

    async def ids(**fields: Any) -> list[str]:
        found = await asked(api, "POST", "/stores/manuals/files/list", **fields)
        return [each["id"] for each in found["data"]]

    assert await ids() == [tides, guide]
    assert await ids(statuses=["completed"], q="GUIDE") == [guide]
    assert await ids(statuses=["failed"]) == []
    assert await ids(metadata_filter={"key": "year", "operator": "gt", "value": 2025}) == [tides]
    assert await ids(limit=1) == [tides]
    assert await ids(limit=1, after=tides) == [guide]
    assert await ids(limit=1, before=guide) == [tides]
    await asked(api, "POST", "/stores/manuals/files/list", 400, after="x")
    await asked(api, "POST", "/stores/manuals/files/list", 400, metadata_filter={"key": "a", "operator": "is"})


@requirement("stores:search")
async def test_stores_are_searched_by_words_patterns_and_metadata(api: InProcess) -> None:
    store, (guide, tides) = await a_store(api)
    scope = {"store_identifiers": ["manuals", store["id"]]}

    async def found(what: str, **fields: Any) -> list[dict[str, Any]]:
        return (await asked(api, "POST", f"/stores/{what}", **scope, **fields))["data"]

    best = (await found("search", query="silver key"))[0]
    assert (best["file_id"], best["store_id"], best["external_id"], best["type"]) == (
        guide,
        store["id"],
        "house/guide.md",
        "text",
    )
    assert best["metadata"] == {"topic": "house", "year": 2024}
    assert 0 < best["score"] <= 1
    assert (await found("search", query={"type": "text", "text": "moon"}))[0]["file_id"] == tides
    assert {each["file_id"] for each in await found("search", query="door moon", file_ids=[guide])} == {guide}
    without = await found("search", query="door moon", file_ids=["not_in", [guide]])
    assert {each["file_id"] for each in without} == {tides}
    sea = {"any": [{"key": "topic", "operator": "eq", "value": "sea"}]}
    assert {each["file_id"] for each in await found("search", query="door moon", filters=[sea])} == {tides}
    hits = await found("grep", pattern="SILVER|moon", case_sensitive=False)
    assert {each["file_id"] for each in hits} == {guide, tides}
    assert await found("grep", pattern="SILVER", case_sensitive=True) == []
    assert await found("grep", pattern="silver", targets=["generated"]) == []
    await asked(api, "POST", "/stores/grep", 400, **scope, pattern="(a")
    ranked = await found("list-chunks", sort_by=["year", False], top_k=50)
    assert [each["metadata"]["year"] for each in ranked] == sorted(
        [each["metadata"]["year"] for each in ranked], reverse=True
    )
    facets = (await asked(api, "POST", "/stores/metadata-facets", **scope))["facets"]
    assert set(facets) == {"topic", "year"}
    assert set(facets["year"]) == {"2024", "2026"}
    only = (await asked(api, "POST", "/stores/metadata-facets", **scope, facets=["topic"]))["facets"]
    assert set(only) == {"topic"}
    await asked(api, "POST", "/stores/search", 404, store_identifiers=["gone"], query="x")
    page = await asked(api, "POST", "/stores/search", **scope, query="tide")
    assert page["note"].startswith("Only words were searched for")
    await asked(api, "POST", "/stores/search", 400, store_identifiers=[], query="x")
    await asked(api, "POST", "/stores/search", 400, **scope, query="x", file_ids=[1])


@requirement("stores:beyond")
@pytest.mark.parametrize("agentic", [True, {}, {"max_rounds": 3}])
async def test_what_is_not_done_over_stores_says_what_to_ask_instead(api: InProcess, agentic: Any) -> None:
    await asked(api, "POST", "/stores", name="manuals")
    fields: dict[str, Any] = {"store_identifiers": ["manuals"], "query": "keys"}
    for path, more, param in (
        ("search", {"search_options": {"agentic": agentic}}, "search_options.agentic"),
        ("question-answering", {}, None),
    ):
        error = (await asked(api, "POST", f"/stores/{path}", 400, **fields, **more))["error"]
        assert (error["param"], error["code"]) == (param, "unsupported_value")
        assert "POST /v1/responses" in error["message"]
    await asked(api, "POST", "/stores/search", **fields, search_options={"agentic": False})


@requirement("stores:beyond")
async def test_a_text_that_may_not_be_kept_and_facets_of_a_query_are_refused(api: InProcess) -> None:
    error = (await asked(api, "POST", "/stores", 400, name="private", config={"save_content": False}))["error"]
    assert (error["param"], error["code"]) == ("config.save_content", "unsupported_value")
    assert (await asked(api, "GET", "/stores"))["data"] == []
    await asked(api, "POST", "/stores", name="manuals", config={"save_content": True})
    fields = {"store_identifiers": ["manuals"], "query": "keys"}
    assert (await asked(api, "POST", "/stores/metadata-facets", 400, **fields))["error"]["param"] == "query"


@requirement("stores:search")
async def test_metadata_is_left_out_where_it_is_not_wanted(api: InProcess) -> None:
    await a_store(api)
    scope: dict[str, Any] = {"store_identifiers": ["manuals"]}
    options = {"search_options": {"return_metadata": False}}
    for path, fields in (
        ("search", {"query": "silver key", **options}),
        ("list-chunks", options),
        ("grep", {"pattern": "silver", "return_metadata": False}),
    ):
        with_it = {name: value for name, value in fields.items() if name not in (*options, "return_metadata")}
        bare = (await asked(api, "POST", f"/stores/{path}", **scope, **fields))["data"]
        whole = (await asked(api, "POST", f"/stores/{path}", **scope, **with_it))["data"]
        assert [each["metadata"] for each in bare] == [None] * len(whole)
        assert all(each["metadata"] for each in whole)
        assert whole
