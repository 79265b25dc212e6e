"""Pages of the web as readable text: asked by the guarded client, and read in the process that reads documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from antiphon.corpus.documents import DocumentReader
from antiphon.errors import APIError, OutboundError
from antiphon.outbound.client import Lookup, OutboundClient, OutboundResponse

__all__ = ["Pages"]

SECONDS: Final = 20.0
REDIRECTS: Final = 5
MOST_BYTES: Final = 8 * 1024 * 1024
MOST_CHARACTERS: Final = 1_000_000
_ACCEPTED: Final = (
    "text/html, application/xhtml+xml, text/plain, text/markdown, application/pdf, application/json;q=0.8"
)
_READ: Final = {"text/html": "page.html", "application/xhtml+xml": "page.html", "application/pdf": "page.pdf"}
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_PLAIN: Final = ("text/", "application/json", "application/xml")


class Pages:
    """Opens pages; `allow` is what may be asked although it is not public."""

    def __init__(self, allow: Sequence[str], lookup: Lookup | None = None) -> None:
        self._client = OutboundClient(allow, lookup=lookup)
        self._reader = DocumentReader()

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    async def text(self, url: str, tenant: str, characters: int, may: Callable[[str], bool]) -> str:
        """The text of a page, HTML as Markdown, as far as so many characters.

        `may` says of a URL whether it may be opened; a page that leads to another one is not followed to where it may
        not be.

        Raises:
            APIError: it cannot be opened or read.
        """
        try:
            answer = await self._asked(url)
            for _ in range(REDIRECTS):
                location = answer.headers.get("location")
                if answer.status not in _MOVED or location is None:
                    break
                url = self._client.onward(url, location)
                if not may(url):
                    raise _failed("The page leads to a domain that this request does not allow.")
                answer = await self._asked(url)
        except OutboundError as error:
            raise _failed(f"The page cannot be opened. {error}") from None
        if answer.status != 200:
            raise _failed(f"The page was answered with HTTP status {answer.status}.")
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        return (await self._read(answer.body, kind, tenant))[:characters]

    async def _asked(self, url: str) -> OutboundResponse:
        return await self._client.request(
            "GET", url, seconds=SECONDS, headers={"accept": _ACCEPTED}, max_bytes=MOST_BYTES
        )

    async def _read(self, body: bytes, kind: str, tenant: str) -> str:
        if kind in _READ:
            return await self._reader.text(body, _READ[kind], MOST_CHARACTERS, tenant)
        if kind.startswith(_PLAIN):
            return body.decode("utf-8", "replace")[:MOST_CHARACTERS]
        raise _failed("The page is neither text nor HTML nor PDF.")


def _failed(message: str) -> APIError:
    return APIError(message, code="open_page_failed", http_status=502)
