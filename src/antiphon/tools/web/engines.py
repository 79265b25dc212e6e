"""The search engines that can be asked: SearXNG of the operator's, and the services of Brave and Tavily."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, cast
from urllib.parse import quote_plus

import msgspec
from msgspec import Struct

from antiphon.errors import APIError, ConfigurationError, OutboundError, OutboundRefusedError
from antiphon.outbound.client import Lookup, OutboundClient
from antiphon.outbound.target import parse_target
from antiphon.protocol.json import encode
from antiphon.tool_settings import ToolSettings

__all__ = ["Engine", "Hit", "Query", "engine_of"]

SECONDS: Final = 20.0
MOST_BYTES: Final = 4 * 1024 * 1024


class Query(Struct, frozen=True):
    """One query: how many results are wanted, of which domains (none means all), for a user who is there."""

    text: str
    results: int
    domains: Sequence[str] = ()
    place: Mapping[str, str] = {}


class Hit(Struct, frozen=True):
    """A page that was found, and what the engine shows of it."""

    url: str
    title: str
    text: str


class Engine(ABC):
    """A search engine; `url` is where it is, without its path, and `key` what it knows the operator by."""

    url: ClassVar[str] = ""

    def __init__(self, url: str, key: str, allow: Sequence[str], lookup: Lookup | None = None) -> None:
        self.base = url.rstrip("/")
        self.key = key
        # The operator names this host, which may be asked wherever it is.
        self._client = OutboundClient([*allow, parse_target(self.base).host], lookup=lookup)

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    @abstractmethod
    async def search(self, query: Query) -> list[Hit]:
        """What the engine finds, best first.

        Raises:
            APIError: it cannot be asked, or answers with an error.
        """

    async def _ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Mapping[str, Any]:
        try:
            answer = await self._client.request(
                method, f"{self.base}{path}", seconds=SECONDS, headers=headers, body=body, max_bytes=MOST_BYTES
            )
        except OutboundError as error:
            raise _failed(f"The search engine cannot be asked. {error}") from None
        if answer.status != 200:
            raise _failed(f"The search engine answered with HTTP status {answer.status}.")
        try:
            found: Any = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise _failed("The search engine's answer cannot be read.") from None
        return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


class SearxngEngine(Engine):
    """An instance of SearXNG, with JSON among its formats."""

    async def search(self, query: Query) -> list[Hit]:
        """Its general results."""
        found = await self._ask("GET", f"/search?format=json&q={quote_plus(_within(query))}", {})
        return _hits(found.get("results"), "content")


class BraveEngine(Engine):
    """The web search of Brave."""

    url = "https://api.search.brave.com"

    async def search(self, query: Query) -> list[Hit]:
        """Its results of the web, for where the user is."""
        names = {"city": "x-loc-city", "region": "x-loc-state-name", "country": "x-loc-country"}
        names["timezone"] = "x-loc-timezone"
        headers = {names[name]: value for name, value in query.place.items() if value.isascii() and value.isprintable()}
        headers |= {"accept": "application/json", "x-subscription-token": self.key}
        country = query.place.get("country", "")
        where = f"&country={quote_plus(country)}" if country else ""
        count = min(query.results, 20)
        found = await self._ask(
            "GET", f"/res/v1/web/search?q={quote_plus(_within(query))}&count={count}{where}", headers
        )
        web: Any = found.get("web")
        return _hits(cast("dict[str, Any]", web).get("results") if isinstance(web, dict) else None, "description")


class TavilyEngine(Engine):
    """The search of Tavily."""

    url = "https://api.tavily.com"

    async def search(self, query: Query) -> list[Hit]:
        """Its results, with the parts of the pages that fit."""
        body = {"query": query.text, "max_results": min(query.results, 20), "include_domains": list(query.domains)}
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        found = await self._ask("POST", "/search", headers, encode(body))
        return _hits(found.get("results"), "content")


_ENGINES: Final[Mapping[str, type[Engine]]] = {"searxng": SearxngEngine, "brave": BraveEngine, "tavily": TavilyEngine}


def engine_of(settings: ToolSettings, allow: Sequence[str], lookup: Lookup | None = None) -> Engine | None:
    """The engine that the settings name; None where they name none.

    Raises:
        ConfigurationError: it lacks its URL or its key.
    """
    if settings.web_search == "none":
        return None
    kind = _ENGINES[settings.web_search]
    url = settings.web_search_url or kind.url
    if not url:
        raise ConfigurationError("--web-search searxng needs the URL of the instance: set --web-search-url.")
    if kind.url and not settings.web_search_key:
        raise ConfigurationError(f"--web-search {settings.web_search} needs a key: set ANTIPHON_WEB_SEARCH_KEY.")
    try:
        return kind(url, settings.web_search_key or "", allow, lookup)
    except OutboundRefusedError as error:
        raise ConfigurationError(f"--web-search-url cannot be asked: {error}") from None


def _within(query: Query) -> str:
    """A query with its domains in the operators that engines know; the results are held against them in any case."""
    sites = " OR ".join(f"site:{domain}" for domain in query.domains[:10])
    if not sites:
        return query.text
    return f"{query.text} {sites}" if len(query.domains) == 1 else f"{query.text} ({sites})"


def _hits(found: Any, text: str) -> list[Hit]:
    hits: list[Hit] = []
    for entry in cast("list[Any]", found) if isinstance(found, list) else []:
        fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        url = fields.get("url")
        if isinstance(url, str) and url.startswith(("https://", "http://")):
            hits.append(Hit(url, str(fields.get("title") or url), str(fields.get(text) or "")))
    return hits


def _failed(message: str) -> APIError:
    return APIError(message, code="web_search_failed", http_status=502)
