"""The connections of the guarded client, which it opens when it asks for the first time.

Every name is looked up by the client's own lookup, and its addresses are vetted, for each connection anew.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from antiphon.errors import OutboundError
from antiphon.outbound.addresses import AddressPolicy
from antiphon.outbound.answer import OutboundResponse, OutboundStream, not_public
from antiphon.outbound.target import Target

__all__ = ["Session"]

_MAX_CONNECTIONS: Final = 64
_CHUNK: Final = 64 * 1024
_NUMERIC: Final = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV

_Lookup = Callable[[str, int], Awaitable[Sequence[str]]]


class Session:
    """Asks targets that may be asked; `policy` says of each address whether it may."""

    def __init__(self, policy: AddressPolicy, lookup: _Lookup) -> None:
        connector = aiohttp.TCPConnector(
            resolver=_VettingResolver(policy, lookup),
            use_dns_cache=False,
            force_close=True,
            limit=_MAX_CONNECTIONS,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            headers={"accept-encoding": "identity"},
            trust_env=False,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def ask(
        self, method: str, target: Target, headers: Mapping[str, str], body: bytes | None, max_bytes: int | None
    ) -> OutboundResponse:
        """Send one request.

        Raises:
            OutboundRefusedError: the target may not be asked; nothing was sent to it.
            OutboundError: it cannot be reached, breaks off or answers too much.
        """
        with _told():
            async with self._session.request(
                method, target.url, headers=headers, data=body, allow_redirects=False
            ) as response:
                content = b"" if max_bytes is None else await _read(response, max_bytes)
                return OutboundResponse(response.status, _headers(response), content)

    async def begin(
        self, method: str, target: Target, headers: Mapping[str, str], body: bytes | None
    ) -> OutboundStream:
        """Send one request, and give its answer once that has begun; to be closed by whoever asked.

        Raises:
            OutboundRefusedError: the target may not be asked; nothing was sent to it.
            OutboundError: it cannot be reached, or breaks off.
        """
        with _told():
            return _Stream(
                await self._session.request(method, target.url, headers=headers, data=body, allow_redirects=False)
            )


class _Stream(OutboundStream):
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = _headers(response)

    async def chunks(self, max_bytes: int) -> AsyncIterator[bytes]:
        size = 0
        with _told():
            async for chunk in self._response.content.iter_any():
                size += len(chunk)
                if size > max_bytes:
                    raise _too_much(max_bytes)
                yield chunk

    def close(self) -> None:
        self._response.close()


@contextmanager
def _told() -> Generator[None]:
    try:
        yield
    except aiohttp.ClientConnectorCertificateError:
        raise OutboundError("The certificate of the other side is not valid for its name.") from None
    except aiohttp.ClientConnectorError:
        raise OutboundError("The other side cannot be reached.") from None
    except (aiohttp.ClientError, OSError, ValueError):
        raise OutboundError("The other side broke off, or did not answer in HTTP.") from None


def _headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _too_much(max_bytes: int) -> OutboundError:
    return OutboundError(f"The other side answered more than {max_bytes} bytes.")


class _VettingResolver(AbstractResolver):
    """Gives only addresses that were vetted, and none of a host that also has others."""

    def __init__(self, policy: AddressPolicy, lookup: _Lookup) -> None:
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
            raise not_public()
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


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_chunked(_CHUNK):
        size += len(chunk)
        if size > max_bytes:
            raise _too_much(max_bytes)
        chunks.append(chunk)
    return b"".join(chunks)
