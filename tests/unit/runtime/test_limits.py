"""Limits of a key: models, and buckets of requests and tokens."""

from __future__ import annotations

import re

import pytest

from antiphon.engines.registry import Registry
from antiphon.engines.scripted import ScriptedEngine
from antiphon.errors import InternalError, NotFoundError, RateLimitError
from antiphon.runtime.limits import KeyLimits, Rate, go_duration
from antiphon.store.base import Scope
from support.stores import Clock

OURS = Scope("ours", "key_1")
OTHER = Scope("ours", "key_2")


@pytest.fixture
def clock() -> Clock:
    return Clock()


def engine(name: str) -> ScriptedEngine:
    made = ScriptedEngine(1000)
    made.name = name
    return made


@pytest.fixture
def limits(clock: Clock) -> KeyLimits:
    small, large = engine("small"), engine("large")
    return KeyLimits(Registry([small, large], {}, {"gpt": small, "*": large}, "large"), clock)


def admitted(limits: KeyLimits, scope: Scope) -> int:
    """How many requests are let in at once."""
    for count in range(1000):
        try:
            limits.admit(scope)
        except RateLimitError:
            return count
    return 1000


@pytest.mark.requirement("keys:limits:requests")
def test_n_requests_a_minute_are_n_at_once_and_then_one_every_part_of_it(limits: KeyLimits, clock: Clock) -> None:
    limits.learn(OURS.key, b'{"requests_per_minute":6}')
    assert admitted(limits, OURS) == 6
    clock.now += 9.9
    assert admitted(limits, OURS) == 0
    clock.now += 0.2
    assert admitted(limits, OURS) == 1
    clock.now += 3600
    assert admitted(limits, OURS) == 6


@pytest.mark.requirement("keys:limits:requests")
def test_a_refusal_says_how_long_and_counts_for_nothing(limits: KeyLimits, clock: Clock) -> None:
    limits.learn(OURS.key, b'{"requests_per_minute":2}')
    assert admitted(limits, OURS) == 2
    for _ in range(50):
        with pytest.raises(RateLimitError) as refusal:
            limits.admit(OURS)
    assert refusal.value.code == "rate_limit_exceeded"
    assert refusal.value.retry_after == pytest.approx(30.0)
    assert "limit 2" in refusal.value.message
    assert "in 30s" in refusal.value.message
    clock.now += refusal.value.retry_after
    limits.admit(OURS)


@pytest.mark.requirement("keys:limits:tokens")
def test_tokens_are_taken_at_the_end_and_looked_at_before_the_next_begin(limits: KeyLimits, clock: Clock) -> None:
    limits.learn(OURS.key, b'{"tokens_per_minute":600}')
    limits.admit(OURS)
    limits.spent(OURS, 900)
    with pytest.raises(RateLimitError) as refusal:
        limits.admit(OURS)
    assert refusal.value.retry_after == pytest.approx(30.1)
    assert "tokens per minute" in refusal.value.message
    assert limits.rates(OURS) == [Rate("tokens", 600, 0, 90.0)]
    clock.now += 30.2
    limits.admit(OURS)


@pytest.mark.requirement("keys:limits:headers")
def test_a_key_is_told_what_is_left_and_when_all_of_it_is_there_again(limits: KeyLimits, clock: Clock) -> None:
    limits.learn(OURS.key, b'{"requests_per_minute":60,"tokens_per_minute":6000}')
    limits.admit(OURS)
    limits.spent(OURS, 1000)
    assert limits.rates(OURS) == [Rate("requests", 60, 59, 1.0), Rate("tokens", 6000, 5000, 10.0)]
    clock.now += 0.5
    assert limits.rates(OURS) == [Rate("requests", 60, 59, 0.5), Rate("tokens", 6000, 5050, 9.5)]
    clock.now += 60
    assert limits.rates(OURS) == [Rate("requests", 60, 60, 0.0), Rate("tokens", 6000, 6000, 0.0)]


@pytest.mark.requirement("keys:limits:requests")
def test_keys_count_apart_and_one_without_limits_is_let_in(limits: KeyLimits) -> None:
    limits.learn(OURS.key, b'{"requests_per_minute":1}')
    limits.learn(OTHER.key, b"{}")
    assert admitted(limits, OURS) == 1
    assert admitted(limits, OTHER) == 1000
    assert admitted(limits, Scope("default")) == 1000
    limits.spent(OTHER, 10**9)
    assert limits.rates(OTHER) == []


@pytest.mark.requirement("keys:limits:requests")
def test_being_looked_up_again_gives_a_key_nothing_back(limits: KeyLimits) -> None:
    for _ in range(3):
        limits.learn(OURS.key, b'{"requests_per_minute":2}')
        limits.learn(OTHER.key, b'{"requests_per_minute":2}')
        admitted(limits, OURS)
    assert admitted(limits, OURS) == 0
    limits.learn(OURS.key, b'{"requests_per_minute":3}')
    assert admitted(limits, OURS) == 3


@pytest.mark.requirement("keys:limits:models")
def test_a_key_may_use_its_models_by_any_name_and_no_others(limits: KeyLimits) -> None:
    limits.learn(OURS.key, b'{"models":["small"]}')
    for name in ("small", "gpt"):
        assert limits.resolve(OURS, name)[1].name == "small"
        assert limits.resolve(OTHER, name)[1].name == "small"
    assert limits.names(OURS) == ["small", "gpt"]
    assert limits.names(OTHER) == ["small", "large", "gpt"]
    messages: set[str] = set()
    for name in ("large", "anything", None):
        with pytest.raises(NotFoundError) as refusal:
            limits.resolve(OURS, name)
        assert (refusal.value.code, refusal.value.param) == ("model_not_found", "model")
        assert "It may use: small, gpt." in refusal.value.message
        messages.add(re.sub(r"'.*?'", "", refusal.value.message))
    assert len(messages) == 1


@pytest.mark.requirement("keys:limits:models")
def test_a_key_for_a_model_that_is_not_served_may_use_none() -> None:
    small = engine("small")
    limits = KeyLimits(Registry([small], {}, {}, None))
    limits.learn(OURS.key, b'{"models":["gone"]}')
    assert limits.names(OURS) == []
    for name in ("small", "gone"):
        with pytest.raises(NotFoundError, match="none of this server's models"):
            limits.resolve(OURS, name)


@pytest.mark.requirement("keys:limits:unknown")
@pytest.mark.parametrize("encoded", [b'{"requests_per_day":1}', b'{"requests_per_minute":0}', b"[]", b""])
def test_limits_that_cannot_be_read_are_not_taken_for_none(limits: KeyLimits, encoded: bytes) -> None:
    with pytest.raises(InternalError):
        limits.learn(OURS.key, encoded)


@pytest.mark.requirement("keys:limits:headers")
@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0004, "1ms"),
        (0.12, "120ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (59.9996, "1m0s"),
        (360, "6m0s"),
        (90.25, "1m30.25s"),
        (3600, "1h0m0s"),
        (100_000.001, "27h46m40.001s"),
    ],
)
def test_times_are_written_as_go_writes_them(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text
