"""Web search as a tool that this server runs: `web_search` and the pages that it leads to (issue 6, section 7)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from antiphon.errors import APIError, InvalidRequestError, OutboundRefusedError
from antiphon.outbound.client import Lookup
from antiphon.outbound.target import parse_target
from antiphon.protocol.hosted import WEB_TYPES
from antiphon.protocol.json import field_error
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.tools import FunctionTool
from antiphon.tool_settings import ToolSettings
from antiphon.tools.base import HostedCall, HostedTool, Opened, Outcome, Provider, Session, fault
from antiphon.tools.web.engines import Engine, Hit, Query, engine_of
from antiphon.tools.web.pages import Pages

__all__ = ["WebProvider"]

MOST_QUERIES: Final = 5
MOST_QUERY: Final = 1_000
MOST_DOMAINS: Final = 100
_SIZES: Final[Mapping[str, tuple[int, int]]] = {"low": (5, 500), "medium": (10, 1_500), "high": (20, 4_000)}
"""Results of a search, and characters of each, by `search_context_size`."""

_CITE: Final = (
    'Each result has a number. After a sentence that a result supports, write <cite i="NUMBER"/> with that number.'
)


class _Filters(Struct):
    allowed_domains: list[str] | None = None


class _Location(Struct):
    type: str = "approximate"
    city: str | None = None
    region: str | None = None
    country: str | None = None
    timezone: str | None = None


class _Entry(Struct):
    filters: _Filters | None = None
    search_context_size: str | None = None
    user_location: _Location | None = None
    external_web_access: bool | None = None


class _Asked(Struct, frozen=True):
    """An entry that was read."""

    domains: tuple[str, ...]
    results: int
    characters: int
    place: Mapping[str, str]
    live: bool

    def may(self, url: str) -> bool:
        """Whether a URL is of a domain that the request allows."""
        if not self.domains:
            return True
        try:
            host = parse_target(url).host.rstrip(".")
        except OutboundRefusedError:
            return False
        return any(host == domain or host.endswith(f".{domain}") for domain in self.domains)


class WebProvider(Provider):
    """Runs `web_search` with the engine of the settings; `allow` is what may be asked although it is not public.

    Raises:
        ConfigurationError: the engine cannot be used.
    """

    types = WEB_TYPES

    def __init__(self, settings: ToolSettings, allow: Sequence[str] = (), *, lookup: Lookup | None = None) -> None:
        self._engine = engine_of(settings, allow, lookup)
        self._pages = Pages(allow, lookup)

    def check(self, declared: Sequence[dict[str, Any]], request: CreateResponse) -> None:
        """See that the entries can be read.

        Raises:
            InvalidRequestError: a field has a wrong type or is out of range.
        """
        for index, tool in enumerate(request.tools):
            if isinstance(tool, dict) and tool.get("type") in self.types:
                _read(tool, f"tools[{index}]")

    async def open(self, declared: Sequence[dict[str, Any]], session: Session) -> Opened:
        """The search and the opening of pages, once; of several entries the first counts."""
        entry = declared[0]
        asked = _read(entry, "tools")
        return Opened([_SearchTool(entry, asked, self._engine), _PageTool(entry, asked, self._engine, self._pages)])

    async def close(self) -> None:
        """Close every connection."""
        await self._pages.close()
        if self._engine is not None:
            await self._engine.close()


class _WebTool(HostedTool):
    """What both tools have in common: their item, and the numbers of what they found."""

    item_type = "web_search_call"
    seconds = 45.0

    def __init__(self, declared: Mapping[str, Any], asked: _Asked, engine: Engine | None) -> None:
        self.declared = declared
        self.asked = asked
        self._engine = engine

    def item(self, call: HostedCall) -> dict[str, Any]:
        """The call, with what it does."""
        return {"type": self.item_type, "action": self.action(call)}

    def action(self, call: HostedCall) -> dict[str, Any]:
        """What the call does, as the item says it."""
        raise NotImplementedError

    def engine(self) -> Engine:
        """The engine.

        Raises:
            APIError: there is none, or the request wants nothing of the live web.
        """
        if self._engine is None:
            raise APIError(
                "No search engine is configured on this server. Its operator can set --web-search.",
                code="web_search_unavailable",
            )
        if not self.asked.live:
            raise APIError(
                "The request allows no access to the live web, and this server keeps no pages.",
                code="web_search_unavailable",
            )
        return self._engine

    def settle(self, call: HostedCall, outcome: Outcome, session: Session) -> Outcome:
        """Give each source its number."""
        results: list[dict[str, Any]] = outcome.fields.get("results") or []
        numbered = [{**result, "_number": session.cite(_annotation(result))} for result in results]
        return Outcome({**outcome.fields, "results": numbered}, outcome.also)

    def sources(self, body: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """The sources of an earlier call."""
        results = cast("list[dict[str, Any]]", body.get("results") or [])
        numbered = [result for result in results if isinstance(result.get("_number"), int)]
        return {result["_number"]: _annotation(result) for result in numbered}

    def failed(self, call: HostedCall, error: APIError) -> Outcome:
        """A failed item with the reason."""
        return Outcome({"status": "failed", "action": self.action(call), "results": [], "error": fault(error)})


class _SearchTool(_WebTool):
    def __init__(self, declared: Mapping[str, Any], asked: _Asked, engine: Engine | None) -> None:
        super().__init__(declared, asked, engine)
        where = ", ".join(asked.place[name] for name in ("city", "region", "country") if name in asked.place)
        near = f" The user is in {where}." if where else ""
        only = f" Only pages of {', '.join(asked.domains[:10])} are found." if asked.domains else ""
        queries = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_QUERIES}
        self.function = FunctionTool(
            name="web_search",
            description=f"Search the web. Give one or more queries.{near}{only} {_CITE}",
            parameters=_object({"queries": queries}, "queries"),
        )

    def action(self, call: HostedCall) -> dict[str, Any]:
        queries = _queries(call)
        return {"type": "search", "query": queries[0] if queries else "", "queries": queries}

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        engine = self.engine()
        queries = _queries(call)
        if not queries:
            raise InvalidRequestError("'queries' must hold at least one query.", code="invalid_arguments")
        asked = self.asked
        answers = await asyncio.gather(
            *(engine.search(Query(text, asked.results, asked.domains, asked.place)) for text in queries),
            return_exceptions=True,
        )
        found = [answer for answer in answers if isinstance(answer, list)]
        if not found:
            raise next(answer for answer in answers if isinstance(answer, BaseException))
        results = _merged(found, asked, call.characters)
        sources = [{"type": "url", "url": result["url"]} for result in results]
        action = {**self.action(call), "sources": sources}
        return Outcome({"status": "completed", "action": action, "results": results})


class _PageTool(_WebTool):
    def __init__(self, declared: Mapping[str, Any], asked: _Asked, engine: Engine | None, pages: Pages) -> None:
        super().__init__(declared, asked, engine)
        self._pages = pages
        self.function = FunctionTool(
            name="open_page",
            description=f"Open a page of the web, such as one that web_search found, and read its text. {_CITE}",
            parameters=_object({"url": {"type": "string"}}, "url"),
        )

    def action(self, call: HostedCall) -> dict[str, Any]:
        return {"type": "open_page", "url": _url(call)}

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        self.engine()
        url = _url(call)
        if not url.startswith(("https://", "http://")) or not self.asked.may(url):
            raise InvalidRequestError(
                "'url' must be one that begins with http, of a domain that the request allows.",
                code="invalid_arguments",
            )
        characters = max(0, call.characters - len(url) - 100)
        text = await self._pages.text(url, session.scope.tenant, characters, self.asked.may)
        result = {"url": url, "title": _title(text) or url, "text": text}
        return Outcome({"status": "completed", "action": self.action(call), "results": [result]})


def _read(tool: Mapping[str, Any], path: str) -> _Asked:
    try:
        given = msgspec.convert(tool, _Entry)
    except msgspec.ValidationError as error:
        raise field_error(error, path) from None
    size = given.search_context_size or "medium"
    if size not in _SIZES:
        raise _invalid(f"{path}.search_context_size", "'low', 'medium' or 'high' is expected")
    domains = (given.filters.allowed_domains if given.filters is not None else None) or []
    if len(domains) > MOST_DOMAINS:
        raise _invalid(f"{path}.filters.allowed_domains", f"at most {MOST_DOMAINS} domains are expected")
    results, characters = _SIZES[size]
    place = given.user_location or _Location()
    names = ("city", "region", "country", "timezone")
    return _Asked(
        domains=tuple(_domain(domain, path) for domain in domains),
        results=results,
        characters=characters,
        place={name: value for name in names if (value := getattr(place, name))},
        live=given.external_web_access is not False,
    )


def _domain(text: str, path: str) -> str:
    host = text.lower().removeprefix("https://").removeprefix("http://").rstrip("/").rstrip(".")
    if not host or not all(letter.isalnum() or letter in "-." for letter in host):
        raise _invalid(f"{path}.filters.allowed_domains", "a domain such as example.com is expected")
    return host


def _queries(call: HostedCall) -> list[str]:
    given: Any = (call.arguments or {}).get("queries")
    if isinstance(given, str):
        given = [given]
    found = cast("list[Any]", given) if isinstance(given, list) else []
    return [text.strip()[:MOST_QUERY] for text in found if isinstance(text, str) and text.strip()][:MOST_QUERIES]


def _url(call: HostedCall) -> str:
    given: Any = (call.arguments or {}).get("url")
    return given.strip() if isinstance(given, str) else ""


def _merged(found: Sequence[Sequence[Hit]], asked: _Asked, characters: int) -> list[dict[str, Any]]:
    """The results of all queries, the best of each first, each page once, as many as there is room for."""
    results: list[dict[str, Any]] = []
    seen: set[str] = set()
    for hit in chain.from_iterable(zip_longest(*found)):
        if hit is None or hit.url in seen or not asked.may(hit.url):
            continue
        seen.add(hit.url)
        text = hit.text[: asked.characters]
        characters -= len(text) + len(hit.title) + len(hit.url) + 20
        if characters < 0 or len(results) == asked.results:
            break
        results.append({"url": hit.url, "title": hit.title[:300], "text": text})
    return results


def _annotation(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "url_citation", "url": result["url"], "title": result["title"]}


def _title(text: str) -> str:
    """The first heading of a page in Markdown."""
    line = next((line for line in text[:20_000].splitlines() if line.startswith("# ")), "")
    return line.removeprefix("# ").strip()[:300]


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _invalid(param: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"Invalid '{param}': {what}.", param=param, code="invalid_value")
