"""`/v1/vector_stores`: their life, the files in them, batches and searches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from antiphon.protocol.files import new_file_id
from antiphon.protocol.ids import new_id
from antiphon.settings import Settings
from antiphon.store.base import Scope
from support.documents import filled_store, ingested, uploaded
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement

METRICS = "http://127.0.0.1/metrics"
GUIDE = "# Guide\n\n## Doors\n\nThe red door opens with a silver key.\n\n## Windows\n\nWindows are washed on Mondays.\n"
TIDES = "# Tides\n\nHigh water comes twice a day, and the moon pulls it.\n"


@pytest.fixture(params=["memory", "sqlite"])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcess]:
    """The application with text search alone, so that no model is fetched."""
    settings = Settings(document_embedding="none")
    async with inprocess_app(store=request.param, tmp_path=tmp_path, settings=settings) as app:
        yield app


async def made(api: InProcess, **fields: Any) -> dict[str, Any]:
    reply = await api.client.post("/vector_stores", json=fields)
    assert reply.status_code == 200, reply.text
    return reply.json()


def fault(reply: httpx2.Response) -> tuple[int, str | None, str | None]:
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return reply.status_code, error["param"], error["code"]


@requirement("vector-stores:life")
async def test_a_vector_store_has_the_fields_of_openais_object(api: InProcess) -> None:
    store = await made(api, name="Doors", description="How they open", metadata={"team": "x"})
    assert store == {
        "id": store["id"],
        "object": "vector_store",
        "created_at": store["created_at"],
        "last_active_at": store["created_at"],
        "name": "Doors",
        "description": "How they open",
        "metadata": {"team": "x"},
        "usage_bytes": 0,
        "status": "completed",
        "file_counts": {"in_progress": 0, "completed": 0, "failed": 0, "cancelled": 0, "total": 0},
        "expires_after": None,
        "expires_at": None,
    }
    assert (await api.client.get(f"/vector_stores/{store['id']}")).json() == store
    bare = (await api.client.post("/vector_stores")).json()
    assert (bare["name"], bare["description"], bare["metadata"]) == (None, None, {})


@requirement("vector-stores:life")
async def test_vector_stores_are_listed_page_by_page_in_both_directions(api: InProcess) -> None:
    ids = [(await made(api, name=str(number)))["id"] for number in range(5)]
    newest = (await api.client.get("/vector_stores?limit=2")).json()
    assert [store["id"] for store in newest["data"]] == [ids[4], ids[3]]
    assert (newest["first_id"], newest["last_id"], newest["has_more"]) == (ids[4], ids[3], True)
    after = (await api.client.get(f"/vector_stores?limit=2&after={ids[3]}")).json()
    assert [store["id"] for store in after["data"]] == [ids[2], ids[1]]
    before = (await api.client.get(f"/vector_stores?limit=2&before={ids[1]}")).json()
    assert [store["id"] for store in before["data"]] == [ids[3], ids[2]]
    assert before["has_more"]
    oldest = (await api.client.get("/vector_stores?order=asc")).json()
    assert [store["id"] for store in oldest["data"]] == ids
    assert not oldest["has_more"]
    assert fault(await api.client.get("/vector_stores?after=vs_1")) == (400, "after", "invalid_value")


@requirement("vector-stores:life", "vector-stores:expiry")
async def test_what_a_change_names_is_changed_and_the_rest_stays(api: InProcess) -> None:
    store = await made(api, name="a", metadata={"k": "v"}, expires_after={"anchor": "last_active_at", "days": 2})
    assert store["expires_at"] == store["last_active_at"] + 2 * 86_400
    path = f"/vector_stores/{store['id']}"
    changed = (await api.client.post(path, json={"name": "b"})).json()
    assert (changed["name"], changed["metadata"], changed["expires_after"]["days"]) == ("b", {"k": "v"}, 2)
    changed = (await api.client.post(path, json={"metadata": {}, "expires_after": None})).json()
    assert (changed["name"], changed["metadata"], changed["expires_after"]) == ("b", {}, None)
    assert changed["expires_at"] is None


@requirement("vector-stores:life")
async def test_a_deleted_vector_store_is_gone_and_its_uploads_stay(api: InProcess) -> None:
    store, (file,) = await filled_store(api, GUIDE)
    gone = await api.client.delete(f"/vector_stores/{store}")
    assert gone.json() == {"id": store, "object": "vector_store.deleted", "deleted": True}
    assert (await api.client.get(f"/vector_stores/{store}")).status_code == 404
    assert (await api.client.delete(f"/vector_stores/{store}")).status_code == 404
    assert (await api.client.get(f"/files/{file}")).status_code == 200


@requirement("vector-stores:files", "vector-stores:poll")
async def test_a_file_is_ingested_listed_read_and_taken_out(api: InProcess) -> None:
    store = (await made(api))["id"]
    file = await uploaded(api, GUIDE, "guide.md")
    path = f"/vector_stores/{store}/files"
    reply = await api.client.post(path, json={"file_id": file, "attributes": {"lang": "en", "year": 2026, "ok": True}})
    assert reply.json() == {
        "id": file,
        "object": "vector_store.file",
        "created_at": reply.json()["created_at"],
        "vector_store_id": store,
        "status": "in_progress",
        "usage_bytes": 0,
        "last_error": None,
        "attributes": {"lang": "en", "year": 2026, "ok": True},
        "chunking_strategy": {"type": "other"},
    }
    whole = await ingested(api, store)
    assert whole["file_counts"] == {"in_progress": 0, "completed": 1, "failed": 0, "cancelled": 0, "total": 1}
    assert whole["usage_bytes"] > 0
    done = await api.client.get(f"{path}/{file}")
    assert done.json()["status"] == "completed"
    assert "openai-poll-after-ms" not in done.headers
    texts = (await api.client.get(f"{path}/{file}/content")).json()
    assert texts["object"] == "vector_store.file_content.page"
    assert "silver key" in "".join(part["text"] for part in texts["data"])
    changed = (await api.client.post(f"{path}/{file}", json={"attributes": {"lang": "de"}})).json()
    assert changed["attributes"] == {"lang": "de"}
    assert [each["id"] for each in (await api.client.get(f"{path}?filter=completed")).json()["data"]] == [file]
    assert (await api.client.get(f"{path}?filter=failed")).json()["data"] == []
    assert fault(await api.client.get(f"{path}?filter=gone")) == (400, "filter", "invalid_value")
    gone = await api.client.delete(f"{path}/{file}")
    assert gone.json() == {"id": file, "object": "vector_store.file.deleted", "deleted": True}
    assert (await api.client.get(f"{path}/{file}")).status_code == 404
    assert (await api.client.get(f"/files/{file}")).status_code == 200


@requirement("vector-stores:poll")
async def test_what_is_ingested_says_when_to_look_again(api: InProcess) -> None:
    await api.service.corpora.stop()
    store = (await made(api))["id"]
    file = await uploaded(api, GUIDE)
    batch = (await api.client.post(f"/vector_stores/{store}/file_batches", json={"file_ids": [file]})).json()
    one = await api.client.get(f"/vector_stores/{store}/files/{file}")
    many = await api.client.get(f"/vector_stores/{store}/file_batches/{batch['id']}")
    assert [reply.headers["openai-poll-after-ms"] for reply in (one, many)] == ["500", "500"]


@requirement("vector-stores:files")
async def test_a_file_that_cannot_be_read_is_failed_with_the_reason(api: InProcess) -> None:
    store = (await made(api))["id"]
    file = await uploaded(api, "\0\0\0", "a.bin")
    await api.client.post(f"/vector_stores/{store}/files", json={"file_id": file})
    whole = await ingested(api, store)
    assert whole["file_counts"]["failed"] == 1
    failed = (await api.client.get(f"/vector_stores/{store}/files/{file}")).json()
    assert failed["status"] == "failed"
    assert failed["last_error"]["code"] == "unsupported_file"


@requirement("vector-stores:batches")
async def test_a_batch_has_what_holds_for_all_or_each_its_own(api: InProcess) -> None:
    store = (await made(api))["id"]
    files = [await uploaded(api, text, f"{number}.md") for number, text in enumerate((GUIDE, TIDES))]
    path = f"/vector_stores/{store}/file_batches"
    batch = (await api.client.post(path, json={"file_ids": files, "attributes": {"set": "a"}})).json()
    assert (batch["object"], batch["vector_store_id"], batch["status"]) == (
        "vector_store.files_batch",
        store,
        "in_progress",
    )
    await ingested(api, store)
    batch = (await api.client.get(f"{path}/{batch['id']}")).json()
    assert (batch["status"], batch["file_counts"]["completed"]) == ("completed", 2)
    listed = (await api.client.get(f"{path}/{batch['id']}/files?order=asc")).json()["data"]
    assert [(each["id"], each["attributes"]) for each in listed] == [(file, {"set": "a"}) for file in files]
    sizes = {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 10}}
    own = [{"file_id": files[0], "attributes": {"set": "b"}, "chunking_strategy": sizes}, {"file_id": files[1]}]
    again = (await api.client.post(path, json={"files": own})).json()
    await ingested(api, store)
    listed = (await api.client.get(f"{path}/{again['id']}/files?order=asc")).json()["data"]
    assert [each["attributes"] for each in listed] == [{"set": "b"}, {}]
    assert listed[0]["chunking_strategy"] == sizes


@requirement("vector-stores:batches")
async def test_a_cancelled_batch_ingests_no_more(api: InProcess) -> None:
    await api.service.corpora.stop()
    store = (await made(api))["id"]
    file = await uploaded(api, GUIDE)
    path = f"/vector_stores/{store}/file_batches"
    batch = (await api.client.post(path, json={"file_ids": [file]})).json()
    for _ in range(2):
        cancelled = (await api.client.post(f"{path}/{batch['id']}/cancel")).json()
        assert (cancelled["status"], cancelled["file_counts"]["cancelled"]) == ("cancelled", 1)
    assert (await api.client.get(f"/vector_stores/{store}/files/{file}")).json()["status"] == "cancelled"


@requirement("search:metrics")
async def test_files_and_searches_are_counted(api: InProcess) -> None:
    store, _ = await filled_store(api, GUIDE, TIDES)
    broken = await uploaded(api, "%PDF-1.4 and nothing more", "broken.pdf")
    await api.client.post(f"/vector_stores/{store}/files", json={"file_id": broken})
    await ingested(api, store)
    await api.client.post(f"/vector_stores/{store}/search", json={"query": "key"})
    words = {"query": "key", "ranking_options": {"hybrid_search": {"embedding_weight": 0, "text_weight": 1}}}
    await api.client.post(f"/vector_stores/{store}/search", json=words)
    async with asyncio.timeout(20):
        # A file is counted once its worker is done with it, a moment after its status is known.
        while "antiphon:ingestion_files_running 0.0" not in (told := (await api.client.get(METRICS)).text):
            await asyncio.sleep(0.001)
    for line in (
        'antiphon:ingestion_files_total{outcome="completed"} 2.0',
        'antiphon:ingestion_files_total{outcome="failed"} 1.0',
        "antiphon:ingestion_file_seconds_count 3.0",
        'antiphon:document_searches_total{outcome="partial"} 1.0',
        'antiphon:document_searches_total{outcome="whole"} 1.0',
        "antiphon:document_search_seconds_count 2.0",
    ):
        assert line in told, told


@requirement("search:rerank:served", "corpus-tools:note")
async def test_the_model_that_answers_may_rank_too_though_it_has_one_place() -> None:
    settings = Settings(document_embedding="none", reranker="scripted")
    async with inprocess_app(store="memory", settings=settings) as api:
        engine = api.service.limits.resolve(Scope(""), "scripted")[1]
        engine.gate.limit(1)
        store, _ = await filled_store(api, GUIDE, TIDES)
        asked = '!CALL file_search {"queries":["silver key"]}\n!THEN\n!ECHO'
        async with asyncio.timeout(20):
            answer = await api.create(asked, tools=[{"type": "file_search", "vector_store_ids": [store]}])
        (call, _) = answer["output"]
        # It says something else than yes or no, so that the order stays.
        assert (call["status"], "not reranked" in call["note"]) == ("completed", True)
        assert "not reranked" in answer["output_text"]
        assert "silver key" in answer["output_text"]
        assert (engine.gate.running, engine.gate.waiting) == (0, 0)


@requirement("vector-stores:search")
async def test_a_search_gives_the_best_passages_with_their_files(api: InProcess) -> None:
    store, (guide, tides) = await filled_store(api, GUIDE, TIDES)
    path = f"/vector_stores/{store}"
    await api.client.post(f"{path}/files/{tides}", json={"attributes": {"topic": "sea", "year": 2026}})
    page = (await api.client.post(f"{path}/search", json={"query": "silver key of the door"})).json()
    assert (page["object"], page["search_query"], page["has_more"], page["next_page"]) == (
        "vector_store.search_results.page",
        ["silver key of the door"],
        False,
        None,
    )
    assert page["note"].startswith("Only words were searched for")
    best = page["data"][0]
    assert (best["file_id"], best["filename"], best["attributes"]) == (guide, "file-0.md", {})
    assert 0 < best["score"] <= 1
    assert "silver key" in best["content"][0]["text"]
    both = {"query": ["silver key", "moon"], "max_num_results": 5}
    assert {each["file_id"] for each in (await api.client.post(f"{path}/search", json=both)).json()["data"]} == {
        guide,
        tides,
    }
    sea = {"type": "and", "filters": [{"type": "eq", "key": "topic", "value": "sea"}]}
    filtered = (await api.client.post(f"{path}/search", json={**both, "filters": sea})).json()["data"]
    assert [each["file_id"] for each in filtered] == [tides]
    assert filtered[0]["attributes"] == {"topic": "sea", "year": 2026}
    strict = {**both, "ranking_options": {"ranker": "none", "score_threshold": 1.0}}
    assert len((await api.client.post(f"{path}/search", json=strict)).json()["data"]) <= 2
    wrong = await api.client.post(f"{path}/search", json={"query": "x", "filters": {"type": "near", "key": "a"}})
    assert wrong.status_code == 400


@requirement("vector-stores:bounds")
@pytest.mark.parametrize(
    "path, body, param",
    [
        ("", {"name": 1}, "name"),
        ("", {"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ("", {"expires_after": {"anchor": "created_at", "days": 1}}, "expires_after.anchor"),
        ("", {"expires_after": {"anchor": "last_active_at", "days": 0}}, "expires_after.days"),
        ("", {"chunking_strategy": {"type": "static"}}, "chunking_strategy.static"),
        ("/{id}/files", {}, "file_id"),
        ("/{id}/files", {"file_id": "{file}", "attributes": {"a": []}}, "attributes"),
        ("/{id}/files", {"file_id": "{file}", "attributes": {"a": "x" * 513}}, "attributes"),
        (
            "/{id}/files",
            {"file_id": "{file}", "chunking_strategy": {"type": "static", "static": {"max_chunk_size_tokens": 99}}},
            "chunking_strategy.static.max_chunk_size_tokens",
        ),
        (
            "/{id}/files",
            {
                "file_id": "{file}",
                "chunking_strategy": {
                    "type": "static",
                    "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 51},
                },
            },
            "chunking_strategy.static.chunk_overlap_tokens",
        ),
        ("/{id}/file_batches", {}, "file_ids"),
        ("/{id}/file_batches", {"file_ids": ["{file}"], "files": [{"file_id": "{file}"}]}, "file_ids"),
        ("/{id}/file_batches", {"file_ids": []}, "file_ids"),
        ("/{id}/file_batches", {"file_ids": ["{file}", "{file}"]}, "files"),
        ("/{id}/file_batches", {"files": [{"file_id": "{file}", "attributes": {"a": {}}}]}, "files[0].attributes"),
        ("/{id}/search", {}, "query"),
        ("/{id}/search", {"query": []}, "query"),
        ("/{id}/search", {"query": "x", "max_num_results": 51}, "max_num_results"),
        ("/{id}/search", {"query": "x", "ranking_options": {"score_threshold": 2}}, "ranking_options.score_threshold"),
    ],
)
async def test_fields_out_of_range_are_refused(path: str, body: dict[str, Any], param: str) -> None:
    async with inprocess_app(settings=Settings(document_embedding="none")) as api:
        store, file = (await made(api))["id"], await uploaded(api, GUIDE)
        reply = await api.client.post(
            f"/vector_stores{path}".replace("{id}", store),
            content=httpx2.Request("POST", "http://x", json=body).content.replace(b"{file}", file.encode()),
        )
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"]["param"] == param


@requirement("vector-stores:missing")
async def test_what_is_not_there_is_one_404(api: InProcess) -> None:
    store, (file,) = await filled_store(api, GUIDE)
    for missing in (new_id("vs"), "vs_1", "x" * 300):
        for method, path in (("GET", ""), ("POST", ""), ("DELETE", ""), ("GET", "/files"), ("POST", "/search")):
            reply = await api.client.request(method, f"/vector_stores/{missing}{path}", json={"query": "x"})
            assert (reply.status_code, reply.json()["error"]["param"]) == (404, "vector_store_id")
    for missing in (new_file_id(), "file-1"):
        path = f"/vector_stores/{store}/files/{missing}"
        replies = [await api.client.get(path), await api.client.delete(path), await api.client.get(f"{path}/content")]
        replies.append(await api.client.post(path, json={"attributes": {}}))
        replies.append(await api.client.post(f"/vector_stores/{store}/files", json={"file_id": missing}))
        replies.append(await api.client.post("/vector_stores", json={"file_ids": [file, missing]}))
        assert {(reply.status_code, reply.json()["error"]["param"]) for reply in replies} == {(404, "file_id")}
    for missing in (new_id("vsfb"), "vsfb_1"):
        path = f"/vector_stores/{store}/file_batches/{missing}"
        replies = [await api.client.get(path), await api.client.get(f"{path}/files")]
        replies.append(await api.client.post(f"{path}/cancel"))
        assert {(reply.status_code, reply.json()["error"]["param"]) for reply in replies} == {(404, "batch_id")}
    assert len((await api.client.get("/vector_stores")).json()["data"]) == 1


@requirement("vector-stores:limits")
async def test_a_tenant_has_so_many_vector_stores_and_files_in_one() -> None:
    settings = Settings(document_embedding="none", max_vector_stores=1, max_vector_store_files=1)
    async with inprocess_app(settings=settings) as api:
        store = (await made(api))["id"]
        assert fault(await api.client.post("/vector_stores"))[::2] == (400, "vector_store_limit_reached")
        files = [await uploaded(api, GUIDE), await uploaded(api, TIDES)]
        reply = await api.client.post(f"/vector_stores/{store}/file_batches", json={"file_ids": files})
        assert fault(reply)[::2] == (400, "file_limit_reached")
        assert (await api.client.get(f"/vector_stores/{store}")).json()["file_counts"]["total"] == 0


@requirement("vector-stores:off")
async def test_there_are_none_without_persistence() -> None:
    async with inprocess_app(settings=Settings(responses_store_max_entries=0)) as api:
        assert (await api.client.post("/vector_stores")).status_code == 400
        assert (await api.client.get("/stores")).status_code == 400
