"""Who may ask: API keys, and without one the addresses and origins that a loopback server answers to."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from antiphon.access import MAX_NAME, configured_keys, is_loopback
from antiphon.errors import AuthenticationError, PermissionDeniedError
from antiphon.http.cors import Origins
from antiphon.runtime.keys import KeyRing, digest
from antiphon.runtime.limits import KeyLimits
from antiphon.settings import Settings
from antiphon.store.base import Scope

__all__ = ["TENANT", "Authenticator", "RawHeaders", "credential"]

RawHeaders = Iterable[tuple[bytes, bytes]]
"""Headers as ASGI has them: lower-case names, and the bytes of the values."""

TENANT = "default"
"""The tenant of requests without a key, and of the keys that the settings name."""

_OPEN = Scope(TENANT)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MAX_ORIGIN = MAX_NAME + len("https://[]:65535")


class Authenticator:
    """One way in for every form of credential (M43; faults B3 34), over HTTP and WebSocket alike.

    A credential is needed where the settings name a key, where the store has one, revoked ones included, and where
    anyone else than this machine could ask and the settings do not allow that. Else anything in `Authorization`
    passes, and the `Host` and `Origin` must be ones of this machine or allowed by a setting: any web page could
    otherwise reach the server through its visitor's browser.
    """

    def __init__(self, settings: Settings, keys: KeyRing, limits: KeyLimits) -> None:
        self.learn(configured_keys(settings))
        self._keys = keys
        self._limits = limits
        local = is_loopback(settings.host)
        self._needs_key = bool(self._digests) or not (local or settings.allow_unauthenticated)
        self._guards_names = local and "*" not in settings.allowed_host
        self._origins = Origins(settings.allowed_origins)
        self._names = {name.lower() for name in (*settings.allowed_host, settings.host, *_LOOPBACK)}

    def learn(self, keys: Iterable[bytes]) -> None:
        """Take in the keys of the settings, in place of those before; where one is needed that stays so."""
        self._digests = [digest(key) for key in keys]

    async def authenticate(self, headers: RawHeaders) -> Scope:
        """The scope of a request with these headers: its tenant, and the id of its key.

        Whoever keeps a connection for long asks again for each request on it, so that a revoked key stops working
        there too; an answer costs a look-up in the store once a second at most.

        Raises:
            AuthenticationError: no key, a wrong one or a revoked one, where one is needed.
            PermissionDeniedError: without a key, a host or an origin that is not allowed.
            UnavailableError: the store cannot be read now, so that no one can say who asks.
        """
        found: dict[bytes, bytes] = {}
        for name, value in headers:
            if name in _READ:
                found.setdefault(name, value)
        secret = _credential(found)
        if secret is not None:
            scope = self._configured(secret) or await self._stored(secret)
            if scope is not None:
                return scope
        if self._needs_key or await self._keys.any():
            raise _refusal(secret)
        if self._guards_names:
            self._check_names(found)
        return _OPEN

    def _configured(self, secret: bytes) -> Scope | None:
        if not self._digests:
            return None
        given = digest(secret)
        # Against all of them, without an early end: the time says nothing of which one, or how much of it, was right.
        matches = [hmac.compare_digest(given, known) for known in self._digests]
        return Scope(TENANT, given.hex()[:16]) if any(matches) else None

    async def _stored(self, secret: bytes) -> Scope | None:
        key = await self._keys.find(secret)
        if key is None:
            return None
        self._limits.learn(key.id, key.limits)
        return Scope(key.tenant, key.id)

    def _check_names(self, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host")
        if host is not None and not self._allowed(_host_name(host.decode("latin-1"))):
            raise PermissionDeniedError(
                "This server answers only to the names of its own machine. Allow another with --allowed-host.",
                code="host_not_allowed",
            )
        origin = headers.get(b"origin")
        named = None if origin is None else origin.decode("latin-1")
        if named is not None and not self._origins.allows(named) and not self._allowed(_origin_name(named)):
            raise PermissionDeniedError(
                "Requests from this origin are not allowed. Allow it with --allowed-origins, or set an API key.",
                code="origin_not_allowed",
            )

    def _allowed(self, name: str) -> bool:
        return len(name) <= MAX_NAME and (name.lower() in self._names or is_loopback(name))


_CREDENTIALS = (b"authorization", b"x-api-key", b"api-key")
_READ = frozenset({*_CREDENTIALS, b"host", b"origin"})


def credential(headers: RawHeaders) -> bytes | None:
    """The secret that a request carries: `Authorization`, with or without `Bearer`, else `x-api-key`, else `api-key`.

    Only the first of these that is there counts, right or wrong.
    """
    return _credential(dict(reversed(list(headers))))


def _credential(found: Mapping[bytes, bytes]) -> bytes | None:
    for name in _CREDENTIALS:
        value = found.get(name)
        if value:
            scheme, _, rest = value.partition(b" ")
            bearer = name == b"authorization" and scheme.lower() == b"bearer"
            return rest.strip() if bearer else value
    return None


def _refusal(secret: bytes | None) -> AuthenticationError:
    if secret is None:
        return AuthenticationError(
            "You didn't provide an API key. Send it in an Authorization header: 'Authorization: Bearer KEY'.",
            code="missing_api_key",
        )
    return AuthenticationError("Incorrect API key provided.", code="invalid_api_key")


def _host_name(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _origin_name(header: str) -> str:
    """The host of an origin; without one, as for `null`, or where it is malformed, a name that nobody has."""
    if len(header) > _MAX_ORIGIN:
        return ""
    try:
        return urlsplit(header).hostname or ""
    except ValueError:
        return ""
