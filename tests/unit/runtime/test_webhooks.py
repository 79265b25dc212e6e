"""Endpoints, signatures, times and the events themselves, without a network."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from antiphon.errors import ConfigurationError
from antiphon.protocol.json import loads
from antiphon.protocol.response import Response
from antiphon.runtime.observer import Observer
from antiphon.runtime.webhooks import EVENTS, ForwardClock, Schedule, Webhooks, read_endpoints, sign
from antiphon.settings import Settings, WebhookConfig

URL = "https://hooks.example/a?token=hidden"
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()


def made(*tables: WebhookConfig) -> Webhooks:
    return Webhooks(Settings(webhooks=tables), None, Observer())


@pytest.mark.requirement("webhooks:settings")
@pytest.mark.parametrize(
    ("url", "secret", "events", "told"),
    [
        ("hooks.example", "s", (), "url"),
        ("ftp://hooks.example/", "s", (), "url"),
        ("https://user:hidden@hooks.example/", "s", (), "url"),
        (URL, "", (), "secret"),
        (URL, "  ", (), "secret"),
        (URL, "whsec_", (), "whsec_"),
        (URL, "whsec_not base64!", (), "whsec_"),
        (URL, "s", ("response.completed", "response.created"), "response.created"),
    ],
)
def test_what_cannot_be_used_ends_the_start_and_is_named(
    url: str, secret: str, events: tuple[str, ...], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told) as caught:
        made(WebhookConfig("https://other.example/", "s"), WebhookConfig(url, secret, events))
    assert "Table 2" in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.requirement("webhooks:settings")
def test_two_tables_have_two_urls() -> None:
    with pytest.raises(ConfigurationError, match="another"):
        made(WebhookConfig(URL, "a", ("response.failed",)), WebhookConfig(URL, "b", ("response.completed",)))


@pytest.mark.requirement("webhooks:settings")
def test_the_name_of_an_endpoint_stays_and_tells_nothing() -> None:
    (endpoint,) = read_endpoints((WebhookConfig(URL, "a"),))
    (again,) = read_endpoints((WebhookConfig(URL, SECRET, ("response.failed",)),))
    assert endpoint.name == again.name
    assert "hooks" not in endpoint.name
    assert (endpoint.events, again.secret) == (frozenset(EVENTS), b"0123456789abcdef01234567")


@pytest.mark.requirement("webhooks:events")
@pytest.mark.parametrize("status", ["completed", "failed", "incomplete", "cancelled"])
def test_an_end_in_the_background_is_an_event_for_whoever_wants_it(status: str) -> None:
    hooks = made(
        WebhookConfig("https://all.example/", "s"),
        WebhookConfig("https://some.example/", "s", ("response.completed", "response.cancelled")),
    )
    found = hooks.deliveries(Response("resp_1", 1000, "m", status=status, background=True))
    assert len(found) == (2 if status in ("completed", "cancelled") else 1)
    assert len({delivery.id for delivery in found}) == len(found)
    for delivery in found:
        event = loads(delivery.body)
        assert delivery.id.startswith("evt_")
        assert isinstance(event.pop("created_at"), int)
        assert event == {
            "id": delivery.id,
            "object": "event",
            "type": f"response.{status}",
            "data": {"id": "resp_1"},
        }


@pytest.mark.requirement("webhooks:events")
def test_foreground_responses_and_servers_without_endpoints_have_none() -> None:
    ended = Response("resp_1", 1000, "m", status="completed")
    assert made(WebhookConfig(URL, "s")).deliveries(ended) == []
    assert made().deliveries(Response("resp_1", 1000, "m", status="completed", background=True)) == []


@pytest.mark.requirement("webhooks:signature")
def test_the_signature_is_that_of_standard_webhooks() -> None:
    (endpoint,) = read_endpoints((WebhookConfig(URL, SECRET),))
    at = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
    expected = Webhook(SECRET).sign("evt_1", at, '{"ä":1}')
    assert sign(endpoint.secret, "evt_1", str(int(at.timestamp())), '{"ä":1}'.encode()) == expected


@pytest.mark.requirement("webhooks:retries")
def test_the_times_between_attempts_double_and_end_within_three_days() -> None:
    schedule = Schedule()
    first = [schedule.delay(0) for _ in range(200)]
    assert 3.75 <= min(first) < max(first) <= 5.0
    assert all(5 * 2**n * 0.75 <= schedule.delay(n) <= 5 * 2**n for n in range(12))
    assert schedule.delay(10_000) <= 6 * 3600
    assert schedule.total == 72 * 3600


class Hands:
    """A wall clock and a monotonic one, both set by hand."""

    def __init__(self) -> None:
        self.wall = 1_000_000.0
        self.steady = 50.0

    def pass_seconds(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


@pytest.mark.requirement("webhooks:clock")
def test_a_wall_clock_that_is_set_back_does_not_stop_the_time_of_retries() -> None:
    hands = Hands()
    clock = ForwardClock(lambda: hands.wall, lambda: hands.steady)
    assert clock() == 1_000_000.0
    hands.pass_seconds(10)
    assert clock() == 1_000_010.0
    hands.wall -= 86_400
    assert clock() == 1_000_010.0
    hands.pass_seconds(5)
    assert clock() == 1_000_015.0
    hands.wall += 2 * 86_400
    assert clock() == hands.wall
