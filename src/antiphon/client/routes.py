"""Where an endpoint is asked: the URLs of its routes, and the headers that say who asks (E1, E28)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from antiphon.client.errors import DriverError
from antiphon.client.profiles import Profile

__all__ = ["Routes", "auth_headers", "find_key"]

_SOCKETS = {"http": "ws", "https": "wss"}


class Routes(Struct, frozen=True):
    """The routes under a base URL, which ends where `/responses` begins; a query of its own stays with each.

    Raises:
        DriverError: it is not an http or https URL.
    """

    base_url: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in _SOCKETS or not parts.hostname:
            raise DriverError(f"'{self.base_url}' is not a base URL such as https://host/v1.")

    @property
    def responses(self) -> str:
        """Where responses are made."""
        return self._url("responses")

    @property
    def compact(self) -> str:
        """Where conversations are compacted."""
        return self._url("responses", "compact")

    @property
    def socket(self) -> str:
        """Where a WebSocket is opened."""
        scheme, rest = self.responses.split("://", 1)
        return f"{_SOCKETS[scheme]}://{rest}"

    def response(self, response_id: str, **query: Any) -> str:
        """A response that is there; `query` is what is asked of it."""
        return self._url("responses", response_id, query=query)

    def cancel(self, response_id: str) -> str:
        """Where a response is cancelled."""
        return self._url("responses", response_id, "cancel")

    def _url(self, *steps: str, query: Mapping[str, Any] | None = None) -> str:
        scheme, host, path, own, _ = urlsplit(self.base_url)
        path = "/".join((path.rstrip("/"), *(quote(step, safe="") for step in steps)))
        asked = [
            (name, str(value).lower() if isinstance(value, bool) else value) for name, value in (query or {}).items()
        ]
        return urlunsplit((scheme, host, path, "&".join(part for part in (own, urlencode(asked)) if part), ""))


def find_key(profile: Profile, key: str | None = None) -> str | None:
    """The key for a provider: the one that is given, or that of the environment; None where there is none."""
    if key is not None:
        return key
    return next((found for name in profile.key_variables if (found := os.environ.get(name))), None)


def auth_headers(profile: Profile, key: str | None) -> dict[str, str]:
    """The header that carries the key, where there is one."""
    if key is None:
        return {}
    return {"api-key": key} if profile.key_header == "api-key" else {"authorization": f"Bearer {key}"}
