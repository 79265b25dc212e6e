"""Cross-origin requests: which web pages may ask from a browser, and the headers that tell the browser so (M44).

Without the setting no page may: a browser would let any page that its user visits use a server on the user's machine,
which is why reflecting every origin is not the default here.
"""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.errors import ConfigurationError

__all__ = ["Origins"]

Headers = tuple[tuple[bytes, bytes], ...]

_MAX_REQUESTED = 4096
_NAMES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~, ")
_METHODS = (b"access-control-allow-methods", b"GET, POST, DELETE")
_AGE = (b"access-control-max-age", b"600")
_SHOWN = "x-request-id, openai-processing-ms, retry-after, retry-after-ms, x-should-retry"
_LIMITS = [f"x-ratelimit-{what}-{kind}" for kind in ("requests", "tokens") for what in ("limit", "remaining", "reset")]
_EXPOSED = (b"access-control-expose-headers", ", ".join([_SHOWN, *_LIMITS]).encode())


class Origins:
    """The origins that are allowed, such as `https://chat.example`; `*` allows all, the origin `null` too.

    Raises:
        ConfigurationError: one of them is no origin.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        given = [origin.strip().rstrip("/").lower() for value in allowed for origin in value.split(",")]
        self._any = "*" in given
        self._allowed = frozenset(given)
        for origin in given:
            scheme, found, rest = origin.partition("://")
            if origin not in ("*", "null") and (not found or not scheme or not rest or "/" in rest):
                raise ConfigurationError(
                    f"--allowed-origins: '{origin}' is no origin. Name one as 'https://chat.example', or '*' for all."
                )

    def allows(self, origin: str) -> bool:
        """Whether a page of this origin may ask."""
        return self._any or origin.lower() in self._allowed

    def answer(self, origin: str | None) -> Headers:
        """The headers of an answer to a request from this origin; none where no origin is allowed at all."""
        if not self._allowed:
            return ()
        if self._any:
            return ((b"access-control-allow-origin", b"*"), _EXPOSED)
        vary = (b"vary", b"Origin")
        if origin is None or not self.allows(origin):
            return (vary,)
        return ((b"access-control-allow-origin", origin.encode("latin-1")), _EXPOSED, vary)

    def preflight(self, requested: bytes | None, *, private: bool) -> Headers:
        """The headers beside those that let a browser send what it asks for: the names of headers, a local network."""
        headers: list[tuple[bytes, bytes]] = [_METHODS, _AGE]
        if requested and len(requested) <= _MAX_REQUESTED and _NAMES.issuperset(requested):
            headers.append((b"access-control-allow-headers", requested))
        if private:
            headers.append((b"access-control-allow-private-network", b"true"))
        return tuple(headers)
