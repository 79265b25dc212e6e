"""Web pages of other origins: what a browser is told, and that none may ask unless a setting says so."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.errors import ConfigurationError
from antiphon.http.app import create_app
from antiphon.http.cors import Origins
from antiphon.settings import Settings
from support.inprocess import InProcess, inprocess_app
from support.sockets import manual_socket

requirement = pytest.mark.requirement

PAGE = "https://chat.example"
PREFLIGHT = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
}
BODY = {"model": "scripted", "input": "hi"}
ALLOWED = Settings(allowed_origins=(PAGE, "http://10.0.0.1:3000/"))
EVERY = Settings(allowed_origins=("*",), api_key=("k",))


async def asked(api: InProcess, origin: str | None, **headers: str) -> Any:
    given = headers if origin is None else {"Origin": origin, **headers}
    return await api.client.post("/responses", json=BODY, headers=given)


def cross_origin(answer: Any) -> set[str]:
    return {name for name in answer.headers if name.startswith("access-control-")}


@requirement("subset:M44", "api:cors")
async def test_without_the_setting_no_page_of_another_origin_may_ask() -> None:
    async with inprocess_app(settings=Settings(api_key=("k",))) as api:
        preflight = await api.client.options("/responses", headers={**PREFLIGHT, "Authorization": "Bearer k"})
        assert preflight.status_code == 405
        answer = await asked(api, PAGE, Authorization="Bearer k")
        assert answer.status_code == 200
        assert not cross_origin(preflight) | cross_origin(answer)
        assert "vary" not in answer.headers
    async with inprocess_app() as api:
        assert (await asked(api, PAGE)).json()["error"]["code"] == "origin_not_allowed"


@requirement("subset:M44", "api:cors")
async def test_an_allowed_page_may_ask_and_read_the_answer() -> None:
    async with inprocess_app(settings=ALLOWED) as api:
        for origin in (PAGE, "http://10.0.0.1:3000"):
            preflight = await api.client.options("/responses", headers={**PREFLIGHT, "Origin": origin})
            assert (preflight.status_code, preflight.content) == (200, b"")
            assert preflight.headers["access-control-allow-origin"] == origin
            assert preflight.headers["access-control-allow-headers"] == PREFLIGHT["Access-Control-Request-Headers"]
            assert "POST" in preflight.headers["access-control-allow-methods"].split(", ")
            answer = await asked(api, origin)
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == origin
            assert "x-request-id" in answer.headers["access-control-expose-headers"].split(", ")
            assert answer.headers["vary"] == preflight.headers["vary"] == "Origin"


@requirement("subset:M44", "api:cors")
async def test_errors_and_streams_can_be_read_too() -> None:
    async with inprocess_app(settings=ALLOWED) as api:
        headers = {"Origin": PAGE}
        error = await api.client.post("/responses", json={**BODY, "model": "none"}, headers=headers)
        stream = await api.client.post("/responses", json={**BODY, "stream": True}, headers=headers)
        assert (error.status_code, stream.status_code) == (404, 200)
        for answer in (error, stream):
            assert answer.headers["access-control-allow-origin"] == PAGE


@requirement("api:cors")
@pytest.mark.parametrize("origin", ["https://evil.example", "https://chat.example.evil", "http://chat.example", "null"])
async def test_any_other_page_is_refused(origin: str) -> None:
    async with inprocess_app(settings=ALLOWED) as api:
        preflight = await api.client.options("/responses", headers={**PREFLIGHT, "Origin": origin})
        assert preflight.status_code == 403
        answer = await asked(api, origin)
        assert answer.json()["error"]["code"] == "origin_not_allowed"
        assert not cross_origin(preflight) | cross_origin(answer)
        assert answer.headers["vary"] == "Origin"
        # What is no browser of another page has no origin.
        assert not cross_origin(await asked(api, None))


@requirement("subset:M44", "api:cors")
async def test_a_star_allows_every_page_and_a_key_is_still_needed() -> None:
    async with inprocess_app(settings=EVERY) as api:
        for origin in (PAGE, "null"):
            preflight = await api.client.options("/responses", headers={**PREFLIGHT, "Origin": origin})
            assert preflight.status_code == 200
            assert preflight.headers["access-control-allow-origin"] == "*"
            refused = await asked(api, origin)
            assert refused.status_code == 401
            assert refused.headers["access-control-allow-origin"] == "*"
            assert (await asked(api, origin, Authorization="Bearer k")).status_code == 200


@requirement("api:cors")
async def test_a_page_may_reach_a_local_network_and_open_a_websocket() -> None:
    async with inprocess_app(settings=ALLOWED) as api:
        asked_for = {**PREFLIGHT, "Access-Control-Request-Private-Network": "true"}
        preflight = await api.client.options("/responses", headers=asked_for)
        assert preflight.headers["access-control-allow-private-network"] == "true"
        async with manual_socket(create_app(api.service), {"Origin": PAGE}) as socket:
            assert (await socket.response("hi"))["status"] == "completed"


@requirement("api:cors")
async def test_names_of_headers_that_are_none_are_not_repeated() -> None:
    async with inprocess_app(settings=ALLOWED) as api:
        for requested in ("a" * 5000, "x: y", '"'):
            headers = {**PREFLIGHT, "Access-Control-Request-Headers": requested}
            answer = await api.client.options("/responses", headers=headers)
            assert answer.status_code == 200
            assert "access-control-allow-headers" not in answer.headers


@requirement("api:cors")
def test_several_origins_may_stand_in_one_value_and_what_is_none_is_refused() -> None:
    origins = Origins(("https://A.example, https://b.example",))
    assert origins.allows("https://a.example")
    assert origins.allows("https://b.example")
    for wrong in ("chat.example", "https://chat.example/path", "https://", ""):
        with pytest.raises(ConfigurationError, match="is no origin"):
            Origins((wrong,))
