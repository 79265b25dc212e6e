"""The guarded HTTP client: every address is vetted, and the one that was vetted is the one that is asked.

A name is looked up once for each connection, every address that it stands for must be permitted, and the connection
goes to one of these: a name that changes its address in between gains nothing. No proxy and no credential of the
environment is used. What goes wrong is told without URLs, addresses or headers, so that it can be logged.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from yarl import URL

from antiphon.errors import OutboundError, OutboundRefusedError
from antiphon.outbound.addresses import AddressPolicy
from antiphon.outbound.answer import OutboundResponse, OutboundStream, not_public
from antiphon.outbound.target import Target, check_letters, parse_target

if TYPE_CHECKING:
    from antiphon.outbound.session import Session

__all__ = ["Lookup", "OutboundClient", "OutboundResponse"]

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses, as text, that a host name stands for; raises OSError where there are none."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_FOLLOWED: Final = frozenset({"GET", "HEAD"})


class OutboundClient:
    """Asks URLs that someone else named. `allow` is what may be asked although it is not public.

    With `public` False that is all that may be asked.

    Raises:
        ConfigurationError: an entry of `allow` cannot be used.
    """

    def __init__(self, allow: Sequence[str] = (), *, lookup: Lookup | None = None, public: bool = True) -> None:
        self._policy = AddressPolicy(allow, public=public)
        self._lookup = lookup or _system_lookup
        self._session: Session | None = None

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        method: str,
        url: str,
        *,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        max_bytes: int | None = None,
        redirects: int = 0,
    ) -> OutboundResponse:
        """Ask a URL; all of it, lookups and redirects included, takes at most so many seconds.

        `max_bytes` is the longest body that is taken; with None it is not read. A redirect is an answer like any other,
        unless `redirects` says how many may be followed, by GET and HEAD: each hop is vetted as the first was, never
        leads from https to http, and to another origin takes none of the headers along.

        Raises:
            OutboundRefusedError: the target may not be asked; nothing was sent to it.
            OutboundError: it cannot be reached, is too slow, breaks off or answers too much.
        """
        target = parse_target(url)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    answer = await self._ask(method, target, headers or {}, body, max_bytes)
                    onward = _location(method, answer, redirects)
                    if onward is None:
                        return answer
                    redirects -= 1
                    target, headers = _next_hop(target, onward, headers or {})
        except TimeoutError:
            raise OutboundError("The other side was too slow.") from None

    def check(self, url: str) -> None:
        """Refuse what may not be asked by its spelling alone; a name may still stand for an address that may not.

        Raises:
            OutboundRefusedError: the target may not be asked.
        """
        self._vet(parse_target(url))

    async def begin(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> OutboundStream:
        """Ask a URL, and give the answer once it has begun, without a limit of time; a redirect is one like any other.

        Whoever asks closes it.

        Raises:
            OutboundRefusedError: the target may not be asked; nothing was sent to it.
            OutboundError: it cannot be reached, or breaks off.
        """
        target = parse_target(url)
        self._vet(target)
        return await self._opened().begin(method, target, headers or {}, body)

    def onward(self, url: str, location: str) -> str:
        """Where a redirect of a URL leads, to be asked for by whoever follows redirects with rules of its own.

        Raises:
            OutboundRefusedError: it is malformed, or leads from https to http.
        """
        target, _ = _next_hop(parse_target(url), location, {})
        return str(target.url)

    async def _ask(
        self, method: str, target: Target, headers: Mapping[str, str], body: bytes | None, max_bytes: int | None
    ) -> OutboundResponse:
        self._vet(target)
        return await self._opened().ask(method, target, headers, body, max_bytes)

    def _vet(self, target: Target) -> None:
        if target.literal and not self._policy.permits(target.host, target.host):
            raise not_public()

    def _opened(self) -> Session:
        if self._session is None:
            # Only here: to import what it is made with takes a tenth of a start, and 7 MB that most servers never need.
            from antiphon.outbound.session import Session

            self._session = Session(self._policy, self._lookup)
        return self._session


async def _system_lookup(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for _, _, _, _, address in found))


def _location(method: str, answer: OutboundResponse, redirects: int) -> str | None:
    if redirects < 1 or method not in _FOLLOWED or answer.status not in _REDIRECTS:
        return None
    return answer.headers.get("location")


def _next_hop(target: Target, location: str, headers: Mapping[str, str]) -> tuple[Target, Mapping[str, str]]:
    onward = parse_target(_absolute(target, location))
    if target.url.scheme == "https" and onward.url.scheme == "http":
        raise OutboundRefusedError("A redirect from https to http is not followed.")
    return onward, headers if onward.same_origin(target) else {}


def _absolute(target: Target, location: str) -> str:
    """Where a redirect leads; what names a host stays as it is written, to be held to the rules of a first URL."""
    check_letters(location)
    if location.startswith("//"):
        return f"{target.url.scheme}:{location}"
    if ":" in location[: min((at for at in map(location.find, "/?#") if at >= 0), default=len(location))]:
        return location
    try:
        return str(target.url.join(URL(location)))
    except ValueError:
        raise OutboundRefusedError("The redirect is malformed.") from None
