"""The official packages of OpenAI and Mixedbread on vector stores: fill, poll, search and delete."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx2
import mixedbread
import openai
import pytest
from openai.types.vector_store import VectorStore
from openai.types.vector_stores import VectorStoreFile, VectorStoreFileBatch

from support.server import RunningServer, running_server

requirement = pytest.mark.requirement

GUIDE = (
    b"# Guide\n\n## Doors\n\nThe red door opens with a silver key.\n\n## Windows\n\nWindows are washed on Mondays.\n"
)
TIDES = b"# Tides\n\nHigh water comes twice a day, and the moon pulls it.\n"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server with text search alone, so that no model is fetched."""
    with running_server(["--model", "scripted", "--store", "memory", "--document-embedding", "none"]) as running:
        yield running


TYPES = {
    "vector_store": VectorStore,
    "vector_store.file": VectorStoreFile,
    "vector_store.files_batch": VectorStoreFileBatch,
}


@pytest.fixture
def sdk(server: RunningServer) -> Iterator[openai.OpenAI]:
    """The `openai` package; each vector store, file and batch that it is sent is held strictly against its types."""
    bodies: list[bytes] = []

    def note(response: httpx2.Response) -> None:
        bodies.append(response.read())

    http = httpx2.Client(event_hooks={"response": [note]}, timeout=60)
    with openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0, http_client=http) as client:
        yield client
    checked: set[str] = set()
    for body in bodies:
        answer = json.loads(body)
        for each in answer["data"] if answer.get("object") == "list" else [answer]:
            kind = TYPES.get(each.get("object"))
            if kind is not None:
                kind.model_validate_json(json.dumps(each), strict=True)
                checked.add(each["object"])
    assert checked == set(TYPES)


@requirement("api:vector-stores", "vector-stores:sdk")
def test_the_openai_package_fills_polls_and_searches(sdk: openai.OpenAI) -> None:
    store = sdk.vector_stores.create(name="house", expires_after={"anchor": "last_active_at", "days": 1})
    assert store.expires_after is not None
    file = sdk.vector_stores.files.upload_and_poll(
        vector_store_id=store.id, file=("guide.md", GUIDE), attributes={"lang": "en"}
    )
    assert (file.status, file.last_error) == ("completed", None)
    batch = sdk.vector_stores.file_batches.upload_and_poll(store.id, files=[("tides.md", TIDES)])
    assert (batch.status, batch.file_counts.completed) == ("completed", 1)
    assert len(sdk.vector_stores.file_batches.list_files(batch.id, vector_store_id=store.id).data) == 1
    found = sdk.vector_stores.search(store.id, query="silver key", max_num_results=3)
    assert found.data[0].file_id == file.id
    assert "silver key" in found.data[0].content[0].text
    filtered = sdk.vector_stores.search(
        store.id, query=["moon", "key"], filters={"type": "eq", "key": "lang", "value": "en"}
    )
    assert {each.file_id for each in filtered.data} == {file.id}
    text = "".join(part.text or "" for part in sdk.vector_stores.files.content(file.id, vector_store_id=store.id))
    assert "Mondays" in text
    updated = sdk.vector_stores.files.update(file.id, vector_store_id=store.id, attributes={"lang": "de"})
    assert updated.attributes == {"lang": "de"}
    assert [each.id for each in sdk.vector_stores.list(limit=1)][:1] == [store.id]
    assert len(list(sdk.vector_stores.files.list(store.id, limit=1))) == 2
    assert sdk.vector_stores.update(store.id, name="home").name == "home"
    assert sdk.vector_stores.files.delete(file.id, vector_store_id=store.id).deleted
    assert sdk.vector_stores.delete(store.id).deleted
    with pytest.raises(openai.NotFoundError):
        sdk.vector_stores.retrieve(store.id)


@requirement("stores:sdk")
def test_the_mixedbread_package_works_on_document_stores(server: RunningServer) -> None:
    with mixedbread.Mixedbread(base_url=server.base_url.removesuffix("/v1"), api_key="k", max_retries=0) as client:
        store = client.stores.create(name="manuals", metadata={"a": 1})
        for name, text in (("house/guide.md", GUIDE), ("sea/tides.md", TIDES)):
            file = client.files.create(file=(name, text))
            client.stores.files.create(
                "manuals", file_id=file.id, external_id=name, metadata={"topic": name.split("/")[0]}
            )
            assert client.stores.files.poll(file.id, store_identifier="manuals").status == "completed"
        found = client.stores.search(query="silver key", store_identifiers=["manuals"], top_k=3)
        assert found.data[0].external_id == "house/guide.md"
        assert found.data[0].score > 0
        sea = client.stores.search(
            query="door moon",
            store_identifiers=[store.id],
            filters={"all": [{"key": "topic", "operator": "eq", "value": "sea"}]},
        )
        assert {each.external_id for each in sea.data} == {"sea/tides.md"}
        assert client.stores.grep(pattern="Mon.ays", store_identifiers=["manuals"]).data
        facets = client.stores.metadata_facets(store_identifiers=["manuals"]).facets
        assert set(facets["topic"]) == {"house", "sea"}
        assert client.stores.list_chunks(store_identifiers=["manuals"], sort_by="topic").data
        file = client.stores.files.retrieve("house/guide.md", store_identifier="manuals", return_chunks=True)
        assert file.chunks
        listed = client.stores.files.list("manuals", statuses=["completed"])
        assert len(listed.data) == 2
        assert [each.name for each in client.stores.list(q="man")] == ["manuals"]
        assert client.stores.update("manuals", description="All").description == "All"
        assert client.stores.files.delete("sea/tides.md", store_identifier="manuals").deleted
        assert client.stores.delete("manuals").deleted
