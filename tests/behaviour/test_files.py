"""`/v1/files`: uploads, their limits, whose they are, and what of them reaches a header."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from antiphon.errors import InvalidRequestError, NotFoundError
from antiphon.http.app import create_app
from antiphon.runtime.files import Files, Upload
from antiphon.runtime.keys import new_key
from antiphon.runtime.limits import KeyRules
from antiphon.settings import Settings
from antiphon.store.base import Scope
from antiphon.store.files import CHUNK_BYTES, FilePage
from support.asgi import ManualExchange
from support.inprocess import InProcess, inprocess_app
from support.raw_http import raw_connection
from support.server import running_server

requirement = pytest.mark.requirement

DEFAULT = Scope("default")
ODD = bytes(range(256)) * 3 + b"\r\n--boundary\r\n"


async def send(
    api: InProcess, content: bytes = b"x", name: str = "a.txt", headers: dict[str, str] | None = None, **fields: str
) -> httpx2.Response:
    """The answer to an upload."""
    form = {"purpose": "user_data", **fields}
    return await api.client.post("/files", files={"file": (name, content)}, data=form, headers=headers)


async def sent(api: InProcess, content: bytes = b"x", name: str = "a.txt", **fields: Any) -> dict[str, Any]:
    """The object of an upload that is taken."""
    reply = await send(api, content, name, **fields)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def raw(api: InProcess, *parts: str, boundary: str = "b", kind: str | None = None) -> httpx2.Response:
    """The answer to a form that is written by hand, each part with its head."""
    body = "".join(f"--{boundary}\r\n{part}\r\n" for part in parts) + f"--{boundary}--\r\n"
    content_type = kind or f"multipart/form-data; boundary={boundary}"
    return await api.client.post("/files", content=body.encode(), headers={"content-type": content_type})


def part(head: str, body: str = "x") -> str:
    return f"Content-Disposition: form-data; {head}\r\n\r\n{body}"


def fault(reply: httpx2.Response) -> tuple[int, str | None, str | None]:
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return reply.status_code, error["param"], error["code"]


async def held(api: InProcess) -> int:
    """How many files the store has, whole or not."""
    assert api.service.store is not None
    return (await api.service.store.status()).files


@requirement("files:create")
async def test_a_file_comes_back_as_it_was_sent(api: InProcess):
    made = await sent(api, ODD, "odd.bin", purpose="vision")
    identity = made["id"]
    assert identity.startswith("file-")
    assert made == {
        "id": identity,
        "object": "file",
        "bytes": len(ODD),
        "created_at": made["created_at"],
        "expires_at": None,
        "filename": "odd.bin",
        "purpose": "vision",
        "status": "processed",
        "status_details": None,
    }
    assert (await api.client.get(f"/files/{identity}")).json() == made
    reply = await api.client.get(f"/files/{identity}/content")
    assert reply.content == ODD
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-disposition"] == 'attachment; filename="odd.bin"'


@requirement("files:create")
@pytest.mark.parametrize("size", [CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 9 * CHUNK_BYTES + 5])
async def test_files_of_many_chunks_are_whole(api: InProcess, size: int):
    content = os.urandom(size)
    made = await sent(api, content)
    assert made["bytes"] == size
    assert (await api.client.get(f"/files/{made['id']}/content")).content == content


@requirement("files:routes")
async def test_the_routes_are_there_without_v1_too(api: InProcess):
    base = "http://127.0.0.1"
    made = (await api.client.post(f"{base}/files", files={"file": ("a", b"x")}, data={"purpose": "batch"})).json()
    assert (await api.client.get(f"{base}/files")).json()["data"] == [made]
    assert (await api.client.get(f"{base}/files/{made['id']}")).json() == made
    assert (await api.client.get(f"{base}/files/{made['id']}/content")).content == b"x"
    deleted = await api.client.delete(f"{base}/files/{made['id']}")
    assert deleted.json() == {"id": made["id"], "object": "file", "deleted": True}


@requirement("files:list")
async def test_files_are_listed_newest_first_in_pages_and_by_purpose(api: InProcess):
    made = [await sent(api, name=f"{number}", purpose=("batch", "evals")[number % 2]) for number in range(5)]
    ids = [one["id"] for one in made]
    listed = (await api.client.get("/files")).json()
    assert listed["object"] == "list"
    assert listed["data"] == made[::-1]
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == (ids[4], ids[0], False)

    async def page(**query: Any) -> tuple[list[str], bool]:
        found = (await api.client.get("/files", params=query)).json()
        return [one["id"] for one in found["data"]], found["has_more"]

    assert await page(order="asc", limit=2) == (ids[:2], True)
    assert await page(order="asc", limit=3, after=ids[1]) == (ids[2:], False)
    assert await page(purpose="evals") == ([ids[3], ids[1]], False)
    assert await page(purpose="never heard of") == ([], False)
    # Whoever deletes while listing goes on from a file that is gone.
    await api.client.delete(f"/files/{ids[2]}")
    assert await page(after=ids[2]) == ([ids[1], ids[0]], False)
    for query in ({"limit": 0}, {"limit": 10_001}, {"order": "up"}, {"after": "../x"}):
        reply = await api.client.get("/files", params=query)
        assert fault(reply) == (400, next(iter(query)), "invalid_value")


@requirement("files:delete")
async def test_a_deleted_file_is_gone(api: InProcess):
    made = await sent(api)
    assert (await api.client.delete(f"/files/{made['id']}")).status_code == 200
    assert await held(api) == 0
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        reply = await api.client.request(method, f"/files/{made['id']}{path}")
        assert fault(reply) == (404, "id", "not_found")
        for odd in ("file-1", "file_" + made["id"][5:], "..%2f..%2fetc", made["id"] + "0", "%00"):
            assert (await api.client.request(method, f"/files/{odd}{path}")).status_code == 404


@requirement("files:purpose")
async def test_a_purpose_is_one_of_those_that_there_are(api: InProcess):
    for purpose in ("assistants", "batch", "fine-tune", "vision", "user_data", "evals"):
        assert (await sent(api, purpose=purpose))["purpose"] == purpose
    assert fault(await send(api, purpose="fun")) == (400, "purpose", "invalid_value")
    unnamed = await raw(api, part('name="file"; filename="a"'))
    assert (unnamed.status_code, unnamed.json()["purpose"]) == (200, "user_data")


@requirement("files:expiry")
async def test_a_file_expires_after_the_seconds_that_its_upload_names(api: InProcess):
    anchor = {"expires_after[anchor]": "created_at"}
    made = await sent(api, **anchor, **{"expires_after[seconds]": "3600"})
    assert made["expires_at"] == made["created_at"] + 3600
    for seconds in ("3599", "2592001", "-1", "1e4", "", "9" * 40):
        reply = await send(api, **anchor, **{"expires_after[seconds]": seconds})
        assert fault(reply) == (400, "expires_after[seconds]", "invalid_value")
    assert fault(await send(api, **anchor)) == (400, "expires_after[seconds]", "invalid_value")
    reply = await send(api, **{"expires_after[anchor]": "now", "expires_after[seconds]": "3600"})
    assert fault(reply) == (400, "expires_after[anchor]", "invalid_value")
    reply = await send(api, **{"expires_after[seconds]": "3600"})
    assert fault(reply) == (400, "expires_after[anchor]", "invalid_value")
    assert await held(api) == 1


@requirement("files:malformed")
async def test_what_is_no_upload_is_a_400_and_leaves_nothing(api: InProcess):
    assert fault(await send(api, b"")) == (400, "file", "empty_file")
    assert fault(await raw(api, part('name="purpose"', "batch"))) == (400, "file", "missing_required_parameter")
    assert fault(await raw(api, part('name="file"'))) == (400, "file", "missing_required_parameter")
    two = part('name="file"; filename="a"'), part('name="other"; filename="b"')
    assert fault(await raw(api, *two))[::2] == (400, "invalid_form")
    assert fault(await raw(api, part('nome="file"')))[::2] == (400, "invalid_form")
    assert fault(await raw(api, part('name="purpose"', "x" * 70_000)))[::2] == (400, "invalid_form")
    many = [part(f'name="f{number}"') for number in range(40)]
    assert fault(await raw(api, *many))[::2] == (400, "invalid_form")
    assert fault(await raw(api, part('name="a"\r\nX-Long: ' + "y" * 100_000)))[::2] == (400, "invalid_form")
    for kind in ("application/json", "multipart/form-data", 'multipart/form-data; boundary=""', "", "text/plain"):
        assert fault(await raw(api, part('name="a"'), kind=kind or " "))[::2] == (400, "invalid_content_type")
    reply = await api.client.post(
        "/files", content=b"not a form", headers={"content-type": "multipart/form-data; boundary=b"}
    )
    assert fault(reply)[::2] == (400, "invalid_form")
    assert await held(api) == 0


@requirement("files:malformed", "files:interrupted")
@pytest.mark.parametrize("end", ["", "\r\n--b", "\r\n--b\r\n" + part('name="purpose"', "bat")])
async def test_a_form_that_breaks_off_leaves_no_temporary_file(api: InProcess, end: str):
    headers = {"content-type": "multipart/form-data; boundary=b"}
    body = (
        "--b\r\n" + part('name="purpose"', "batch") + "\r\n--b\r\n" + part('name="file"; filename="a"', "x" * 2_000_000)
    )
    gc.disable()
    try:
        before = len(list(Path("/proc/self/fd").iterdir()))
        reply = await api.client.post("/files", content=(body + end).encode(), headers=headers)
        assert fault(reply)[::2] == (400, "invalid_form")
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    finally:
        gc.enable()
    assert await held(api) == 0


@requirement("files:malformed")
@pytest.mark.parametrize("charset", ["undefined", "hex", "utf-16", "idna"])
async def test_the_charset_of_a_form_is_not_heeded(api: InProcess, charset: str):
    parts = part('name="file"; filename="å.txt"'), part('name="purpose"', "batch")
    reply = await raw(api, *parts, kind=f"multipart/form-data; boundary=b; charset={charset}")
    assert reply.status_code == 200, reply.text
    assert reply.json()["filename"] == "å.txt"


NAMES = {
    "../../etc/passwd": ("passwd", 'attachment; filename="passwd"'),
    "C:\\\\temp\\\\x.txt": ("x.txt", 'attachment; filename="x.txt"'),
    "..": ("file", 'attachment; filename="file"'),
    "": ("file", 'attachment; filename="file"'),
    "a\x00b.txt": ("ab.txt", 'attachment; filename="ab.txt"'),
    "a\tb\x7f.txt": ("ab.txt", 'attachment; filename="ab.txt"'),
    "a\u202etxt.exe": ("atxt.exe", 'attachment; filename="atxt.exe"'),
    "a\u2028b": ("ab", 'attachment; filename="ab"'),
    "a;b=c.txt": ("a;b=c.txt", "attachment; filename=\"a_b_c.txt\"; filename*=UTF-8''a%3Bb%3Dc.txt"),
    "blåbær.pdf": ("blåbær.pdf", "attachment; filename=\"bl_b_r.pdf\"; filename*=UTF-8''bl%C3%A5b%C3%A6r.pdf"),
}


@requirement("files:names")
@pytest.mark.parametrize("name", NAMES)
async def test_a_name_reaches_no_header_as_it_was_sent(api: InProcess, name: str):
    parts = part(f'name="file"; filename="{name}"'), part('name="purpose"', "batch")
    made = (await raw(api, *parts)).json()
    filename, header = NAMES[name]
    assert made["filename"] == filename
    reply = await api.client.get(f"/files/{made['id']}/content")
    assert reply.headers["content-disposition"] == header


@requirement("files:names")
async def test_quotes_and_line_ends_that_are_escaped_do_not_end_a_header(api: InProcess):
    made = await sent(api, name='a"; filename="evil.html\r\nSet-Cookie: x=1')
    header = (await api.client.get(f"/files/{made['id']}/content")).headers
    assert "set-cookie" not in header
    assert header["content-disposition"].startswith('attachment; filename="a')
    assert header["content-disposition"].count('"') == 2
    assert not set(header["content-disposition"]) & set("\r\n\\")
    long = await sent(api, name="n" * 4000 + ".pdf")
    assert long["filename"] == "n" * 251 + ".pdf"


@requirement("files:size")
@pytest.mark.parametrize("declared", [True, False])
async def test_a_file_that_is_too_large_is_refused_while_it_comes_in(declared: bool):
    async with inprocess_app(settings=Settings(max_file_bytes=1000)) as api:
        assert (await send(api, b"x" * 1000)).status_code == 200
        assert fault(await send(api, b"x" * 1001)) == (413, "file", "file_too_large")

        async def endless() -> AsyncIterator[bytes]:
            yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
            for _ in range(1000):
                yield b"x" * 65_536

        headers = {"content-type": "multipart/form-data; boundary=b"}
        if declared:
            headers["content-length"] = "65536000"
        reply = await api.client.post("/files", content=endless(), headers=headers)
        assert fault(reply) == (413, "file", "file_too_large")
        assert await held(api) == 1


@requirement("files:limits")
async def test_a_tenant_has_room_for_so_many_files():
    async with inprocess_app(settings=Settings(max_files=2, max_files_bytes=100)) as api:
        first = await sent(api, b"x" * 60)
        assert fault(await send(api, b"x" * 41)) == (400, None, "file_limit_reached")
        await sent(api, b"x" * 40)
        assert fault(await send(api)) == (400, None, "file_limit_reached")
        await api.client.delete(f"/files/{first['id']}")
        await sent(api, b"x" * 60)
        assert await held(api) == 2


@requirement("files:persistence-off")
async def test_without_a_store_there_are_no_files():
    async with inprocess_app(settings=Settings(responses_store_max_entries=0)) as api:
        assert fault(await send(api)) == (400, None, "response_storage_disabled")
        assert fault(await api.client.get("/files")) == (400, None, "response_storage_disabled")


@requirement("files:tenants")
async def test_a_file_is_its_tenants_in_every_verb(api: InProcess):
    assert api.service.store is not None
    keys: list[dict[str, str]] = []
    for name in ("owner", "other"):
        secret, key = new_key(name, name, KeyRules(), 1000)
        await api.service.store.add_key(key)
        keys.append({"Authorization": f"Bearer {secret}"})
    owner, other = keys
    made = (await send(api, b"the owner's", headers=owner)).json()
    gone = (await send(api, b"the owner's", headers=owner)).json()["id"]
    await api.client.delete(f"/files/{gone}", headers=owner)
    assert (await api.client.get("/files", headers=other)).json()["data"] == []
    assert (await api.client.get("/files", params={"after": gone}, headers=other)).json()["data"] == []
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        foreign = await api.client.request(method, f"/files/{made['id']}{path}", headers=other)
        missing = await api.client.request(method, f"/files/{gone}{path}", headers=other)
        assert foreign.status_code == missing.status_code == 404
        assert foreign.text.replace(made["id"], "ID") == missing.text.replace(gone, "ID")
        assert set(foreign.headers) == set(missing.headers)
    reply = await api.client.get(f"/files/{made['id']}/content", headers=owner)
    assert reply.content == b"the owner's"
    assert (await api.client.get(f"/files/{made['id']}/content")).status_code == 401


@requirement("files:interrupted")
async def test_an_upload_that_fails_in_the_store_leaves_nothing(api: InProcess):
    store = api.service.store
    assert store is not None
    files = Files(store, api.service.settings)
    first = asyncio.Event()

    async def stuck(_: int) -> bytes:
        if first.is_set():
            await asyncio.Event().wait()
        first.set()
        return b"x" * 10

    upload = asyncio.create_task(files.create(DEFAULT, Upload("a", "batch", 100, None, stuck)))
    await first.wait()
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    assert await held(api) == 0

    async def failing(_: int) -> bytes:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        await files.create(DEFAULT, Upload("a", "batch", 100, None, failing))
    assert await held(api) == 0


@requirement("files:interrupted")
async def test_a_client_that_leaves_in_the_middle_leaves_nothing(tmp_path: Path):
    path = tmp_path / "a.db"
    with running_server(["--model", "scripted", "--store", str(path)]) as server:
        base_url = server.base_url
        head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        with raw_connection(base_url) as connection:
            connection.send(
                b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n"
                b"Content-Type: multipart/form-data; boundary=b\r\n\r\n" + head + b"x" * 2_000_000
            )
        async with httpx2.AsyncClient(base_url=base_url) as client:
            reply = await client.post("/files", files={"file": ("a", b"y")}, data={"purpose": "batch"})
            assert reply.status_code == 200
            assert [one["bytes"] for one in (await client.get("/files")).json()["data"]] == [1]
    with closing(sqlite3.connect(path)) as connection:
        for table in ("files", "file_chunks"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,)


@requirement("files:content")
async def test_content_is_for_who_asks_with_a_bound(api: InProcess):
    made = await sent(api, ODD, "odd.bin")
    files = Files(api.service.store, api.service.settings)
    found = await files.content(DEFAULT, made["id"], len(ODD))
    assert (found.id, found.filename, found.bytes, found.data) == (made["id"], "odd.bin", len(ODD), ODD)
    with pytest.raises(InvalidRequestError) as caught:
        await files.content(DEFAULT, made["id"], len(ODD) - 1)
    assert caught.value.code == "file_too_large"
    with pytest.raises(NotFoundError):
        await files.content(Scope("other"), made["id"], len(ODD))


@requirement("files:left")
async def test_content_is_read_no_further_when_its_client_has_gone(api: InProcess, monkeypatch: pytest.MonkeyPatch):
    made = await sent(api, b"x" * 9 * CHUNK_BYTES)
    store = api.service.store
    assert store is not None
    reads: list[int] = []
    chunks = store.file_chunks

    async def once(scope: Scope, file_id: str, first: int, most: int) -> Sequence[bytes]:
        reads.append(first)
        if first:
            await asyncio.Event().wait()
        return await chunks(scope, file_id, first, most)

    monkeypatch.setattr(store, "file_chunks", once)
    exchange = ManualExchange(create_app(api.service), None, f"/v1/files/{made['id']}/content", "GET")
    assert (await exchange.next())["status"] == 200
    assert (await exchange.next())["body"] == b"x" * CHUNK_BYTES
    exchange.leave()
    assert [message["more_body"] for message in await exchange.finished()] == [True] * 3
    assert reads == [0, 4]


@requirement("files:turns")
async def test_what_reads_or_lists_much_lets_others_have_their_turn(api: InProcess):
    made = await sent(api, b"x" * 40 * CHUNK_BYTES)
    for number in range(250):
        await sent(api, name=str(number))
    files = Files(api.service.store, api.service.settings)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(count())
    assert (await files.content(DEFAULT, made["id"], 40 * CHUNK_BYTES)).bytes == 40 * CHUNK_BYTES
    assert turns >= 8
    turns = 0
    found, more = await files.list(DEFAULT, FilePage(250))
    assert (len(found), more, found[0].filename, found[-1].filename) == (250, True, "249", "0")
    assert turns >= 1
    found, more = await files.list(DEFAULT, FilePage(300, newest_first=False))
    assert ([file.filename for file in found], more) == (["a.txt", *map(str, range(250))], False)
    other.cancel()
