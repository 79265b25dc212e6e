"""`/v1/containers` and their files, and code in whole responses on the scripted model: streams, chains, citations."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from antiphon.protocol.ids import is_id, new_id
from antiphon.runtime.keys import new_key
from antiphon.runtime.limits import KeyRules
from antiphon.settings import Settings
from antiphon.tools.code.sandbox import NoSandboxError
from clients.strict import strict_events
from support.inprocess import BASE_URL, InProcess, inprocess_app
from support.sandboxes import bubblewrap

requirement = pytest.mark.requirement

SMALL = Settings(sandbox_memory=256 * 1024 * 1024, sandbox_disk=8 * 1024 * 1024, sandbox_seconds=5, drain_timeout=0)
AUTO = {"type": "code_interpreter", "container": {"type": "auto"}}


@pytest.fixture
async def boxed() -> AsyncIterator[InProcess]:
    """A server that runs code in bubblewrap."""
    found = await bubblewrap()
    async with inprocess_app(settings=SMALL, store="memory") as api:
        api.service.containers.sandboxes._found = found
        yield api


async def made(api: InProcess, **body: Any) -> dict[str, Any]:
    reply = await api.client.post("/containers", json={"name": "one", **body})
    assert reply.status_code == 200, reply.text
    return reply.json()


async def put(api: InProcess, container: str, name: str = "a.txt", content: bytes = b"x") -> dict[str, Any]:
    reply = await api.client.post(f"/containers/{container}/files", files={"file": (name, content)})
    assert reply.status_code == 200, reply.text
    return reply.json()


def script(*cells: str, text: str = "done") -> str:
    """What has the scripted model run cells, one in each turn, and then say a text."""
    calls = "\n!THEN\n".join(f"!CALL code_interpreter {json.dumps({'code': cell})}" for cell in cells)
    return f"{calls}\n!THEN\n!TEXT {text}"


def fault(reply: httpx2.Response) -> tuple[int, str | None, str | None]:
    error = reply.json()["error"]
    return reply.status_code, error["param"], error["code"]


@requirement("containers:routes")
async def test_a_container_is_created_listed_retrieved_and_deleted(api: InProcess) -> None:
    uploaded = await api.client.post("/files", files={"file": ("n.csv", b"1,2")}, data={"purpose": "user_data"})
    one = await made(api, expires_after={"anchor": "last_active_at", "minutes": 5}, file_ids=[uploaded.json()["id"]])
    assert is_id("cntr", one["id"])
    assert one == {
        "id": one["id"],
        "object": "container",
        "created_at": one["created_at"],
        "status": "running",
        "name": "one",
        "last_active_at": one["last_active_at"],
        "expires_after": {"anchor": "last_active_at", "minutes": 5},
        "memory_limit": "1g",
        "network_policy": {"type": "disabled"},
    }
    two = await made(api, name="two", memory_limit="64g")
    assert two["memory_limit"] == "1g"
    assert (await api.client.get(f"/containers/{one['id']}")).json()["id"] == one["id"]
    listed = (await api.client.get("/containers")).json()
    assert [entry["name"] for entry in listed["data"]] == ["two", "one"]
    first = (await api.client.get("/containers", params={"limit": 1, "order": "asc"})).json()
    assert (first["data"][0]["name"], first["has_more"]) == ("one", True)
    rest = (await api.client.get("/containers", params={"order": "asc", "after": first["last_id"]})).json()
    assert ([entry["name"] for entry in rest["data"]], rest["has_more"]) == (["two"], False)
    files = (await api.client.get(f"/containers/{one['id']}/files")).json()["data"]
    assert [(file["path"], file["source"], file["bytes"]) for file in files] == [("/mnt/data/n.csv", "user", 3)]
    deleted = (await api.client.delete(f"/containers/{one['id']}")).json()
    assert deleted == {"id": one["id"], "object": "container.deleted", "deleted": True}
    assert (await api.client.get(f"/containers/{one['id']}")).status_code == 404
    assert fault(await api.client.post("/containers", json={})) == (400, "name", "missing_required_parameter")


@requirement("containers:files")
async def test_files_go_in_and_out_of_a_container(api: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    one = (await made(api))["id"]
    content = bytes(range(256)) * 3000
    file = await put(api, one, "big.bin", content)
    assert file == {
        "id": file["id"],
        "object": "container.file",
        "container_id": one,
        "created_at": file["created_at"],
        "bytes": len(content),
        "path": "/mnt/data/big.bin",
        "source": "user",
    }
    place = f"/containers/{one}/files/{file['id']}"
    assert (await api.client.get(place)).json() == file
    for headers in ({}, {"range": "bytes=0-1"}, {"range": "bytes=" + "0-1," * 5000}):
        reply = await api.client.get(f"{place}/content", headers=headers)
        assert (reply.status_code, reply.content) == (200, content)
        assert "accept-ranges" not in reply.headers
    assert reply.headers["content-disposition"] == 'attachment; filename="big.bin"'
    assert reply.headers["x-content-type-options"] == "nosniff"
    uploaded = await api.client.post("/files", files={"file": ("b.txt", b"b")}, data={"purpose": "user_data"})
    by_id = await api.client.post(f"/containers/{one}/files", json={"file_id": uploaded.json()["id"]})
    assert by_id.json()["path"] == "/mnt/data/b.txt"
    gone = (await api.client.delete(place)).json()
    assert gone == {"id": file["id"], "object": "container.file.deleted", "deleted": True}
    assert (await api.client.get(place)).status_code == 404
    assert fault(await api.client.post(f"/containers/{one}/files", json={})) == (
        400,
        "file_id",
        "missing_required_parameter",
    )
    missing = await api.client.post(f"/containers/{one}/files", json={"file_id": "file-none"})
    assert missing.status_code == 404
    nameless = await api.client.post(f"/containers/{one}/files", files={"other": ("a", b"x")})
    assert fault(nameless) == (400, "file", "missing_required_parameter")
    monkeypatch.setattr("antiphon.http.containers.MOST_FILE_BYTES", 10)
    large = await api.client.post(f"/containers/{one}/files", files={"file": ("a", bytes(11))})
    assert fault(large) == (413, "file", "file_too_large")


@requirement("containers:names")
@pytest.mark.parametrize(
    ("given", "path", "plain"),
    [
        ("../../etc/passwd", "/mnt/data/passwd", "passwd"),
        ("a\r\nSet-Cookie: x", "/mnt/data/aSet-Cookie: x", "aSet-Cookie_ x"),
        ('quo"te;x', '/mnt/data/quo"te;x', "quo_te_x"),
        ("\u202egnp.exe", "/mnt/data/gnp.exe", "gnp.exe"),
        ("nul\0l", "/mnt/data/null", "null"),
        ("..", "/mnt/data/file", "file"),
    ],
)
async def test_names_that_play_tricks_reach_no_path_and_no_header(
    api: InProcess, given: str, path: str, plain: str
) -> None:
    one = (await made(api))["id"]
    held = api.service.containers
    container = next(iter(held._of["default"].values()))
    assert container.id == one
    file = held.add_file(container, given if given != ".." else "file", b"x")
    assert file.place in (path, f"/mnt/data/{path.removeprefix('/mnt/data/')}", "/mnt/data/etc/passwd")
    reply = await api.client.get(f"/containers/{one}/files/{file.id}/content")
    assert reply.headers["content-disposition"].startswith(f'attachment; filename="{plain}"')
    sent = await put(api, one, given.replace("\0", "").replace("\r\n", ""), b"y")
    assert sent["path"].startswith("/mnt/data/")
    assert ".." not in sent["path"]


@requirement("containers:tenancy")
async def test_each_verb_on_what_is_another_tenants_is_a_404_as_if_it_were_missing(tmp_path: Path) -> None:
    async with inprocess_app(settings=SMALL, store="memory") as api:
        assert api.service.store is not None
        heads = []
        for tenant in ("mine", "others"):
            secret, row = new_key(tenant, tenant, KeyRules(), 0)
            await api.service.store.add_key(row)
            heads.append({"authorization": f"Bearer {secret}"})
        mine, others = heads
        one = (await api.client.post("/containers", json={"name": "one"}, headers=mine)).json()["id"]
        place = f"/containers/{one}/files"
        file = (await api.client.post(place, files={"file": ("a", b"x")}, headers=mine)).json()["id"]
        own = (await api.client.post("/containers", json={"name": "own"}, headers=others)).json()["id"]
        calls: list[tuple[str, str]] = [
            ("GET", f"/containers/{one}"),
            ("DELETE", f"/containers/{one}"),
            ("GET", place),
            ("POST", place),
            ("GET", f"{place}/{file}"),
            ("GET", f"{place}/{file}/content"),
            ("DELETE", f"{place}/{file}"),
            ("GET", f"/containers/{own}/files/{file}"),
            ("GET", f"/containers/{own}/files/{file}/content"),
            ("DELETE", f"/containers/{own}/files/{file}"),
        ]
        for method, path in calls:
            absent = path.replace(one, new_id("cntr")).replace(file, new_id("cfile"))
            seen = []
            for asked in (path, absent):
                body = {"json": {"file_id": "file-1"}} if method == "POST" else {}
                reply = await api.client.request(method, asked, headers=others, **body)
                error = reply.json()["error"]
                seen.append((reply.status_code, error["param"], error["code"], error["type"]))
            assert seen[0] == seen[1], path
            assert seen[0][0] == 404
        assert [row["id"] for row in (await api.client.get("/containers", headers=others)).json()["data"]] == [own]
        assert (await api.client.get(f"{place}/{file}/content", headers=mine)).content == b"x"


@requirement("containers:sdk")
async def test_the_openai_package_uses_containers(api: InProcess) -> None:
    async with openai.AsyncOpenAI(api_key="k", base_url=BASE_URL, max_retries=0, http_client=api.client) as client:
        container = await client.containers.create(name="sdk")
        file = await client.containers.files.create(container.id, file=("a.txt", b"content"))
        assert [entry.id async for entry in client.containers.files.list(container.id)] == [file.id]
        assert (
            await client.containers.files.content.retrieve(file.id, container_id=container.id)
        ).content == b"content"
        await client.containers.files.delete(file.id, container_id=container.id)
        assert [entry.id async for entry in client.containers.list()] == [container.id]
        await client.containers.delete(container.id)
        with pytest.raises(openai.NotFoundError):
            await client.containers.retrieve(container.id)


@requirement("code:response:events")
async def test_the_events_of_code_stand_in_the_order_of_the_capture(boxed: InProcess) -> None:
    events = await boxed.stream(script("print('out')\n6 * 7"), tools=[AUTO], include=["code_interpreter_call.outputs"])
    assert [event["type"].removeprefix("response.") for event in events][:9] == [
        "created",
        "in_progress",
        "output_item.added",
        "code_interpreter_call.in_progress",
        "code_interpreter_call_code.delta",
        "code_interpreter_call_code.done",
        "code_interpreter_call.interpreting",
        "code_interpreter_call.completed",
        "output_item.done",
    ]
    added, item = events[2]["item"], events[8]["item"]
    assert (added["code"], added["outputs"], added["status"]) == ("", [], "in_progress")
    assert item == {
        "id": added["id"],
        "type": "code_interpreter_call",
        "status": "completed",
        "code": "print('out')\n6 * 7",
        "container_id": added["container_id"],
        "outputs": [{"type": "logs", "logs": "out\n42"}],
    }
    assert is_id("ci", item["id"])
    assert is_id("cntr", item["container_id"])
    assert events[-1]["response"]["output"][0] == item


@requirement("code:response:chain")
async def test_a_chain_goes_on_in_its_container_and_files_are_had_over_http(boxed: InProcess) -> None:
    first = await boxed.create(script("kept = 41", "open('kept.txt', 'w').write('kept')"), tools=[AUTO])
    one, two = (item for item in first["output"] if item["type"] == "code_interpreter_call")
    assert one["outputs"] is None
    assert one["container_id"] == two["container_id"]
    again = await boxed.create(
        script("print(kept + 1, open('kept.txt').read())"),
        tools=[AUTO],
        previous_response_id=first["id"],
        include=["code_interpreter_call.outputs"],
    )
    (item,) = (item for item in again["output"] if item["type"] == "code_interpreter_call")
    assert item["container_id"] == one["container_id"]
    assert item["outputs"] == [{"type": "logs", "logs": "42 kept"}]
    files = (await boxed.client.get(f"/containers/{one['container_id']}/files")).json()["data"]
    assert [(file["path"], file["source"]) for file in files] == [("/mnt/data/kept.txt", "assistant")]
    place = f"/containers/{one['container_id']}/files/{files[0]['id']}"
    assert (await boxed.client.get(f"{place}/content")).content == b"kept"
    await boxed.client.delete(place)
    gone = await boxed.create(
        script("import os; os.path.exists('kept.txt'), kept"),
        tools=[{"type": "code_interpreter", "container": one["container_id"]}],
        include=["code_interpreter_call.outputs"],
    )
    assert gone["output"][0]["outputs"] == [{"type": "logs", "logs": "(False, 41)"}]


@requirement("code:sdk")
@pytest.mark.parametrize("sandbox", ["bwrap", "none"])
async def test_streams_of_code_and_shells_are_those_of_the_package(boxed: InProcess, sandbox: str) -> None:
    if sandbox == "none":
        boxed.service.containers.sandboxes._found = NoSandboxError("There is none.")
    text = "done sandbox:/mnt/data/a.txt"
    shell = f"!CALL shell {json.dumps({'commands': ['echo one', 'exit 2']})}"
    asked = shell + "\n!THEN\n" + script("open('a.txt', 'w').write('a')", text=text)
    tools = [AUTO, {"type": "shell", "environment": {"type": "container_auto"}}]
    body = {"model": "scripted", "input": asked, "tools": tools, "stream": True}
    answer = await boxed.client.post("/responses", json={**body, "include": ["code_interpreter_call.outputs"]})
    response = strict_events(answer.content)[-1].response
    assert [item.type for item in response.output] == [
        "shell_call",
        "shell_call_output",
        "code_interpreter_call",
        "message",
    ]
    assert response.output[2].status == ("failed" if sandbox == "none" else "completed")
    told = await boxed.echo([], tools=tools, previous_response_id=response.id)
    assert told.count("There is none.") == (2 if sandbox == "none" else 0)


@requirement("code:citations")
async def test_an_answer_that_links_to_a_file_cites_it(boxed: InProcess) -> None:
    link = "sandbox:/mnt/data/plot 1.txt"
    text = f"Here is [the plot]({link}), not sandbox:/mnt/data/other.txt."
    events = await boxed.stream(script("open('plot 1.txt', 'w').write('x')", text=text), tools=[AUTO])
    call, message = events[-1]["response"]["output"]
    (part,) = message["content"]
    assert part["text"] == text
    (annotation,) = part["annotations"]
    files = (await boxed.client.get(f"/containers/{call['container_id']}/files")).json()["data"]
    assert annotation == {
        "type": "container_file_citation",
        "container_id": call["container_id"],
        "file_id": files[0]["id"],
        "filename": "plot 1.txt",
        "start_index": text.index(link),
        "end_index": text.index(link) + len(link),
    }
    (added,) = [event for event in events if event["type"] == "response.output_text.annotation.added"]
    assert (added["annotation"], added["annotation_index"]) == (annotation, 0)
    again = await boxed.create(
        f"!TEXT Once more: {link}", tools=[AUTO], previous_response_id=events[-1]["response"]["id"]
    )
    assert again["output"][0]["content"][0]["annotations"][0]["file_id"] == files[0]["id"]


@requirement("code:shell:response")
async def test_a_hosted_shell_gives_a_call_and_its_output(boxed: InProcess) -> None:
    tool = {"type": "shell", "environment": {"type": "container_auto"}}
    call = f"!CALL shell {json.dumps({'commands': ['echo one', 'exit 2']})}\n!THEN\n!TEXT done"
    events = await boxed.stream(call, tools=[tool])
    response = events[-1]["response"]
    assert [item["type"] for item in response["output"]] == ["shell_call", "shell_call_output", "message"]
    made_call, output = response["output"][:2]
    assert made_call["environment"]["type"] == "container_reference"
    assert output["call_id"] == made_call["call_id"]
    assert output["output"] == [
        {"stdout": "one\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
        {"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 2}},
    ]
    again = await boxed.create(
        f"!CALL shell {json.dumps({'commands': ['pwd']})}\n!THEN\n!TEXT done",
        tools=[tool],
        previous_response_id=response["id"],
    )
    assert again["output"][0]["environment"] == made_call["environment"]
    assert again["status"] == "completed"


@requirement("code:sandbox:missing")
async def test_without_a_sandbox_a_call_fails_and_the_response_goes_on() -> None:
    async with inprocess_app(settings=Settings(sandbox="none"), store="memory") as api:
        made_one = await api.create(script("1"), tools=[AUTO], include=["code_interpreter_call.outputs"])
        assert made_one["status"] == "completed"
        item, message = made_one["output"]
        assert (item["status"], item["error"]["code"]) == ("failed", "sandbox_unavailable")
        assert "turned off" in item["outputs"][0]["logs"]
        assert message["content"][0]["text"] == "done"
