"""The guarded HTTP client: every address is vetted, and the one that was vetted is the one that is asked.

A name is looked up once for each connection, every address that it stands for must be permitted, and the connection
goes to one of these: a name that changes its address in between gains nothing. No proxy and no credential of the
environment is used. What goes wrong is told without URLs, addresses or headers, so that it can be logged.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct
from yarl import URL

from antiphon.errors import OutboundError, OutboundRefusedError
from antiphon.outbound.addresses import AddressPolicy
from antiphon.outbound.target import Target, check_letters, parse_target

__all__ = ["Lookup", "OutboundClient", "OutboundResponse"]

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses, as text, that a host name stands for; raises OSError where there are none."""

MAX_CONNECTIONS: Final = 64
CHUNK: Final = 64 * 1024
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_FOLLOWED: Final = frozenset({"GET", "HEAD"})
_NUMERIC: Final = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


class OutboundResponse(Struct, frozen=True):
    """An answer: its status, its headers by lower-case name, and its body as far as it was asked for."""

    status: int
    headers: dict[str, str]
    body: bytes


class OutboundClient:
    """Asks URLs that someone else named. `allow` is what may be asked although it is not public.

    Raises:
        ConfigurationError: an entry of `allow` cannot be used.
    """

    def __init__(self, allow: Sequence[str] = (), *, lookup: Lookup | None = None) -> None:
        self._policy = AddressPolicy(allow)
        self._lookup = lookup or _system_lookup
        self._session: aiohttp.ClientSession | None = None

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

    async def _ask(
        self, method: str, target: Target, headers: Mapping[str, str], body: bytes | None, max_bytes: int | None
    ) -> OutboundResponse:
        if target.literal and not self._policy.permits(target.host, target.host):
            raise _not_public()
        try:
            async with self._opened().request(
                method, target.url, headers=headers, data=body, allow_redirects=False
            ) as response:
                found = {name.lower(): value for name, value in response.headers.items()}
                content = b"" if max_bytes is None else await _read(response, max_bytes)
                return OutboundResponse(response.status, found, content)
        except aiohttp.ClientConnectorCertificateError:
            raise OutboundError("The certificate of the other side is not valid for its name.") from None
        except aiohttp.ClientConnectorError:
            raise OutboundError("The other side cannot be reached.") from None
        except (aiohttp.ClientError, OSError, ValueError):
            raise OutboundError("The other side broke off, or did not answer in HTTP.") from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=_VettingResolver(self._policy, self._lookup),
                use_dns_cache=False,
                force_close=True,
                limit=MAX_CONNECTIONS,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                headers={"accept-encoding": "identity"},
                trust_env=False,
            )
        return self._session


class _VettingResolver(AbstractResolver):
    """Gives only addresses that were vetted, and none of a host that also has others."""

    def __init__(self, policy: AddressPolicy, lookup: Lookup) -> None:
        self._policy = policy
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host, of both families.

        Raises:
            OutboundRefusedError: one of them may not be asked.
            OSError: there are none.
        """
        addresses = await self._lookup(host, port)
        if not addresses:
            raise OSError("the name has no address")
        if not all(self._policy.permits(host, address) for address in addresses):
            raise _not_public()
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=_NUMERIC,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing to do."""


async def _system_lookup(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for _, _, _, _, address in found))


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_chunked(CHUNK):
        size += len(chunk)
        if size > max_bytes:
            raise OutboundError(f"The other side answered more than {max_bytes} bytes.")
        chunks.append(chunk)
    return b"".join(chunks)


def _location(method: str, answer: OutboundResponse, redirects: int) -> str | None:
    if redirects < 1 or method not in _FOLLOWED or answer.status not in _REDIRECTS:
        return None
    return answer.headers.get("location")


def _next_hop(target: Target, location: str, headers: Mapping[str, str]) -> tuple[Target, Mapping[str, str]]:
    check_letters(location)
    try:
        joined = str(target.url.join(URL(location)))
    except ValueError:
        raise OutboundRefusedError("The redirect is malformed.") from None
    onward = parse_target(joined)
    if target.url.scheme == "https" and onward.url.scheme == "http":
        raise OutboundRefusedError("A redirect from https to http is not followed.")
    return onward, headers if onward.same_origin(target) else {}


def _not_public() -> OutboundRefusedError:
    return OutboundRefusedError("The host is not on the public internet. Allow it with --allow-outbound.")
