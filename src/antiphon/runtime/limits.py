"""What a key may use, and how much of it a minute (issue 3, Keys and tenants; operations C1).

Each limit is a bucket that starts full and fills evenly: n a minute are n at once, then one every 60/n seconds. Tokens
are known only when a response has ended: a request is let in while any are left, and what it used is taken out at its
end, if need be below zero. Time is the monotonic clock's. The buckets lie in this process: behind several replicas
each one counts for itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from antiphon.engines.base import Engine
from antiphon.engines.embedding import Embedder
from antiphon.engines.registry import Registry, Served
from antiphon.errors import InternalError, InvalidRequestError, NotFoundError, RateLimitError
from antiphon.protocol.json import quoted
from antiphon.store.base import Scope

__all__ = ["KeyLimits", "KeyRules", "Rate", "go_duration"]

M = TypeVar("M", Engine, Embedder)

MINUTE = 60.0

Positive = Annotated[int, Meta(ge=1)]


class KeyRules(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The limits of one key, as they are kept with it; None is no limit.

    `models` are names or aliases: what counts is the model behind a name, so that an alias is no way around.
    """

    models: tuple[str, ...] | None = None
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None


class Rate(Struct, frozen=True):
    """Where a key stands: `kind` is `requests` or `tokens`, `reset_seconds` the time until all are there again."""

    kind: str
    limit: int
    remaining: int
    reset_seconds: float


class _Bucket:
    def __init__(self, kind: str, limit: int, now: float) -> None:
        self.kind = kind
        self.limit = limit
        self.level = float(limit)
        self._at = now

    def fill(self, now: float) -> None:
        self.level = min(float(self.limit), self.level + (now - self._at) * self.limit / MINUTE)
        self._at = now

    def seconds_until(self, level: float) -> float:
        return max(0.0, (level - self.level) * MINUTE / self.limit)

    def rate(self) -> Rate:
        return Rate(self.kind, self.limit, max(0, math.floor(self.level)), self.seconds_until(self.limit))


class _Standing:
    """The rules of a key, and its buckets: requests first."""

    def __init__(self, encoded: bytes, rules: KeyRules, now: float) -> None:
        self.encoded = encoded
        self.models = rules.models
        self.requests = _bucket("requests", rules.requests_per_minute, now)
        self.tokens = _bucket("tokens", rules.tokens_per_minute, now)
        self.buckets = [bucket for bucket in (self.requests, self.tokens) if bucket is not None]


class KeyLimits:
    """Limits by key. A key without limits, and a request without a key, is let in as it is.

    It knows those keys of the store that have limits and were used since the start, and so is as large as the store's
    list of keys at most. `clock` gives seconds that only go forward.
    """

    def __init__(self, registry: Registry, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._clock = clock
        self._known: dict[str, _Standing] = {}

    def learn(self, key_id: str, limits: bytes) -> None:
        """Take in the limits that a key was found with; its buckets stay as they are while those are the same.

        Raises:
            InternalError: they cannot be read, as after a step back to an older version; the key is of no use then.
        """
        if limits == b"{}":
            self._known.pop(key_id, None)
            return
        known = self._known.get(key_id)
        if known is not None and known.encoded == limits:
            return
        try:
            rules = msgspec.json.decode(limits, type=KeyRules)
        except msgspec.MsgspecError:
            raise InternalError("The limits of this API key cannot be read by this version of the server.") from None
        self._known[key_id] = _Standing(limits, rules, self._clock())

    def resolve(self, scope: Scope, model: str | None) -> tuple[str, Engine]:
        """The name that an answer carries and the engine behind it, if the key may use it.

        Raises:
            InvalidRequestError: no name, and no default model is set.
            NotFoundError: `model_not_found`, for an unknown model and for one that the key may not use alike.
        """
        return self._resolved(scope, model, self._registry.resolve)

    def resolve_embedder(self, scope: Scope, model: str | None) -> tuple[str, Embedder]:
        """The same for a model that turns texts into vectors.

        Raises:
            InvalidRequestError: no name, or a model that makes no vectors.
            NotFoundError: `model_not_found`, as above.
        """
        return self._resolved(scope, model, self._registry.resolve_embedder)

    def require(self, scope: Scope, name: str) -> None:
        """Check that the key may use a model of that name, of whichever kind.

        Raises:
            NotFoundError: `model_not_found`, as above.
        """
        model, allowed = self._registry.find(name), self._allowed(scope)
        if allowed is None:
            if model is None:
                raise self._registry.unknown(name)
        elif model not in allowed:
            raise self._not_found(scope, name)

    def _resolved(
        self, scope: Scope, name: str | None, resolve: Callable[[str | None], tuple[str, M]]
    ) -> tuple[str, M]:
        allowed = self._allowed(scope)
        if allowed is None:
            return resolve(name)
        try:
            found, model = resolve(name)
        except InvalidRequestError:
            # What this model cannot do is told only to whoever may use it.
            if not name or self._registry.find(name) in allowed:
                raise
            raise self._not_found(scope, name) from None
        except NotFoundError:
            raise self._not_found(scope, name or "") from None
        if model not in allowed:
            raise self._not_found(scope, found)
        return found, model

    def _not_found(self, scope: Scope, name: str) -> NotFoundError:
        names = ", ".join(self.names(scope)) or "none of this server's models"
        return NotFoundError(
            f"The model '{quoted(name)}' does not exist, or this key may not use it. It may use: {names}.",
            param="model",
            code="model_not_found",
        )

    def names(self, scope: Scope) -> list[str]:
        """The names to list for a key: those of models that it may use."""
        names = self._registry.names()
        allowed = self._allowed(scope)
        return names if allowed is None else [name for name in names if self._registry.find(name) in allowed]

    def admit(self, scope: Scope) -> None:
        """Let a request in, which counts as one; one that is refused does not count.

        Raises:
            RateLimitError: the key has no requests or no tokens left now; `retry_after` says how long.
        """
        standing = self._known.get(scope.key)
        if standing is None:
            return
        now = self._clock()
        refused: _Bucket | None = None
        seconds = 0.0
        for bucket in standing.buckets:
            bucket.fill(now)
            if bucket.level < 1.0 and bucket.seconds_until(1.0) >= seconds:
                refused, seconds = bucket, bucket.seconds_until(1.0)
        if refused is not None:
            raise RateLimitError(
                f"Rate limit reached for this key on {refused.kind} per minute: limit {refused.limit}. "
                f"Please try again in {go_duration(seconds)}.",
                retry_after=seconds,
            )
        if standing.requests is not None:
            standing.requests.level -= 1.0

    def spent(self, scope: Scope, tokens: int) -> None:
        """Take out what a response used, in and out, when it has ended."""
        standing = self._known.get(scope.key)
        if standing is not None and standing.tokens is not None:
            standing.tokens.fill(self._clock())
            standing.tokens.level -= tokens

    def rates(self, scope: Scope) -> list[Rate]:
        """Where the key of a request stands now; empty for one without such limits."""
        standing = self._known.get(scope.key)
        if standing is None:
            return []
        now = self._clock()
        for bucket in standing.buckets:
            bucket.fill(now)
        return [bucket.rate() for bucket in standing.buckets]

    def _allowed(self, scope: Scope) -> list[Served] | None:
        """The models that a key may use, without those that this server has no longer, or not yet."""
        standing = self._known.get(scope.key)
        if standing is None or standing.models is None:
            return None
        found = (self._registry.find(name) for name in standing.models)
        return [model for model in found if model is not None]


def _bucket(kind: str, limit: int | None, now: float) -> _Bucket | None:
    return None if limit is None else _Bucket(kind, limit, now)


def go_duration(seconds: float) -> str:
    """A time as Go writes it, to the millisecond and rounded up: `120ms`, `1s`, `6m0s` (operations C1)."""
    milliseconds = math.ceil(round(seconds * 1000, 6))
    if milliseconds < 1000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    minutes, milliseconds = divmod(milliseconds, 60_000)
    text = f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".")
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{text}s"
    return f"{minutes}m{text}s" if minutes else f"{text}s"
