"""Keys, hosts and origins; probes and metrics."""

from __future__ import annotations

import ipaddress

import pytest

from antiphon import __version__
from antiphon.access import is_loopback
from antiphon.http.app import create_app
from antiphon.http.telemetry import Telemetry
from antiphon.settings import Settings
from support.inprocess import InProcess, inprocess_app
from support.sockets import manual_socket
from support.unsteady import UnsteadyStore, served

KEYS = Settings(api_key=("sk-one", "sk-two"))
BODY = {"model": "scripted", "input": "hi"}


@pytest.mark.requirement("auth:open", "subset:M43")
@pytest.mark.parametrize("header", [None, "Bearer sk-local", "anything", ""])
async def test_without_a_configured_key_any_or_no_authorization_passes(api: InProcess, header: str | None):
    headers = {} if header is None else {"Authorization": header}
    assert (await api.client.post("/responses", json=BODY, headers=headers)).status_code == 200


@pytest.mark.requirement("auth:key", "subset:M43")
@pytest.mark.parametrize(
    ("header", "status", "code"),
    [
        ("Bearer sk-one", 200, None),
        ("bearer sk-two", 200, None),
        ("sk-one", 200, None),
        (None, 401, "missing_api_key"),
        ("", 401, "missing_api_key"),
        ("Bearer sk-three", 401, "invalid_api_key"),
        ("Bearer ", 401, "invalid_api_key"),
        ("Basic sk-one", 401, "invalid_api_key"),
        ("Bearer ' OR 1=1 --", 401, "invalid_api_key"),
    ],
)
async def test_with_a_key_a_missing_or_wrong_one_is_a_401(header: str | None, status: int, code: str | None):
    headers = {} if header is None else {"Authorization": header}
    async with inprocess_app(settings=KEYS) as api:
        for request in (
            api.client.post("/responses", json=BODY, headers=headers),
            api.client.get("/models", headers=headers),
            api.client.get("http://127.0.0.1/metrics", headers=headers),
        ):
            reply = await request
            assert reply.status_code == status
            if code is not None:
                assert reply.json()["error"]["code"] == code
                assert reply.headers["www-authenticate"] == "Bearer"
                assert "sk-" not in reply.text
        for path in ("/health", "/ready"):
            assert (await api.client.get(f"http://127.0.0.1{path}")).status_code == 200


@pytest.mark.requirement("auth:host")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:8080"}, 200),
        ({"Host": "[::1]:8080"}, 200),
        ({"Host": "127.0.0.2"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "allowed.example", "Origin": "https://allowed.example"}, 200),
    ],
)
async def test_without_a_key_only_names_of_this_machine_or_allowed_ones_are_answered(headers, status: int):
    async with inprocess_app(settings=Settings(allowed_host=("allowed.example",))) as api:
        reply = await api.client.post("/responses", json=BODY, headers=headers)
        assert reply.status_code == status


@pytest.mark.requirement("auth:host:malformed")
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://["},
        {"Origin": "http://[::1"},
        {"Origin": "http://[x]/"},
        {"Origin": ""},
        {"Origin": "http://" + "a" * 60_000},
        {"Host": "["},
        {"Host": ""},
        {"Host": "127.0.0.1" + "." * 60_000},
        {"Host": "[" + "1:" * 30_000},
    ],
)
async def test_malformed_and_endless_names_are_refused_like_any_other(api: InProcess, headers: dict[str, str]):
    reply = await api.client.post("/responses", json=BODY, headers=headers)
    assert reply.status_code == 403
    assert reply.json()["error"]["type"] == "permission_error"


@pytest.mark.requirement("auth:host:malformed")
def test_names_of_others_are_not_kept_and_endless_ones_cost_no_work(monkeypatch: pytest.MonkeyPatch):
    assert not hasattr(is_loopback, "cache_info")
    parsed: list[str] = []
    monkeypatch.setattr(ipaddress, "ip_address", parsed.append)
    assert not is_loopback("1" * 256)
    assert parsed == []


@pytest.mark.requirement("auth:key:bytes")
async def test_a_key_beyond_ascii_is_compared_by_its_bytes():
    async with inprocess_app(settings=Settings(api_key=("clé-ключ",))) as api:
        for key, status in (("clé-ключ", 200), ("cle-ключ", 401)):
            headers = {b"Authorization": b"Bearer " + key.encode()}
            assert (await api.client.get("/models", headers=headers)).status_code == status


@pytest.mark.requirement("ops:root", "subset:M43")
async def test_the_root_says_what_answers_there_and_needs_no_key():
    async with inprocess_app(settings=KEYS) as api:
        reply = await api.client.get("http://127.0.0.1/")
        assert reply.status_code == 200
        assert {"name": "antiphon", "version": __version__, "api": "/v1"}.items() <= reply.json().items()


@pytest.mark.requirement("auth:host")
@pytest.mark.parametrize("settings", [Settings(allowed_host=("*",)), Settings(api_key=("k",))])
async def test_a_key_or_a_wildcard_lifts_the_check_of_names(settings: Settings):
    async with inprocess_app(settings=settings) as api:
        headers = {"Host": "evil.example", "Authorization": "Bearer k"}
        assert (await api.client.post("/responses", json=BODY, headers=headers)).status_code == 200


@pytest.mark.requirement("auth:host")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("x", False),
        ("", False),
    ],
)
def test_loopback_names_are_told_from_others(name: str, expected: bool):
    assert is_loopback(name) is expected


@pytest.mark.requirement("ops:probes", "subset:M45")
async def test_health_is_the_process_and_ready_is_the_model(api: InProcess):
    root = "http://127.0.0.1"
    assert (await api.client.get(f"{root}/health")).json() == {"status": "ok"}
    assert (await api.client.get(f"{root}/ready")).status_code == 200
    (engine,) = api.service.registry.engines
    await engine.close()
    assert (await api.client.get(f"{root}/health")).status_code == 200
    assert (await api.client.get(f"{root}/ready")).status_code == 503
    reply = await api.client.post("/responses", json=BODY)
    assert reply.status_code == 503
    assert reply.headers["retry-after"]
    assert (await api.client.get(f"{root}/version")).json()["version"]


@pytest.mark.requirement("ops:metrics")
async def test_metrics_count_responses_tokens_and_requests_and_hold_no_ids(api: InProcess):
    answer = await api.create("!COUNT 5")
    await api.create("!COUNT 9", max_output_tokens=4)
    await api.client.get(f"/responses/{answer['id']}")
    text = (await api.client.get("http://127.0.0.1/metrics")).text
    for line in (
        'antiphon:request_success_total{finished_reason="completed",model_name="scripted"} 1.0',
        'antiphon:request_success_total{finished_reason="max_output_tokens",model_name="scripted"} 1.0',
        'antiphon:generation_tokens_total{model_name="scripted"} 9.0',
        'antiphon:num_requests_running{model_name="scripted"} 0.0',
        'antiphon:time_to_first_token_seconds_count{model_name="scripted"} 2.0',
        'http_requests_total{handler="/responses",method="POST",status="2xx"} 2.0',
        'http_requests_total{handler="/responses/{response_id}",method="GET",status="2xx"} 1.0',
    ):
        assert line in text, line
    assert "resp_" not in text


@pytest.mark.requirement("ops:metrics:bounded")
async def test_labels_name_the_model_that_generates_and_not_what_a_client_calls_it():
    async with inprocess_app(settings=Settings(model=("scripted",), alias=("*=scripted",))) as api:
        for number in range(5):
            await api.create("hi", model=f"invented-{number}")
        text = (await api.client.get("http://127.0.0.1/metrics")).text
        assert "invented" not in text
        assert 'finished_reason="completed",model_name="scripted"} 5.0' in text


@pytest.mark.requirement("ops:metrics:websockets")
async def test_open_websockets_are_shown(api: InProcess):
    telemetry = Telemetry()
    app = create_app(api.service, telemetry)

    def shown() -> bool:
        return "antiphon:num_websockets_open 2.0" in telemetry.exposition().decode()

    async with manual_socket(app), manual_socket(app):
        assert shown()
    assert "antiphon:num_websockets_open 0.0" in telemetry.exposition().decode()


@pytest.mark.requirement("ops:metrics:rings")
async def test_rings_that_did_not_get_through_are_counted_where_there_is_a_doorbell():
    class Deaf(UnsteadyStore):
        missed_rings = 7  # type: ignore[assignment]

    for shared, told in ((True, "antiphon:store_missed_rings_total 7.0\n"), (False, "")):
        telemetry = Telemetry()
        async with served(Deaf(shared=shared)) as api:
            create_app(api.service, telemetry)
            text = telemetry.exposition().decode()
            assert told in text
            assert ("missed_rings" in text) == shared


@pytest.mark.requirement("ops:metrics:engine")
def test_deaths_and_restarts_of_an_engine_are_counted():
    telemetry = Telemetry()
    for event in ("loading", "ready", "died", "restarted"):
        telemetry.engine_event("small", event, {"reason": "killed"})
    text = telemetry.exposition().decode()
    for event in ("loading", "ready", "died", "restarted"):
        assert f'antiphon:engine_events_total{{event="{event}",model_name="small"}} 1.0' in text
