"""When a request is sent again, and after how long (operations C1). Pure: the caller waits."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from msgspec import Struct

__all__ = ["MAX_WAIT", "RetryPolicy"]

MAX_WAIT: Final = 120.0
"""The longest wait in seconds that an endpoint may ask for; one that asks for more is not asked again."""

_FIRST: Final = 0.5
_LONGEST: Final = 8.0
_JITTER: Final = 0.25
_STATUSES: Final = frozenset({408, 409, 429})


def _now() -> datetime:
    return datetime.now(UTC)


class RetryPolicy(Struct, frozen=True):
    """How often a request is sent again: `max_retries` times.

    It is, after a connection that failed, and after the statuses 408, 409, 429 and from 500 on, unless the endpoint
    says otherwise in `x-should-retry`. `chance` gives numbers from 0 to 1 and `now` the time.
    """

    max_retries: int = 2
    chance: Callable[[], float] = random.random
    now: Callable[[], datetime] = _now

    def after_failure(self, attempt: int) -> float | None:
        """Seconds to wait after a connection that failed in that attempt, the first being 0; None for no other one."""
        return self.pause(attempt) if attempt < self.max_retries else None

    def after_status(self, attempt: int, status: int, headers: Mapping[str, str]) -> float | None:
        """Seconds to wait after such an answer, whose headers are by lower-case name; None for no other attempt."""
        if attempt >= self.max_retries:
            return None
        word = headers.get("x-should-retry")
        if word == "false" or (word != "true" and status not in _STATUSES and status < 500):
            return None
        asked = self._asked(headers)
        if asked is None or asked <= 0:
            return self.pause(attempt)
        return asked if asked <= MAX_WAIT else None

    def pause(self, attempt: int) -> float:
        """Seconds to wait where nobody says how long: 0.5, doubled each time, at most 8, and up to a quarter less."""
        return min(_FIRST * 2.0 ** min(attempt, 10), _LONGEST) * (1 - _JITTER * self.chance())

    def _asked(self, headers: Mapping[str, str]) -> float | None:
        milliseconds = _number(headers.get("retry-after-ms"))
        if milliseconds is not None:
            return milliseconds / 1000
        word = headers.get("retry-after")
        seconds = _number(word)
        if seconds is not None or word is None:
            return seconds
        try:
            date = parsedate_to_datetime(word)
        except ValueError:
            return None
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - self.now().timestamp()


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return None if math.isnan(number) else number
