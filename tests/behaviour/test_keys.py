"""Keys of the store: who is let in, as whom, and how much of what."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import msgspec
import pytest

from antiphon.errors import UnavailableError
from antiphon.http.app import create_app
from antiphon.runtime import keys
from antiphon.runtime.keys import new_key
from antiphon.runtime.limits import KeyRules
from antiphon.settings import Settings
from antiphon.store.base import ApiKey, StoreLimits
from antiphon.store.memory import MemoryStore
from support.inprocess import BASE_URL, InProcess, inprocess_app, sse_events
from support.sockets import manual_socket

BODY = {"model": "scripted", "input": "hi"}


async def add_key(api: InProcess, tenant: str = "acme", **rules: Any) -> tuple[dict[str, str], ApiKey]:
    """The headers of a new key, and its row."""
    secret, key = new_key("test", tenant, KeyRules(**rules), 1000)
    store = api.service.store
    assert store is not None
    await store.add_key(key)
    return {"Authorization": f"Bearer {secret}"}, key


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a store said is believed a second time."""
    monkeypatch.setattr(keys, "FRESH_SECONDS", 0.0)


@pytest.mark.requirement("keys:any", "api:keys")
async def test_with_the_first_key_of_the_store_every_request_needs_one(api: InProcess, no_memory: None):
    assert (await api.client.get("/models")).status_code == 200
    headers, _ = await add_key(api)
    for path in ("/models", "http://127.0.0.1/metrics", "http://127.0.0.1/version", "/nowhere"):
        reply = await api.client.get(path)
        assert reply.status_code == 401
        assert reply.json()["error"]["code"] == "missing_api_key"
        assert (await api.client.get(path, headers=headers)).status_code in (200, 404)
    for path in ("", "/health", "/ready"):
        assert (await api.client.get(f"http://127.0.0.1{path}")).status_code == 200


@pytest.mark.requirement("keys:revoked")
async def test_a_revoked_key_is_refused_and_the_last_one_leaves_nobody_let_in(api: InProcess, no_memory: None):
    headers, key = await add_key(api)
    assert (await api.client.get("/models", headers=headers)).status_code == 200
    assert api.service.store is not None
    assert await api.service.store.revoke_key(key.id, 2000)
    reply = await api.client.get("/models", headers=headers)
    assert reply.status_code == 401
    assert reply.json()["error"]["code"] == "invalid_api_key"
    assert (await api.client.get("/models")).status_code == 401


@pytest.mark.requirement("keys:revoked", "keys:limits:requests")
async def test_an_open_websocket_is_held_to_its_key_with_every_request(api: InProcess, no_memory: None):
    headers, key = await add_key(api, requests_per_minute=2)
    async with manual_socket(create_app(api.service), headers) as socket:
        for _ in range(2):
            assert (await socket.response("hi"))["status"] == "completed"
        assert (await socket.refused("hi"))["status"] == 429
        assert api.service.store is not None
        assert await api.service.store.revoke_key(key.id, 2000)
        assert (await socket.refused("hi"))["status"] == 401


@pytest.mark.requirement("keys:forms")
async def test_every_form_of_a_credential_goes_one_way(api: InProcess, no_memory: None):
    headers, _ = await add_key(api, models=("none",), requests_per_minute=100)
    secret = headers["Authorization"].removeprefix("Bearer ")
    forms = (
        {"Authorization": f"Bearer {secret}"},
        {"Authorization": f"bearer  {secret}"},
        {"Authorization": secret},
        {"x-api-key": secret},
        {"api-key": secret},
        {"Authorization": "", "X-Api-Key": secret},
    )
    for number, form in enumerate(forms, 1):
        reply = await api.client.post("/responses", json=BODY, headers=form)
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")
        assert reply.headers["x-ratelimit-remaining-requests"] == str(100 - number)
    wrong = (
        {"Authorization": f"Basic {secret}"},
        {"Authorization": "Bearer wrong", "x-api-key": secret},
        {"x-api-key": "wrong", "api-key": secret},
        {"x-api-key": f"Bearer {secret}"},
        {"Authorization": f"Bearer {secret[:-1]}"},
        {"Authorization": f"Bearer {secret}x"},
        {"Cookie": f"key={secret}"},
    )
    for form in wrong:
        reply = await api.client.post("/responses", json=BODY, headers=form)
        assert reply.status_code == 401, form
        assert "sk-" not in reply.text


@pytest.mark.requirement("keys:tenant", "store:tenant")
async def test_keys_of_a_tenant_share_what_they_make_and_others_do_not_see_it(api: InProcess):
    first, _ = await add_key(api, "acme")
    second, _ = await add_key(api, "acme")
    other, _ = await add_key(api, "other")
    made = (await api.client.post("/responses", json=BODY, headers=first)).json()
    path = f"/responses/{made['id']}"
    assert (await api.client.get(path, headers=second)).json() == made
    assert (await api.client.get(path, headers=other)).status_code == 404
    assert (await api.client.delete(path, headers=other)).status_code == 404
    assert (await api.client.delete(path, headers=second)).status_code == 200


@pytest.mark.requirement("keys:tenant")
async def test_keys_of_the_settings_and_of_the_store_are_let_in_side_by_side():
    async with inprocess_app(settings=Settings(api_key=("sk-one",))) as api:
        ours, _ = await add_key(api, "acme")
        made = (await api.client.post("/responses", json=BODY, headers=ours)).json()
        configured = {"Authorization": "Bearer sk-one"}
        assert (await api.client.get("/models", headers=configured)).status_code == 200
        assert (await api.client.get(f"/responses/{made['id']}", headers=configured)).status_code == 404
        assert (await api.client.get("/models")).status_code == 401


@pytest.mark.requirement("keys:file")
async def test_the_keys_of_a_file_are_let_in(tmp_path: Any):
    file = tmp_path / "keys"
    file.write_bytes("# ours\n\nsk-one   # laptop\n  sk-two\t# desk\r\nclé#1\n".encode())
    async with inprocess_app(settings=Settings(api_key_file=str(file), api_key=("sk-three",))) as api:
        for key in ("sk-one", "sk-two", "clé#1", "sk-three"):
            headers = {b"Authorization": b"Bearer " + key.encode()}
            assert (await api.client.get("/models", headers=headers)).status_code == 200
        for key in ("# ours", "ours", "sk-one   # laptop", "sk-four"):
            assert (await api.client.get("/models", headers={"Authorization": key})).status_code == 401


@pytest.mark.requirement("keys:timing")
async def test_a_key_is_compared_to_every_configured_one_by_digest(monkeypatch: pytest.MonkeyPatch):
    compared: list[tuple[bytes, bytes]] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr("antiphon.http.auth.hmac.compare_digest", compare)
    async with inprocess_app(settings=Settings(api_key=("sk-one", "sk-two", "sk-three"))) as api:
        for key, status in (("sk-one", 200), ("sk-three", 200), ("sk-four", 401), ("", 401)):
            compared.clear()
            headers = {"Authorization": f"Bearer {key}"}
            assert (await api.client.get("/models", headers=headers)).status_code == status
            assert len(compared) == 3
            assert {len(side) for pair in compared for side in pair} == {32}


@pytest.mark.requirement("keys:closed")
async def test_a_store_that_cannot_be_read_lets_nobody_in(api: InProcess, monkeypatch: pytest.MonkeyPatch):
    async def fails(*_: object) -> Any:
        raise UnavailableError("The store cannot be used now.")

    store = api.service.store
    monkeypatch.setattr(store, "keys", fails)
    monkeypatch.setattr(store, "find_key", fails)
    for headers in ({}, {"Authorization": "Bearer sk-antiphon-x"}, {"Authorization": "any"}):
        reply = await api.client.get("/models", headers=headers)
        assert reply.status_code == 503
        assert reply.headers["retry-after"]
    assert (await api.client.get("http://127.0.0.1/health")).status_code == 200


@pytest.mark.requirement("keys:closed")
async def test_a_server_that_others_reach_asks_for_a_key_even_if_its_last_one_is_gone():
    async with inprocess_app(settings=Settings(host="0.0.0.0")) as api:
        assert (await api.client.get("/models")).status_code == 401
        assert (await api.client.get("/models", headers={"Authorization": "any"})).status_code == 401
    async with inprocess_app(settings=Settings(host="0.0.0.0", allow_unauthenticated=True)) as api:
        assert (await api.client.get("/models")).status_code == 200


@pytest.mark.requirement("keys:closed")
async def test_without_persistence_keys_that_are_there_are_asked_for():
    registers = MemoryStore(StoreLimits())
    secret, key = new_key("test", "acme", KeyRules(), 1000)
    await registers.add_key(key)
    async with inprocess_app(settings=Settings(responses_store_max_entries=0)) as api:
        transport = httpx2.ASGITransport(create_app(api.service, None, registers))
        async with httpx2.AsyncClient(transport=transport, base_url=BASE_URL) as client:
            assert (await client.get("/models")).status_code == 401
            headers = {"Authorization": f"Bearer {secret}"}
            assert (await client.post("/responses", json=BODY, headers=headers)).status_code == 200


@pytest.mark.requirement("keys:limits:models")
async def test_a_key_sees_and_uses_its_models_only():
    settings = Settings(
        model=("scripted",),
        models=(),
        alias=("open=scripted",),
    )
    async with inprocess_app(settings=settings) as api:
        ours, _ = await add_key(api, models=("open",))
        none, _ = await add_key(api, models=("gone",))
        every, _ = await add_key(api)
        listed = {
            name: [model["id"] for model in (await api.client.get("/models", headers=headers)).json()["data"]]
            for name, headers in (("ours", ours), ("none", none), ("every", every))
        }
        assert listed == {"ours": ["scripted", "open"], "none": [], "every": ["scripted", "open"]}
        for headers, status in ((ours, 200), (none, 404), (every, 200)):
            for name in ("scripted", "open"):
                reply = await api.client.post("/responses", json={**BODY, "model": name}, headers=headers)
                assert reply.status_code == status
                assert (await api.client.get(f"/models/{name}", headers=headers)).status_code == status
        unknown = await api.client.post("/responses", json={**BODY, "model": "never"}, headers=none)
        refused = await api.client.post("/responses", json={**BODY, "model": "open"}, headers=none)
        assert unknown.status_code == refused.status_code == 404
        assert unknown.text.replace("never", "open") == refused.text
        assert "scripted" not in refused.text
        for path in ("/responses/input_tokens", "/responses/compact"):
            reply = await api.client.post(path, json={**BODY, "model": "open"}, headers=none)
            assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.requirement("keys:limits:requests", "keys:limits:headers")
async def test_requests_above_the_limit_are_a_429_that_says_when(api: InProcess):
    headers, _ = await add_key(api, requests_per_minute=2, tokens_per_minute=1000)
    for left in (1, 0):
        reply = await api.client.post("/responses", json=BODY, headers=headers)
        assert reply.status_code == 200
        assert reply.headers["x-ratelimit-limit-requests"] == "2"
        assert reply.headers["x-ratelimit-remaining-requests"] == str(left)
        assert re.fullmatch(r"(\d+m)?[\d.]+m?s", reply.headers["x-ratelimit-reset-requests"])
        assert reply.headers["x-ratelimit-limit-tokens"] == "1000"
    reply = await api.client.post("/responses", json={**BODY, "stream": True}, headers=headers)
    assert reply.status_code == 429
    error = reply.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert 25 <= int(reply.headers["retry-after"]) <= 30
    assert 25_000 < int(reply.headers["retry-after-ms"]) <= 30_000
    assert reply.headers["x-ratelimit-remaining-requests"] == "0"
    # What generates nothing is no request.
    assert (await api.client.get("/models", headers=headers)).status_code == 200
    other, _ = await add_key(api)
    reply = await api.client.post("/responses", json=BODY, headers=other)
    assert reply.status_code == 200
    assert not [name for name in reply.headers if name.startswith("x-ratelimit")]


@pytest.mark.requirement("keys:limits:tokens")
@pytest.mark.parametrize("how", ["whole", "stream", "background", "compact"])
async def test_tokens_are_counted_however_they_were_generated(api: InProcess, how: str):
    headers, key = await add_key(api, tokens_per_minute=5000)
    body: dict[str, Any] = {"model": "scripted", "input": "!COUNT 100"}
    path = "/responses"
    if how == "stream":
        body["stream"] = True
    elif how == "background":
        body.update(background=True, stream=True)
    elif how == "compact":
        path = "/responses/compact"
    reply = await api.client.post(path, json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    if how in ("stream", "background"):
        usage = sse_events(reply.content)[-1]["response"]["usage"]
    else:
        usage = reply.json()["usage"]
    assert usage["total_tokens"] > 0
    reply = await api.client.get("/models", headers=headers)
    left = int(reply.headers["x-ratelimit-remaining-tokens"])
    # A little comes back while the test runs.
    assert 5000 - usage["total_tokens"] <= left < 5000
    assert key.id not in reply.text


@pytest.mark.requirement("keys:limits:tokens")
async def test_a_key_without_tokens_left_is_refused_until_some_are_there(api: InProcess):
    headers, _ = await add_key(api, tokens_per_minute=10)
    body = {"model": "scripted", "input": "!COUNT 100"}
    assert (await api.client.post("/responses", json=body, headers=headers)).status_code == 200
    reply = await api.client.post("/responses", json=body, headers=headers)
    assert reply.status_code == 429
    assert "tokens per minute" in reply.json()["error"]["message"]
    assert reply.headers["x-ratelimit-remaining-tokens"] == "0"
    assert int(reply.headers["retry-after"]) > 60


@pytest.mark.requirement("keys:limits:unknown")
async def test_a_key_of_a_newer_version_is_not_let_in_without_its_limits(api: InProcess):
    _, key = await add_key(api)
    secret, newer = new_key("newer", "acme", KeyRules(), 1000)
    assert api.service.store is not None
    await api.service.store.add_key(msgspec.structs.replace(newer, limits=b'{"requests_per_day":5}'))
    reply = await api.client.get("/models", headers={"Authorization": f"Bearer {secret}"})
    assert reply.status_code == 500
    assert "limits of this API key" in reply.json()["error"]["message"]
    assert key.id not in reply.text
