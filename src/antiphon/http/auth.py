"""Who may ask: API keys, and without one the addresses and origins that a loopback server answers to."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import urlsplit

from antiphon.access import MAX_NAME, is_loopback
from antiphon.errors import AuthenticationError, PermissionDeniedError
from antiphon.http.exchange import Exchange
from antiphon.settings import Settings
from antiphon.store.base import Scope

__all__ = ["Authenticator"]

TENANT = "default"
_OPEN = Scope(TENANT)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MAX_ORIGIN = MAX_NAME + len("https://[]:65535")


class Authenticator:
    """One way in for every form of credential (M43).

    Without a configured key, anything in `Authorization` passes, and the `Host` and `Origin` must be ones of this
    machine or allowed by a setting: else any web page could reach the server through its visitor's browser.
    """

    def __init__(self, settings: Settings) -> None:
        self._digests = [_digest(key.encode("utf-8", "surrogateescape")) for key in settings.api_key]
        self._guard_names = not self._digests and is_loopback(settings.host) and "*" not in settings.allowed_host
        self._names = {name.lower() for name in (*settings.allowed_host, settings.host, *_LOOPBACK)}

    def authenticate(self, exchange: Exchange) -> Scope:
        """The scope of a request.

        Raises:
            AuthenticationError: no key, or a wrong one, where one is needed.
            PermissionDeniedError: without a key, a host or an origin that is not allowed.
        """
        if self._digests:
            return self._by_key(exchange.raw_header(b"authorization"))
        if self._guard_names:
            self._check_names(exchange)
        return _OPEN

    def _by_key(self, header: bytes | None) -> Scope:
        if not header:
            raise AuthenticationError(
                "You didn't provide an API key. Send it in an Authorization header: 'Authorization: Bearer KEY'.",
                code="missing_api_key",
            )
        scheme, _, rest = header.partition(b" ")
        digest = _digest(rest.strip() if scheme.lower() == b"bearer" else header)
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        if not any(matches):
            raise AuthenticationError("Incorrect API key provided.", code="invalid_api_key")
        return Scope(TENANT, digest.hex()[:16])

    def _check_names(self, exchange: Exchange) -> None:
        host = exchange.header(b"host")
        if host is not None and not self._allowed(_host_name(host)):
            raise PermissionDeniedError(
                "This server answers only to the names of its own machine. Allow another with --allowed-host.",
                code="host_not_allowed",
            )
        origin = exchange.header(b"origin")
        if origin is not None and not self._allowed(_origin_name(origin)):
            raise PermissionDeniedError(
                "Requests from this origin are not allowed. Allow it with --allowed-host, or set an API key.",
                code="origin_not_allowed",
            )

    def _allowed(self, name: str) -> bool:
        return len(name) <= MAX_NAME and (name.lower() in self._names or is_loopback(name))


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


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
