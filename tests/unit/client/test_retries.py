"""When a request is sent again, and after how long."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from antiphon.client.retries import RetryPolicy

requirement = pytest.mark.requirement
POLICY = RetryPolicy(max_retries=2, chance=lambda: 0.0, now=lambda: datetime(2026, 11, 30, 12, 0, tzinfo=UTC))


@requirement("driver:retries")
@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_what_may_pass_is_tried_again_and_only_so_often(status: int) -> None:
    assert [POLICY.after_status(attempt, status, {}) for attempt in range(4)] == [0.5, 1.0, None, None]


@requirement("driver:retries")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_will_not_pass_is_not(status: int) -> None:
    assert POLICY.after_status(0, status, {"retry-after": "1"}) is None


@requirement("driver:retries")
def test_the_endpoint_has_the_last_word() -> None:
    assert POLICY.after_status(0, 500, {"x-should-retry": "false"}) is None
    assert POLICY.after_status(0, 400, {"x-should-retry": "true"}) == 0.5
    assert POLICY.after_status(2, 400, {"x-should-retry": "true"}) is None
    assert POLICY.after_status(0, 503, {"x-should-retry": "maybe"}) == 0.5


@requirement("driver:retries")
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "25"}, 0.025),
        ({"retry-after-ms": "25", "retry-after": "7"}, 0.025),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "120"}, 120.0),
        ({"retry-after": "121"}, None),
        ({"retry-after-ms": "120001"}, None),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:09 GMT"}, 9.0),
        ({"retry-after": "Mon, 30 Nov 2026 13:00:00 GMT"}, None),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT"}, 0.5),
        ({"retry-after": "0"}, 0.5),
        ({"retry-after": "-3"}, 0.5),
        ({"retry-after": "soon"}, 0.5),
        ({"retry-after-ms": "x", "retry-after": "3"}, 3.0),
        ({"retry-after-ms": "nan"}, 0.5),
        ({"retry-after-ms": "inf"}, None),
    ],
)
def test_it_says_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert POLICY.after_status(0, 429, headers) == seconds


@requirement("driver:retries")
def test_pauses_double_up_to_a_bound_and_are_spread() -> None:
    assert [POLICY.pause(attempt) for attempt in (0, 1, 2, 3, 4, 5, 5000)] == [0.5, 1, 2, 4, 8, 8, 8]
    assert RetryPolicy(chance=lambda: 1.0).pause(1) == 0.75
    assert all(0.375 <= RetryPolicy().pause(0) <= 0.5 for _ in range(50))
    assert RetryPolicy(max_retries=0).after_failure(0) is None
    assert [POLICY.after_failure(attempt) for attempt in range(3)] == [0.5, 1.0, None]
