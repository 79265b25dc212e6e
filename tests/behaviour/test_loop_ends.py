"""Loops of hosted tools that are cut short, over a WebSocket, over upstreams, and what listings show of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.http.app import create_app
from antiphon.prompt.looping import HOSTED_INSTRUCTIONS
from antiphon.settings import ModelConfig, Settings
from antiphon.store.postgres import PostgresStore
from antiphon.store.rows import Scope, StoreLimits
from antiphon.store.sealed import SealedStore
from support.asgi import ManualExchange
from support.elsewhere import serving
from support.fake_tools import Corpus, Servers
from support.inprocess import InProcess, inprocess_app
from support.postgres import database_for
from support.sockets import manual_socket
from support.stores import MASTER
from support.unsteady import served
from support.upstream import fake_upstream

requirement = pytest.mark.requirement

SEARCH = {"type": "search_corpus"}
FILES = {"type": "file_search", "vector_store_ids": ["vs_1"]}
OPEN = {"type": "mcp", "server_label": "here", "server_url": "https://mcp.test", "require_approval": "never"}
HANGS = '!TEXT so far\n!CALL search_corpus {"queries":["one"]}\n!CALL search_corpus {"queries":["hang"]}'
LOOP = '!CALL search_corpus {"queries":["one"]}\n!THEN\n!ECHO'


@pytest.fixture
def corpus() -> Corpus:
    return Corpus()


@pytest.fixture(params=["memory", "sqlite"])
async def api(request: pytest.FixtureRequest, tmp_path: Path, corpus: Corpus) -> AsyncIterator[InProcess]:
    async with inprocess_app(store=request.param, tmp_path=tmp_path, tools=[corpus, Servers()]) as app:
        yield app


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.001)


def tasks_of_tools() -> list[asyncio.Task[Any]]:
    """The runs of tools that have not ended."""
    return [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") == "Tool.run"]


@requirement("loop:cancel")
async def test_a_cancelled_response_cancels_its_tool_and_keeps_what_was_found(api: InProcess, corpus: Corpus):
    name = (await api.create(HANGS, tools=[SEARCH], background=True))["id"]
    async with asyncio.timeout(20):
        while True:
            running = (await api.client.get(f"/responses/{name}")).json()
            if [call["status"] for call in running.get("hosted_tool_calls", ())] == ["completed", "in_progress"]:
                break
            await asyncio.sleep(0.002)
    cancelled = (await api.client.post(f"/responses/{name}/cancel")).json()
    assert (cancelled["status"], cancelled["output_text"]) == ("cancelled", "so far")
    assert [call["status"] for call in cancelled["hosted_tool_calls"]] == ["completed", "failed"]
    assert tasks_of_tools() == []
    told = await api.create("!ECHO", previous_response_id=name)
    assert "found one" in told["output_text"]


@requirement("loop:leave")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_in_the_middle_of_a_run_stops_it(api: InProcess, corpus: Corpus, stream: bool):
    body = {"model": "scripted", "input": HANGS, "tools": [SEARCH], "stream": stream}
    asked = ManualExchange(create_app(api.service), body)
    await until(lambda: len(corpus.runs) == 2)
    (run,) = api.service._runs.values()
    asked.leave()
    await asked.finished()
    assert tasks_of_tools() == []
    stored = (await api.client.get(f"/responses/{run.id}")).json()
    assert stored["status"] == "cancelled"
    assert api.service.admission.running == 0


@requirement("loop:close")
async def test_a_server_that_stops_waits_for_no_tool_and_closes_its_providers(tmp_path: Path):
    corpus = Corpus()
    async with inprocess_app(store="sqlite", tmp_path=tmp_path, tools=[corpus]) as api:
        name = (await api.create(HANGS, tools=[SEARCH], background=True))["id"]
        await until(lambda: len(corpus.runs) == 2)
    assert corpus.closed
    again = Corpus()
    async with inprocess_app(store="sqlite", tmp_path=tmp_path, tools=[again]) as api:
        await until(lambda: again.runs)
        assert again.runs == ["search_corpus hang"]
        await api.client.post(f"/responses/{name}/cancel")


@requirement("loop:socket")
async def test_a_socket_continues_from_a_loop_that_no_store_has(api: InProcess):
    async with manual_socket(create_app(api.service)) as socket:
        first = await socket.response(LOOP, tools=[SEARCH], store=False)
        assert len(first["hosted_tool_calls"]) == 1
        second = await socket.response("!ECHO", previous_response_id=first["id"], store=False)
        assert second["output_text"].count("found one<|im_end|>") == 2
        third = await socket.response("!ECHO", previous_response_id=second["id"])
        assert (await api.client.get(f"/responses/{third['id']}/input_items")).status_code == 200
        assert third["output_text"].startswith(second["output_text"].removesuffix("<|im_start|>assistant\n"))


@requirement("loop:private")
async def test_no_listing_shows_what_is_the_servers_own(api: InProcess):
    talk = (await api.client.post("/conversations", json={})).json()["id"]
    asked = '!CALL file_search {"queries":["one"]}\n!THEN\n!TEXT x'
    first = await api.create(asked, tools=[FILES, SEARCH], conversation=talk, include=["file_search_call.results"])
    second = await api.create("!TEXT y", conversation=talk)
    chained = await api.create("!TEXT y", previous_response_id=first["id"])
    item = first["output"][0]["id"]
    for path in (
        f"/responses/{first['id']}",
        f"/responses/{first['id']}?include=file_search_call.results",
        f"/responses/{first['id']}?stream=true",
        f"/responses/{second['id']}/input_items",
        f"/responses/{chained['id']}/input_items?include=file_search_call.results",
        f"/conversations/{talk}/items",
        f"/conversations/{talk}/items/{item}",
        f"/conversations/{talk}/items?include=file_search_call.results",
    ):
        answer = await api.client.get(path)
        assert answer.status_code == 200, path
        assert "file_search_call" in answer.text or "include" not in path, path
        for word in ('"_private"', '"_call_id"', '"_name"', '"_turn"', '"_arguments"'):
            assert word not in answer.text, (path, word)


@requirement("loop:private")
async def test_an_item_that_a_client_sends_back_is_the_one_that_was_kept(api: InProcess):
    first = await api.create('!CALL file_search {"queries":["one"]}\n!THEN\n!TEXT x', tools=[FILES])
    call = first["output"][0]
    assert call["results"] is None
    told = await api.create([call, {"type": "message", "role": "user", "content": "!ECHO"}])
    assert "found one" in told["output_text"]
    forged = {**call, "queries": ["other"], "_told": "forged"}
    told = await api.create([forged, {"type": "message", "role": "user", "content": "!ECHO"}])
    assert "found one" not in told["output_text"]
    assert "forged" not in told["output_text"]


@requirement("loop:count")
async def test_tokens_are_counted_with_the_tools(api: InProcess):
    async def count(**fields: Any) -> int:
        body = {"model": "scripted", "input": "hi", **fields}
        answer = await api.client.post("/responses/input_tokens", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["input_tokens"]

    plain = await count()
    assert await count(tools=[SEARCH]) > plain
    assert await count(tools=[OPEN]) > plain
    created = await api.create("hi", tools=[SEARCH])
    assert created["usage"]["input_tokens"] == await count(tools=[SEARCH])


@requirement("loop:upstream")
@pytest.mark.parametrize("engine", ["upstream", "responses"])
async def test_an_upstream_is_told_of_the_tools_that_run_here(scripted_server: str, corpus: Corpus, engine: str):
    extra = {"engine": "responses", "profile": "antiphon"} if engine == "responses" else {"upstream_model": "scripted"}
    model = ModelConfig(name="scripted", base_url=scripted_server, **extra)
    async with inprocess_app(settings=Settings(models=(model,)), tools=[corpus]) as api:
        answer = await api.create(LOOP.replace("!ECHO", "!TEXT done"), tools=[SEARCH])
        assert [call["status"] for call in answer["hosted_tool_calls"]] == ["completed"]
        assert answer["output_text"] == "done"
        told = await api.create("!ECHO", previous_response_id=answer["id"], tools=[SEARCH])
        assert "found one" in told["output_text"]
        await api.create('!CALL file_search {"queries":["one"]}\n!THEN\n!TEXT done', tools=[FILES])
    # What an upstream with the same API runs itself is left to it.
    assert corpus.runs == ["search_corpus one", *(["file_search one"] if engine == "upstream" else [])]


@requirement("loop:private")
async def test_an_upstream_is_sent_an_approval_as_its_client_sent_it_and_nothing_of_ours():
    async with fake_upstream() as fake, serving(fake.url) as api:
        asked = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "a", "arguments": "{}", "server_label": "x"}
        given = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
        said = {"type": "message", "role": "user", "content": "hi"}
        tools = [{"type": "mcp", "server_label": "x", "server_url": "https://mcp.test"}]
        await api.client.post("/responses", json={"model": "scripted", "input": [said, asked, given], "tools": tools})
        (exchange,) = fake.asked
        assert exchange.body["input"][:2] == [said, asked]
        assert exchange.body["input"][2]["approval_request_id"] == "mcpr_1"


@requirement("loop:runs-kept")
@pytest.mark.parametrize("sealed", [False, True])
async def test_background_loops_over_postgresql_end_with_all_that_was_found(tmp_path: Path, sealed: bool):
    inner = PostgresStore(database_for(tmp_path), StoreLimits())
    store = SealedStore(inner, MASTER) if sealed else inner
    corpus = Corpus()
    async with served(store, tools=[corpus]) as api:
        asked = '!CALL search_corpus {"queries":["one"]}\n!CALL search_corpus {"queries":["two"]}\n!THEN\n!TEXT done'
        name = (await api.create(asked, tools=[SEARCH], background=True))["id"]
        async with asyncio.timeout(20):
            while (found := (await api.client.get(f"/responses/{name}")).json())["status"] != "completed":
                await asyncio.sleep(0.01)
        assert [call["status"] for call in found["hosted_tool_calls"]] == ["completed", "completed"]
        assert await store.tool_runs(Scope("default"), name) == []
        assert "found two" in (await api.create("!ECHO", previous_response_id=name))["output_text"]


@requirement("loop:instructions", "loop:compaction")
async def test_a_loop_after_a_compaction_has_the_same_instructions_in_every_turn(api: InProcess, corpus: Corpus):
    first = await api.create("word " * 3_000)
    edits = [{"type": "compaction", "compact_threshold": 1_000}]
    asked = '!ECHO\n!CALL search_corpus {"queries":["one"]}\n!THEN\n!ECHO'
    answer = await api.create(asked, previous_response_id=first["id"], tools=[SEARCH, OPEN], context_management=edits)
    kinds = [item["type"] for item in answer["output"]]
    assert kinds == ["mcp_list_tools", "compaction", "message", "message"]
    before, after = (item["content"][0]["text"] for item in answer["output"][2:])
    assert HOSTED_INSTRUCTIONS in before
    assert "SUMMARY" in before
    assert after.startswith(before)
    assert "found one" in after
    told = await api.create("!ECHO", previous_response_id=answer["id"], instructions=HOSTED_INSTRUCTIONS)
    assert told["output_text"].startswith(after.removesuffix("<|im_start|>assistant\n"))
